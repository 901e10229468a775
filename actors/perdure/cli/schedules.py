"""`perdure schedules list`, `add` and `remove`: by the session files, which are the truth."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from perdure.cli import folder as looking
from perdure.cli.output import emit, one_line, say, table, warn
from perdure.cli.owning import Shop, now_ms, owning
from perdure.edges.schedule import Timer
from perdure.edges.session import lines
from perdure.edges.session.files import Held
from perdure.edges.session.tail import open_session
from perdure.errors import PerdureError, UsageError
from perdure.hosting.scheduling import Scheduled, Wish, in_order
from perdure.looking.resolving import workspace
from perdure.looking.target import existing, find


def run_list(key: str | None, *, state: Path | None, as_json: bool) -> int:
    """Exit 1 where a file could not be read."""
    found: list[Scheduled] = []
    unread = 0
    for name, path in _files(key, state):
        try:
            found += in_order(name, open_session(path).timers, now_ms())
        except (PerdureError, OSError) as error:
            unread += 1
            warn(f"{name}: {error}")
    found.sort(key=lambda row: (row.next, row.key, row.id))
    if as_json:
        emit({"schedules": [row.line() for row in found], "unread": unread})
    else:
        _show(found)
    return int(bool(unread))


def _files(key: str | None, state: Path | None) -> Iterator[tuple[str, str]]:
    if key is not None:
        yield key, str(find(key, state).path)
        return
    for row in looking.rows(existing(state)):
        if row.key is not None:
            yield row.key, row.path


def _show(found: list[Scheduled]) -> None:
    if not found:
        say("nothing is scheduled")
        return
    rows: list[tuple[str, ...]] = [("next", "session", "id", "when", "message")]
    for row in found:
        due = datetime.fromtimestamp(row.next / 1000, UTC).isoformat(" ", "seconds")
        told = row.line()
        rows.append((due, row.key, row.id, str(told["when"]), one_line(row.timer.text, 60)))
    say(table(rows))


def run_add(wish: Wish, *, state: Path | None, as_json: bool) -> int:
    """Exit 0 where it stands in the session's file; the next host acts on it."""
    wish = replace(wish, id=wish.id or secrets.token_hex(4))
    timer = wish.timer(now_ms())
    with owning(state) as shop, _held(shop, wish.target) as held:
        most = shop.settings.timers.per_session
        if timer.id not in {t.id for t in held.opened.timers} and len(held.opened.timers) >= most:
            raise UsageError(f"{wish.target}: {most} timers are set already: take one away first")
        _write(held, timer)
    made = Scheduled(wish.target, timer)
    if as_json:
        emit(made.line() | {"done": True})
    else:
        say(f"{made.key}: {made.id}, {made.line()['when']}; acted on by the next host")
    return 0


def run_remove(key: str, id: str, *, state: Path | None, as_json: bool) -> int:
    """Exit 1 where there was none of that id."""
    find(key, state)
    with owning(state) as shop, _held(shop, key) as held:
        done = id in {timer.id for timer in held.opened.timers}
        if done:
            _write(held, None, id)
    if as_json:
        emit({"key": key, "id": id, "done": done})
    else:
        say(f"{key}: {id} is taken away" if done else f"{key}: no timer {id!r}")
    return int(not done)


@contextmanager
def _held(shop: Shop, key: str) -> Iterator[Held]:
    """The session's file, begun where there is none: a schedule may be a session's first line."""
    files, now = shop.files, now_ms()
    if files.exists(key):
        held = files.open(key, now)
    else:
        held = files.create(key, str(workspace(shop.settings, shop.folder, key)), now)
    try:
        yield held
    finally:
        held.close(handover=True)
        shop.changed.add(key)


def _write(held: Held, timer: Timer | None, *gone: str) -> None:
    opened, now = held.opened, now_ms()
    made = held.ids.entry(now)
    epoch = held.file.epoch
    held.file.append((lines.timer_line(made, opened.leaf, now, opened.session_id, epoch, timer, gone),))
