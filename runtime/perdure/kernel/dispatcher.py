"""One task serves all actors: synchronous handlers on a shared run queue (0.3 µs a message).

A handler decides and never waits, so an actor at rest owns no task, and an order to stop is handled while
its job waits for minutes. Slices keep one busy actor from holding up the rest.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from anyio.lowlevel import checkpoint

from perdure.kernel.clock import Clock
from perdure.kernel.mailbox import Mailboxes, Ref
from perdure.kernel.poison import Infirmary
from perdure.kernel.stray import fatal

SLICE = 16  # messages of one actor at a time
TURN = 0.002  # seconds of work between two chances for the loop
ROUNDS = 1024  # slices between two chances under virtual time, which stands still while we work


class Dispatcher:
    """Runs handlers; what they raise goes to the infirmary."""

    def __init__(self, clock: Clock, boxes: Mailboxes, infirmary: Infirmary) -> None:
        self._clock, self._boxes, self._infirmary = clock, boxes, infirmary
        self.handled = self.yields = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        clock, boxes = self._clock, self._boxes
        while True:
            began, rounds = clock.now(), 0
            while boxes.ready:
                self.turn(boxes.ready.popleft())
                rounds += 1
                if clock.now() - began > TURN or rounds >= ROUNDS:
                    self.yields += 1
                    await checkpoint()
                    began, rounds = clock.now(), 0
            bell = clock.waiter("mail")
            boxes.bell = bell
            await clock.wait(bell)

    def turn(self, ref: Ref) -> None:
        """One slice of one actor."""
        handled = 0
        while handled < SLICE and not ref.parked:
            if ref.inner:
                message = ref.inner.popleft()
            elif ref.mail:
                message = ref.mail.popleft()
                if ref.room:
                    self._boxes.admit(ref)
            else:
                break
            handled += 1
            try:
                ref.handler(message)
            except BaseException as exc:  # a stray cancellation must not end the dispatcher of everyone
                if fatal(exc):
                    raise
                self._infirmary.crashed(ref, message, exc)
        self.handled += handled
        self._boxes.rest(ref)

    def drain(self, limit: int) -> int:
        """Serve what is there without waiting, at most `limit` slices: the last reports at a stop."""
        done = 0
        ready: deque[Any] = self._boxes.ready
        while ready and done < limit:
            self.turn(ready.popleft())
            done += 1
        return done
