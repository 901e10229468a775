"""What an operator sees of poison: parked messages and sessions that can't open, to be retried or dropped.

An acknowledged letter is in its session's file, so parking what came after it loses nothing. A letter that
broke its session before that is refused to its sender and kept in the state folder, over restarts.
"""

from __future__ import annotations

from typing import Any

from perdure.actors.directory import Directory
from perdure.actors.messages import Command, Deliver, Mail, Wake
from perdure.actors.opening import refuse
from perdure.context.text.secrets import redact
from perdure.edges.log import Log
from perdure.edges.parked import ParkedLetter, ParkedLetters
from perdure.errors import Parked, StorageFailed
from perdure.kernel.clock import Clock
from perdure.kernel.kernel import Kernel
from perdure.kernel.poison import Parked as Ward
from perdure.kernel.waiter import Waiter

SHOWN = 300  # characters of an error


class Parking:
    """One for a host; the host tells it the kernel's events."""

    def __init__(
        self, kernel: Kernel, directory: Directory, letters: ParkedLetters, clock: Clock, log: Log
    ) -> None:
        self._kernel, self._directory, self._letters = kernel, directory, letters
        self._clock, self._log = clock, log
        self._at: dict[int, int] = {}  # wall ms of what an earlier host parked
        self._restore()

    def _restore(self) -> None:
        for number, parked in self._letters.all():
            key = parked.letter.key
            nobody: Waiter[Any] = self._clock.waiter(f"a parked letter of {key}")
            self._at[number] = parked.at
            mail = Deliver(parked.letter, nobody)
            self._kernel.admit_parked(self._directory.ref(key), mail, parked.error, number)

    # --- told by the kernel -------------------------------------------------------------------------

    def told(self, name: str, fields: dict[str, object]) -> None:
        """A kernel event. Its sender is told at once; a letter that isn't in the session's file is kept."""
        number = fields.get("number")
        if not isinstance(number, int):
            return
        if name == "actor.parked":
            for ward in self._kernel.parked():
                if ward.number == number:
                    self._parked(ward)
        elif name in ("actor.dropped", "actor.retried"):
            self._letters.forget(number)
            self._at.pop(number, None)

    def _parked(self, ward: Ward) -> None:
        mail = ward.message
        if not isinstance(mail, Mail):
            return
        acknowledged = isinstance(mail, Deliver) and mail.ack.done
        refuse(mail, Parked(f"{ward.key}: this broke the session and is parked: it was not accepted"))
        if isinstance(mail, Deliver) and not acknowledged:
            try:
                kept = ParkedLetter(mail.letter, shown(ward.error), self._clock.wall_ms())
                self._letters.put(ward.number, kept)
            except StorageFailed as error:  # it stays in memory; its sender knows that it wasn't accepted
                self._log.warning("parked.not_kept", session=ward.key, error=str(error))

    # --- for the operator ---------------------------------------------------------------------------

    def lines(self) -> list[dict[str, Any]]:
        """Number, session, kind of mail, error and when; never a message's text."""
        now, wall = self._clock.now(), self._clock.wall_ms()
        return [
            {
                "number": ward.number,
                "session": ward.key,
                "mail": kind_of(ward.message),
                "error": shown(ward.error),
                "at": self._at.get(ward.number) or wall - int((now - ward.at) * 1000),
                "whole": ward.whole,
            }
            for ward in self._kernel.parked()
        ]

    def quarantined(self) -> list[dict[str, Any]]:
        """Sessions that can't be opened, why, and when they are tried again."""
        return self._directory.quarantine.lines(self._clock.now())

    def retry(self, what: int | str) -> bool:
        """A parked message by its number, or a session by its key. False: nothing such is here."""
        if isinstance(what, int):
            return self._kernel.retry(what)
        if self._directory.quarantine.release(what):
            self._directory.ref(what).post(Wake())
            return True
        return False

    def drop(self, number: int) -> bool:
        """Forget a parked message for good. False: no such number."""
        return self._kernel.drop(number)

    def forget(self, key: str) -> None:
        """Drop all of a session that is deleted."""
        for ward in self._kernel.parked():
            if ward.key == key:
                self._kernel.drop(ward.number)


def kind_of(message: object) -> str:
    """What sort of mail it is, in the words of the mailbox."""
    if isinstance(message, Command):
        return f"command {message.name}"
    return type(message).__name__.lower()


def shown(error: str) -> str:
    """An error as it may be shown and kept: bounded, without secrets."""
    return redact(error)[:SHOWN]
