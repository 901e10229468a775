"""Channels for tests: a receiver that outlives hosts, and one that fails as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from perdure.contracts import Delivered, Delivery
from perdure.errors import DeliveryFailed
from perdure.kernel.clock import Clock


class Receiver:
    """What has arrived, in order, whatever the sender heard of it. `script`: a word for each attempt.

    `ok` · `lost` (arrives, and nobody hears) · `retry`, `refused`, `gone`, `maybe` (as the channel says, and
    nothing arrives) · `bug` · a function that is awaited. After the script all is `ok`.
    """

    def __init__(
        self,
        script: Iterable[Any] = (),
        *,
        idempotent: bool = True,
        name: str = "cli",
        clock: Clock | None = None,
    ) -> None:
        self.name, self.idempotent, self.script, self.clock = name, idempotent, list(script), clock
        self.arrived: list[Delivery] = []
        self.attempts: list[Delivery] = []
        self.on_attempt: Callable[[str], None] = lambda _moment: None

    async def send(self, delivery: Delivery) -> Delivered:
        self.attempts.append(delivery)
        self.on_attempt("before")
        word = self.script.pop(0) if self.script else "ok"
        if callable(word):
            await word()
            word = "ok"
        if word in ("ok", "lost"):
            self.arrived.append(delivery)
            self.on_attempt("after")
        if word == "bug":
            raise RuntimeError("a bug of the channel")
        if word != "ok":
            kinds = {"lost": "ambiguous", "maybe": "ambiguous", "retry": "retryable", "refused": "permanent"}
            raise DeliveryFailed(kinds.get(word, "gone"), word)  # type: ignore[arg-type]
        return Delivered("r1")

    @property
    def ids(self) -> list[str]:
        """Ids in the order of their first arrival."""
        return list(dict.fromkeys(each.id for each in self.arrived))

    @property
    def texts(self) -> list[str]:
        """Their texts."""
        return list({each.id: each.text for each in self.arrived}.values())


def gated(clock: Clock) -> tuple[Callable[[], Any], Any, Any]:
    """(a word for the script, what tells that it has begun, what lets it go on)."""
    begun, go = clock.waiter("the delivery's beginning"), clock.waiter("the delivery to go on")

    async def word() -> None:
        begun.set()
        await clock.wait(go, 86_400)

    return word, begun, go
