"""An actor that was here before: it keeps a ledger of what it is told, by name."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Clerk:
    """Gets one message after another. `("note", name)` counts, `("count", name)` asks; else it shrugs."""

    def __init__(self) -> None:
        self._ledger: Counter[str] = Counter()

    async def receive(self, message: Any) -> Any:
        match message:
            case ("note", str(name)):
                self._ledger[name] += 1
            case ("count", str(name)):
                return self._ledger[name]
        return None
