"""What a session records beside its conversation: lines off the chain, whose parent is the leaf, unmoved."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from msgspec.structs import replace

from perdure.contracts import Ack
from perdure.edges.schedule import Timer
from perdure.edges.session import lines
from perdure.edges.session.facts import NEVER, Delivered, Outgoing, Settings
from perdure.edges.session.fold import settle
from perdure.edges.session.kin import Fact, Relatives, taken
from perdure.edges.session.writer import LocalSessionFile
from perdure.records import PinKind, Pinned


class OffChain:
    """Part of the transcript: pins, timers, deliveries, subagents, and turns that were taken up."""

    file: LocalSessionFile
    session_id: str
    pins: tuple[Pinned, ...]
    timers: dict[str, Timer]
    outgoing: dict[str, Outgoing]
    settings: Settings
    delivered: dict[str, str]
    relatives: Relatives
    _wall_ms: Callable[[], int]
    _resumed: tuple[tuple[str, int], ...]

    @abstractmethod
    def _new_id(self) -> str: ...
    @abstractmethod
    def _write(self, make: Callable[[str | None], bytes]) -> tuple[Ack, int]: ...

    def kin(self, fact: Fact) -> None:
        """A subagent begins, or has ended, or has told its parent."""
        made, now, (name, epoch) = self._new_id(), self._wall_ms(), (self.session_id, self.file.epoch)
        self._write(lambda leaf: lines.child_line(made, leaf, now, name, epoch, fact))
        self.relatives = taken(self.relatives, fact)

    def never_resume(self, entry: str) -> None:
        """Note that nobody waits for an answer to `entry`."""
        made, now = self._new_id(), self._wall_ms()
        self._write(lambda leaf: lines.resume_line(made, leaf, now, entry, self.file.epoch, never=True))
        self._resumed = (*self._resumed, (entry, NEVER))

    def mark_resumed(self, entry: str) -> None:
        """Note that the interrupted turn behind `entry` is taken up under this epoch."""
        made, now = self._new_id(), self._wall_ms()
        self._write(lambda leaf: lines.resume_line(made, leaf, now, entry, self.file.epoch))

    def delivering(self, outgoing: Outgoing) -> None:
        """Record where the delivery of an answer stands."""
        made, now = self._new_id(), self._wall_ms()
        session, epoch = self.session_id, self.file.epoch
        self._write(lambda leaf: lines.outbox_line(made, leaf, now, outgoing, session, epoch))
        settle(self.outgoing, outgoing)

    def pin(self, text: str, kind: PinKind, source: str = "") -> Pinned:
        """Pin a text: it stands in every request from the next one on."""
        made, now = self._new_id(), self._wall_ms()
        pin = Pinned(made, text, kind, source)
        self._write(lambda leaf: lines.pin_line(made, leaf, now, pin, self.file.epoch))
        self.pins = (*self.pins, pin)
        return pin

    def unpin(self, gone: tuple[str, ...]) -> None:
        """Take pins away, by their ids."""
        made, now = self._new_id(), self._wall_ms()
        self._write(lambda leaf: lines.unpin_line(made, leaf, now, gone, self.file.epoch))
        self.pins = tuple(pin for pin in self.pins if pin.id not in gone)

    def choose_engine(self, name: str) -> None:
        """Record which engine the session goes on with ("": the slot's)."""
        made, now, (id, epoch) = self._new_id(), self._wall_ms(), (self.session_id, self.file.epoch)
        self._write(lambda leaf: lines.engine_line(made, leaf, now, id, epoch, chosen=name))
        self.settings = replace(self.settings, engine=name or None)

    def told_engine(self, told: Delivered) -> None:
        """Record how far an engine without a cursor of its own has been told."""
        made, now, (id, epoch) = self._new_id(), self._wall_ms(), (self.session_id, self.file.epoch)
        self._write(lambda leaf: lines.engine_line(made, leaf, now, id, epoch, told=told))
        self.delivered[told.engine] = told.entry

    def set_timer(self, timer: Timer | None, *gone: str) -> None:
        """Set a timer, or take others away."""
        made, now, (name, epoch) = self._new_id(), self._wall_ms(), (self.session_id, self.file.epoch)
        self._write(lambda leaf: lines.timer_line(made, leaf, now, name, epoch, timer, gone))
        self.timers.update({timer.id: timer} if timer is not None else {})
        for each in gone:
            self.timers.pop(each, None)
