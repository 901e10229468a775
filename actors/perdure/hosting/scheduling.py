"""Schedules as a program or a person sets them, and the timers' place in a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, TypeAlias

from msgspec.structs import replace

from perdure.actors.arguments import a_key
from perdure.actors.directory import Directory
from perdure.actors.timers import Timers, isolated
from perdure.actors.upkeep import Upkeep
from perdure.edges import schedule as times
from perdure.edges.schedule import Origin, Schedule, Timer
from perdure.edges.session.files import Listed
from perdure.edges.settings import Settings
from perdure.errors import UsageError
from perdure.records import Record

CatchUp: TypeAlias = Literal["once", "skip"]
MOST_CHARS = 20_000  # of a message: checkpoints carry it


class Scheduled(Record):
    """A timer and the session whose file it stands in. `next`: when it comes (wall ms)."""

    key: str
    timer: Timer

    @property
    def id(self) -> str:
        """Its name within the session."""
        return self.timer.id

    @property
    def next(self) -> int:
        """When it comes (wall ms)."""
        return self.timer.due

    def line(self) -> dict[str, object]:
        """As `--json` shows it."""
        timer = self.timer
        when = times.told(timer.schedule)
        return {
            "key": self.key, "id": timer.id, "kind": timer.kind, "when": when, "next": timer.due,
            "message": timer.text, "origin": timer.origin, "catch_up": timer.catch_up,
        }  # fmt: skip


class Wish(Record):
    """What somebody wants scheduled, as it was written."""

    key: str
    message: str
    every: str = ""
    cron: str = ""
    at: str = ""
    timezone: str = ""
    model: str = ""
    isolated: bool = False
    catch_up: CatchUp = "once"
    id: str = ""

    def _check(self) -> None:
        a_key(self.key)
        if not self.message.strip() or len(self.message) > MOST_CHARS:
            raise UsageError(f"a scheduled message has 1 to {MOST_CHARS:,} characters")
        if self.model and not self.isolated:
            raise UsageError("a model of its own needs a session of its own: isolated")
        if self.id.startswith("config:") or self.id == "resume" or len(self.id) > 128:
            raise UsageError(f"{self.id!r} can't be the id of a schedule: choose another")

    @property
    def target(self) -> str:
        """The session that gets it."""
        return isolated(self.key, self.id) if self.isolated else self.key

    def schedule(self, now: int, least: int = times.LEAST) -> Schedule:
        """When. Raises `ConfigError`."""
        return times.schedule(
            every=self.every, cron=self.cron, at=self.at, timezone=self.timezone, anchor=now, least=least
        )

    def timer(self, now: int, origin: Origin = "user") -> Timer:
        """The timer. Raises `UsageError`, `ConfigError` where it can't be, or would never come."""
        self._check()
        schedule = self.schedule(now)
        due = times.next_due(schedule, now)
        if due is None:
            raise UsageError(f"{self.at or self.cron}: that is over already")
        return Timer(self.id, schedule, due, text=self.message, origin=origin, catch_up=self.catch_up)


def in_order(key: str, timers: Iterable[Timer], now: int) -> tuple[Scheduled, ...]:
    """The next first; those that never come again are left out."""
    found = [(times.due_of(timer, now), timer) for timer in timers]
    rows = [Scheduled(key, replace(timer, due=due)) for due, timer in found if due is not None]
    return tuple(sorted(rows, key=lambda row: (row.timer.due, row.timer.id)))


def begin_timers(
    timers: Timers,
    upkeep: Upkeep,
    directory: Directory,
    settings: Settings,
    files: Callable[[], Iterable[Listed]],
) -> None:
    """From now on what is due is told to its session."""
    upkeep.on_stored = lambda earliest, keys: timers.stored(earliest, keys, directory.awake)
    timers.begin(settings, directory.ring, directory.beat, files)
