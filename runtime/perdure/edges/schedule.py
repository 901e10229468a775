"""When a timer comes: every so often, by a cron expression in a time zone, or once. Pure: now is an argument.

The next instant is computed from now, never from the last run, so that it is always in the future and what
was missed is missed once, however long the host stood still. Daylight saving is as Debian's cron has it
(`cronsim`): a local time that the clocks skip runs right after the gap, one that comes twice runs once.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec.structs import replace

from perdure.errors import ConfigError
from perdure.records import Record

MINUTE: Final = 60_000
DAY: Final = 86_400_000  # a clock set back by less repeats nothing; one set back further was wrong before
LEAST: Final = MINUTE  # between two instants of one schedule
LATEST: Final = 253_402_300_799_000  # the end of the year 9999
_UNITS: Final = {"ms": 1, "s": 1_000, "m": MINUTE, "h": 60 * MINUTE, "d": DAY}
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)", re.IGNORECASE)
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})")

Origin: TypeAlias = Literal["config", "user", "agent", "host"]


class Schedule(Record):
    """One of three: `every` so many ms, counted from `anchor`; `cron` in `zone`; once, `at` (wall ms)."""

    every: int = 0
    anchor: int = 0
    cron: str = ""
    zone: str = "UTC"
    at: int = 0


class Timer(Record):
    """One timer of a session, as it stands in its file.

    `due`: the next instant (wall ms). `fired`: the instant that was acted on last, at the wall time `acted`;
    a `due` that is not later than it is out of date. `message` timers send `text` as a letter, `resume` ones
    take up a turn that a provider told to wait. `catch_up`: whether an instant that was missed is made up
    for, once. `tries`: how often in a row a provider has said so.
    """

    id: str
    schedule: Schedule
    due: int
    kind: Literal["message", "resume"] = "message"
    text: str = ""
    origin: Origin = "user"
    catch_up: Literal["once", "skip"] = "once"
    fired: int = 0
    acted: int = 0
    tries: int = 0


# --- what people write ----------------------------------------------------------------------------


def duration(text: str) -> int:
    """`30m`, `1h30m`, `90 s` in ms. Raises `ConfigError`."""
    parts = list(_DURATION.finditer(text.strip()))
    if not parts or _DURATION.sub("", text).strip():
        raise ConfigError(f"{text!r} is no duration: write it as 30m, 4h or 1d12h")
    return sum(int(part[1]) * _UNITS[part[2].lower()] for part in parts)


def zone(name: str) -> tzinfo:
    """A time zone by its IANA name; UTC needs no database. Raises `ConfigError`."""
    if name in ("", "UTC"):
        return UTC
    try:
        return _zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:
        _zone("Europe/London")
    except (ZoneInfoNotFoundError, OSError):
        raise ConfigError(
            f"time zone {name!r}: this machine has no time zone database: install the package tzdata "
            "(of the system, or `pip install tzdata`), or use UTC"
        ) from None
    raise ConfigError(f"{name!r} is no time zone: use an IANA name such as Europe/Berlin, or UTC")


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def instant(text: str, name: str = "UTC") -> int:
    """An ISO 8601 time in wall ms; without an offset it is local to the zone. Raises `ConfigError`."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(f"{text!r} is no time: write it as 2026-03-29T08:00 or with an offset") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=zone(name))
    try:
        return int(found.timestamp() * 1000)
    except (OverflowError, ValueError):
        raise ConfigError(f"{text!r} is out of range") from None


def schedule(
    *, every: str = "", cron: str = "", at: str = "", timezone: str = "", anchor: int = 0, least: int = LEAST
) -> Schedule:
    """What was written, checked. `least`: ms between two instants. Raises `ConfigError`."""
    if sum(map(bool, (every, cron, at))) != 1:
        raise ConfigError("a schedule needs exactly one of every, cron and at")
    name = timezone or "UTC"
    zone(name)
    if at:
        return Schedule(at=instant(at, name), zone=name)
    if every:
        found = Schedule(every=duration(every), anchor=anchor)
        if found.every > LATEST:
            raise ConfigError(f"every {every}: that is too long")
    else:
        found = Schedule(cron=" ".join(cron.split()), zone=name)
    if (gap := _shortest(found, anchor)) < least:
        told = every or cron
        raise ConfigError(f"{told!r} comes every {gap / 1000:g} s: at least {least / 1000:g} s apart, please")
    return found


def _shortest(found: Schedule, now: int) -> int:
    """The least time between two of the next instants; a schedule that never comes is refused."""
    if found.every or not found.cron:
        return found.every
    instants: list[int] = []
    for _ in range(24):
        after = next_due(found, instants[-1] if instants else now)
        if after is None:
            break
        instants.append(after)
    if not instants:
        raise ConfigError(f"cron {found.cron!r} never comes")
    return min((b - a for a, b in pairwise(instants)), default=LATEST)


def told(found: Schedule) -> str:
    """In words, for a list."""
    if found.cron:
        return f"{found.cron} ({found.zone})"
    if found.at:
        return f"once at {datetime.fromtimestamp(found.at / 1000, UTC).isoformat(timespec='seconds')}"
    left, words = found.every, []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, _UNITS[unit])
        words += [f"{count}{unit}"] if count else []
    return f"every {' '.join(words)}"


# --- the next instant -----------------------------------------------------------------------------


def next_due(found: Schedule, now: int, fired: int = 0) -> int | None:
    """The first instant after `now`, and after `fired`, the last one acted on; `None`: it never comes again.

    So a clock that was set back repeats nothing. Where it was set back by more than a day, the time before
    was the wrong one, and `fired` says nothing.
    """
    after = max(now, fired) if fired - now <= DAY else now
    if found.at:
        return found.at if found.at > after and not fired else None
    if found.every:
        return found.anchor + ((after - found.anchor) // found.every + 1) * found.every
    return _next_cron(found, after)


def _next_cron(found: Schedule, after: int) -> int | None:
    try:
        times = CronSim(found.cron, datetime.fromtimestamp(after // 1000, zone(found.zone)))
    except CronSimError as error:
        raise ConfigError(f"cron {found.cron!r}: {error}: five fields, as in 30 8 * * 1-5") from None
    except (OverflowError, ValueError, OSError):
        return None
    if len(found.cron.split()) != 5:
        raise ConfigError(f"cron {found.cron!r}: five fields are needed, as in 30 8 * * 1-5")
    try:
        for time in times:  # in the hour that comes twice the first answer may lie behind
            if (ms := int(time.timestamp()) * 1000) > after:
                return ms
    except (OverflowError, ValueError):
        pass
    return None


def due_of(timer: Timer, now: int) -> int | None:
    """When the timer comes: as it was written down, unless that was acted on or the clock was wrong then."""
    due: int | None = timer.due
    if timer.due <= timer.fired:
        due = next_due(timer.schedule, timer.acted or timer.fired, timer.fired)
    if due is not None and due - now > DAY and not timer.schedule.at:
        fresh = next_due(timer.schedule, now, timer.fired)
        return due if fresh is None else min(due, fresh)
    return due


def came(timer: Timer, due: int, now: int) -> Timer:
    """The timer after its instant `due` was acted on; `due_of` tells the next."""
    return replace(timer, fired=due, acted=now)


# --- heartbeats: a grid of their own --------------------------------------------------------------


def phase(key: str, every: int) -> int:
    """Where in the interval this session's instants lie: by its key, so that many are spread evenly."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()) % every


class Hours(Record):
    """Hours of the day, in minutes since midnight in `zone`; an end before the start is the next day's."""

    start: int
    end: int
    zone: str = "UTC"

    @property
    def minutes(self) -> int:
        """How long they are."""
        return (self.end - self.start) % 1440 or 1440


def hours(text: str, timezone: str = "") -> Hours | None:
    """`08:00-22:00`; empty is all day. Raises `ConfigError`."""
    if not text.strip():
        return None
    zone(timezone)
    start, _, end = text.partition("-")
    found = [_CLOCK.fullmatch(side.strip()) for side in (start, end)]
    times = [int(m[1]) * 60 + int(m[2]) if m and int(m[2]) < 60 else -1 for m in found]
    if not (0 <= times[0] < 1440 and 0 <= times[1] <= 1440) or times[0] == times[1]:
        raise ConfigError(f"{text!r} are no hours of a day: write them as 08:00-22:00")
    return Hours(times[0], times[1] % 1440, timezone or "UTC")


def next_beat(key: str, every: int, active: Hours | None, now: int) -> int:
    """The session's next heartbeat after `now`, within its active hours."""
    anchor = phase(key, every)
    beat = anchor + ((now - anchor) // every + 1) * every
    if active is None or _open(active, beat):
        return beat
    opening = _opening(active, beat)
    first = anchor + -((anchor - opening) // every) * every
    if _open(active, first):
        return first
    return opening + anchor % min(every, active.minutes * MINUTE)


def _local(ms: int, name: str) -> datetime:
    return datetime.fromtimestamp(ms / 1000, zone(name))


def _open(active: Hours, ms: int) -> bool:
    local = _local(ms, active.zone)
    return (local.hour * 60 + local.minute - active.start) % 1440 < active.minutes


def _opening(active: Hours, ms: int) -> int:
    """The next time the hours begin; a beginning that the clocks skip is the end of the gap."""
    local = _local(ms, active.zone)
    day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for ahead in range(3):
        wall = day + timedelta(days=ahead, minutes=active.start)
        opening = int(wall.replace(tzinfo=zone(active.zone)).timestamp() * 1000)
        if opening >= ms:
            return opening
    return ms
