"""What happens to an actor whose handler raised, and to the message it raised on.

The actor restarts (its own `restart` hook) and the message gets one more chance; a message that crashes
twice is parked by itself, an actor that crashes too often within a minute is parked whole. Parked things
are listed, and retried or dropped by command. Nobody else notices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.kernel.clock import Clock
from perdure.kernel.errors import ActorParked
from perdure.kernel.intensity import Intensity
from perdure.kernel.mailbox import Mailboxes, Ref
from perdure.kernel.stray import fatal

PER_ACTOR = Intensity(5, 60.0)  # crashes allowed in that many seconds; one more parks the actor
CHANCES = 2  # times one message may crash its actor before it is parked
KEPT = 1024  # parked messages kept; beyond that the oldest is dropped, and told


@dataclass(frozen=True, slots=True)
class Parked:
    """A poison message. `whole`: its actor is parked with it."""

    number: int
    key: str
    message: Any
    error: str
    at: float
    whole: bool


class Infirmary:
    """Crashes of actors, counted and contained."""

    def __init__(
        self,
        clock: Clock,
        boxes: Mailboxes,
        report: Callable[[str, dict[str, object]], None],
        intensity: Intensity = PER_ACTOR,
        chances: int = CHANCES,
    ) -> None:
        self._clock, self._boxes, self._report = clock, boxes, report
        self._intensity, self._chances = intensity, chances
        self._wards: dict[int, tuple[Parked, Ref]] = {}
        self._count = 0
        self.crashes = 0

    def admit(self, ref: Ref, message: Any, error: str, number: int) -> None:
        """List what an earlier kernel had parked, under the same number; the actor itself goes on."""
        self._count = max(self._count, number)
        self._wards[number] = (Parked(number, ref.key, message, error, self._clock.now(), False), ref)

    def crashed(self, ref: Ref, message: Any, error: BaseException) -> None:
        """Restart the actor and try the message again, until it works or either is parked."""
        for chance in range(1, self._chances + 1):
            self._note(ref, error)
            if not ref.parked and not self._restart(ref, error):
                ref.parked = True
            if ref.parked or chance == self._chances:
                break
            try:
                ref.handler(message)
            except BaseException as exc:
                if fatal(exc):
                    raise
                error = exc
            else:
                return
        self.park(ref, message, error)

    def _note(self, ref: Ref, error: BaseException) -> None:
        self.crashes += 1
        ref.crashes, within = self._intensity.note(ref.crashes, self._clock.now())
        ref.parked = not within
        self._report("actor.crashed", {"key": ref.key, "error": error, "recent": len(ref.crashes)})

    def _restart(self, ref: Ref, error: BaseException) -> bool:
        if ref.restart is None:
            return True
        try:
            ref.handler = ref.restart(error) or ref.handler
        except Exception as exc:
            self._report("actor.restart_failed", {"key": ref.key, "error": exc})
            return False
        return True

    def park(self, ref: Ref, message: Any, error: BaseException) -> None:
        """Put a message aside; its actor, where that is parked as well."""
        self._count += 1
        parked = Parked(self._count, ref.key, message, repr(error), self._clock.now(), ref.parked)
        self._wards[self._count] = (parked, ref)
        self._report(
            "actor.parked", {"key": ref.key, "number": self._count, "whole": ref.parked, "error": error}
        )
        if ref.parked:
            self._boxes.turn_away(
                ref, ActorParked(f"{ref.key} crashed too often and is parked: retry or drop it")
            )
        if len(self._wards) > KEPT:
            self.drop(next(iter(self._wards)))

    def parked(self) -> tuple[Parked, ...]:
        """All that is parked, the oldest first."""
        return tuple(parked for parked, _ in self._wards.values())

    def retry(self, number: int) -> bool:
        """Hand the message in again, ahead of all others; a parked actor goes on. False: no such number."""
        parked, ref = self._wards.pop(number, (None, None))
        if parked is None or ref is None:
            return False
        self._report("actor.retried", {"key": parked.key, "number": number})
        if ref.inner is None:
            ref.inner = deque()
        ref.inner.appendleft(parked.message)
        self._resume(ref)
        return True

    def drop(self, number: int) -> bool:
        """Forget the message; a parked actor goes on with the rest. False: no such number."""
        parked, ref = self._wards.pop(number, (None, None))
        if parked is None or ref is None:
            return False
        self._report("actor.dropped", {"key": parked.key, "number": number})
        self._resume(ref)
        return True

    def _resume(self, ref: Ref) -> None:
        if ref.parked:
            ref.parked, ref.crashes = False, ()
        if ref.mail or ref.inner:
            self._boxes.wake(ref)
