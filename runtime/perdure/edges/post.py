"""`LocalPost`: letters between sessions where one process holds them all, a call into its delivery.

The contract is that of many machines: letters are plain records, a receipt means "in the owner's session
file", and sending again with the same (sender, id) is free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from perdure.contracts import Letter, Receipt

Delivery: TypeAlias = Callable[[Letter, float], Awaitable[Receipt]]


class LocalPost:
    """`deliver(letter, deadline)` is the host's: it hands the letter to its session's actor."""

    def __init__(self, deliver: Delivery) -> None:
        self._deliver = deliver

    async def send(self, letter: Letter, deadline: float) -> Receipt:
        """Deliver a letter; returns once it is in its session's file. `deadline` in the clock's seconds.

        Raises `Busy`, `Closed`, `Parked`, `Fenced`, `StorageFailed`: nothing was acknowledged.
        """
        return await self._deliver(letter, deadline)
