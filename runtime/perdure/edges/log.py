"""The runtime log: JSON lines with stable event names in `<state>/runtime.log`, bounded and redacted.

A library doesn't touch its program's global logging: `open_log` returns a logger of its own. Events are
named `noun.verb` and never renamed; what varies goes into fields. Whatever a field holds, no secret
shape and no secret-named field reaches the file, and nothing that goes wrong here harms a turn.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars

from perdure.context.text.secrets import REDACTED, is_secret_name, redact
from perdure.edges.log_events import EVENTS, grade
from perdure.kernel.jobs import running

MAX_TEXT = 8_192  # of one field; the log tells what happened, not what was said
MAX_QUOTED = 1_000  # of what somebody else's exception says
QUOTED = frozenset({"error", "outcome", "why", "problem"})
LONGEST_SECRET = 4_096
MAX_ITEMS = 100
MAX_DEPTH = 6
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 50}

UNLISTED = "log.unlisted"

Event = MutableMapping[str, Any]


class RotatingFile:
    """Appends whole lines; at `max_bytes` the file becomes `.1`, the oldest of `keep` goes.

    Failures (a full disk) are counted, not raised: a log must not take a turn with it.
    """

    def __init__(self, path: str | Path, max_bytes: int, keep: int) -> None:
        self._path, self._max, self._keep = str(path), max_bytes, keep
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._size = 0
        self.dropped = 0

    def limit(self, max_bytes: int, keep: int) -> None:
        """Other bounds from the next line on."""
        self._max, self._keep = max_bytes, keep

    def write(self, line: bytes) -> None:
        """One line with its newline, in one unbuffered write."""
        with self._lock:
            try:
                if self._descriptor is None:
                    self._open()
                elif self._size + len(line) > self._max and self._size:
                    self._rotate()
                assert self._descriptor is not None
                self._size += os.write(self._descriptor, line)
            except OSError:
                self.dropped += 1

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        with self._lock:
            self._close()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _rotate(self) -> None:
        self._close()
        if self._keep == 0:
            os.unlink(self._path)
        for n in range(self._keep, 0, -1):
            source = self._path if n == 1 else f"{self._path}.{n - 1}"
            if os.path.exists(source):
                os.replace(source, f"{self._path}.{n}")
        self._open()


class Log:
    """A logger bound to fields. Methods take an event name and fields; none of them raises.

    `counts`: how often each listed event came, whatever the level; other names count as `log.unlisted`.
    """

    def __init__(
        self, logger: Any, sink: RotatingFile | None = None, counts: Counter[str] | None = None
    ) -> None:
        self._logger, self._sink = logger, sink
        self.counts: Counter[str] = Counter() if counts is None else counts

    def bind(self, **fields: Any) -> Log:
        """A log whose events all carry `fields` (session, turn, worker)."""
        return Log(self._logger.bind(**fields), self._sink, self.counts)

    def debug(self, event: str, **fields: Any) -> None:
        """For who reads the code beside the log."""
        self.counts[event if event in EVENTS else UNLISTED] += 1
        self._logger.debug(event, **fields)

    def info(self, event: str, **fields: Any) -> None:
        """What happened."""
        self.counts[event if event in EVENTS else UNLISTED] += 1
        self._logger.info(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What an operator should look at some day."""
        self.counts[event if event in EVENTS else UNLISTED] += 1
        self._logger.warning(event, **fields)

    def error(self, event: str, **fields: Any) -> None:
        """What an operator should look at now."""
        self.counts[event if event in EVENTS else UNLISTED] += 1
        self._logger.error(event, **fields)

    def graded(self, event: str, **fields: Any) -> None:
        """At the level that the list of events gives it, for names that are put together."""
        {"error": self.error, "warning": self.warning, "note": self.info}[grade(event)](event, **fields)

    def __call__(self, event: str, **fields: Any) -> None:
        self.info(event, **fields)

    @property
    def dropped(self) -> int:
        """Lines that could not be written."""
        return self._sink.dropped if self._sink is not None else 0

    def adjust(self, level: str, max_mb: int, keep: int) -> None:
        """Another level, size and number of old files, for this log (not for those bound before)."""
        make = structlog.make_filtering_bound_logger(LEVELS[level])
        self._logger = structlog.wrap_logger(
            self._logger._logger, self._logger._processors, make, dict, False
        ).bind()
        if self._sink is not None:
            self._sink.limit(max_mb << 20, keep)

    def close(self) -> None:
        """Close the file."""
        if self._sink is not None:
            self._sink.close()


def open_log(
    path: str | Path,
    *,
    level: str = "info",
    max_mb: int = 16,
    keep: int = 3,
    wall_ms: Callable[[], int] | None = None,
) -> Log:
    """A log in `path`. `wall_ms` is the kernel clock's: without it lines carry no time."""
    sink = RotatingFile(path, max_mb << 20, keep)
    return Log(_logger(sink.write, LEVELS[level], wall_ms), sink)


def memory_log(lines: list[bytes], *, level: str = "debug", wall_ms: Callable[[], int] | None = None) -> Log:
    """A log for tests and replay: encoded lines are appended to `lines`."""
    return Log(_logger(lines.append, LEVELS[level], wall_ms))


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """All events of this task (and those it starts) carry `fields` meanwhile."""
    with bound_contextvars(**fields):
        yield


def _logger(write: Callable[[bytes], None], level: int, wall_ms: Callable[[], int] | None) -> Any:
    def stamp(_logger: Any, _method: str, event: Event) -> Event:
        if wall_ms is not None:
            event["ts"] = wall_ms()
        return event

    return structlog.wrap_logger(
        _Sink(write),
        processors=[merge_contextvars, acting, structlog.processors.add_log_level, stamp, redacted, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        context_class=dict,
        cache_logger_on_first_use=False,
    ).bind()


def acting(_logger: Any, _method: str, event: Event) -> Event:
    """The structlog processor: whose work logs, from the key of the job that does it.

    `SESSION#TURN…` is a turn, `SESSION#work` another job of the session, `POOL:SESSION` a worker.
    """
    job = running.get()
    if not job:
        return event
    whose, _, what = job.partition("#")
    pool, colon, key = whose.partition(":")
    if colon and pool != "agent":
        event.setdefault("worker", pool)
        whose = key
    elif what[:1].isdigit():
        event.setdefault("turn", int(what.partition("/")[0].partition(".")[0]))
    elif what:
        event.setdefault("job", what)
    if colon:
        event.setdefault("session", whose)
    return event


class _Sink:
    """What structlog calls at the end, whatever the level's name."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def msg(self, line: bytes) -> None:
        self._write(line)

    debug = info = warning = error = critical = exception = msg


def redacted(_logger: Any, _method: str, event: Event) -> Event:
    """The structlog processor: secrets go by name and by shape, long values are cut."""
    return {
        _text(str(key)): (
            value if key in ("ts", "level") else REDACTED if _hides(key, value) else _field(key, value)
        )
        for key, value in event.items()
    }


def _field(key: str, value: Any) -> Any:
    """What a tool or an SDK says of its failure may quote anything, at any length: less of it is kept."""
    found = safe(value)
    if key in QUOTED and isinstance(found, str) and len(found) > MAX_QUOTED:
        return found[:MAX_QUOTED] + "…"
    return found


def safe(value: Any, depth: int = 0) -> Any:
    """A value as it may be logged: bounded, JSON-ready, without secrets."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, msgspec.Struct):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {_text(str(k)): REDACTED if _hides(k, v) else safe(v, depth + 1) for k, v in items}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else list(value)
        return [safe(item, depth + 1) for item in items[:MAX_ITEMS]]
    if isinstance(value, bytes | bytearray):
        return _text(bytes(value[: MAX_TEXT * 2]).decode("utf-8", "replace"))
    return _text(value if isinstance(value, str) else _repr(value))


def _hides(key: object, value: Any) -> bool:
    """A secret-named field is hidden unless it only counts (`token: 3`) or is empty."""
    return isinstance(key, str) and is_secret_name(key) and not isinstance(value, bool | int | float | None)


def _text(text: str) -> str:
    """Redacted first and cut then: the cut must not leave half a secret that no longer looks like one."""
    whole = len(text) <= MAX_TEXT * 4
    text = redact(text[: MAX_TEXT * 4])
    if not whole:  # what ends where we looked no further may be half of one
        text = text[:-LONGEST_SECRET]
    if len(text) > MAX_TEXT:
        text = text[:MAX_TEXT] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _repr(value: Any) -> str:
    try:
        return repr(value) if not isinstance(value, Path) else str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def render(_logger: Any, _method: str, event: Event) -> bytes:
    """One JSON line: time, level and event first, then the fields as they came."""
    first = {key: event.pop(key) for key in ("ts", "level", "event") if key in event}
    return msgspec.json.encode({**first, **event}) + b"\n"
