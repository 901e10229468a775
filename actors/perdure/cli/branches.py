"""`perdure sessions switch`, `label`, `rename` and `fork`: one session's branches, names and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.actors.arguments import a_key
from perdure.actors.changed import Change
from perdure.cli.changing import session
from perdure.cli.desks import changes
from perdure.cli.output import emit, one_line, patience, say
from perdure.context.text.plural import counted
from perdure.errors import UsageError


def run_switch(key: str, entry: str, *, state: Path | None, as_json: bool) -> int:
    """Go on behind another entry. Exit 0, also where the session stands there already."""
    patience(session(key, state).path)
    return _tell(key, changes(key, state).switch(entry), as_json)


def run_label(key: str, entry: str, text: str, *, state: Path | None, as_json: bool) -> int:
    """Name an entry; an empty text takes the name away."""
    return _tell(key, changes(key, state).label(entry, " ".join(text.split())), as_json)


def run_rename(key: str, name: str, *, state: Path | None, as_json: bool) -> int:
    """Name the session."""
    name = " ".join(name.split())
    if not name:
        raise UsageError("the name is empty: give it some text")
    return _tell(key, changes(key, state).rename(name), as_json)


def run_fork(key: str, entry: str | None, *, new_key: str, state: Path | None, as_json: bool) -> int:
    """Make a session of the path to an entry (default: where the session stands)."""
    a_key(new_key)
    patience(session(key, state).path)
    done = changes(key, state).fork(entry, new_key)
    made = done.proof
    if as_json:
        emit(_line(key, done) | {"made": made})
    else:
        say(f"{new_key}: forked at {done.leaf}, {counted(made['entries'], 'entry')} in {made['file']}")
    return 0


def _tell(key: str, done: Change, as_json: bool) -> int:
    if as_json:
        emit(_line(key, done) | done.proof)
    else:
        text = done.text if done.done else done.reason
        say(one_line(text if text.startswith(key) else f"{key}: {text}", 2_000))
    return 0


def _line(key: str, done: Change) -> dict[str, Any]:
    return {"key": key, "done": done.done, "reason": done.reason, "leaf": done.leaf}
