"""`perdure sessions switch`, `label`, `rename` and `fork`: one session's branches, names and copies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perdure.actors.arguments import a_key
from perdure.cli.changing import owned, session
from perdure.cli.output import emit, one_line, patience, say
from perdure.cli.owning import now_ms
from perdure.context.text.plural import counted
from perdure.edges.session import branching
from perdure.edges.session.branching import Branched
from perdure.edges.session.fork import fork
from perdure.edges.session.load import load
from perdure.errors import UsageError


def run_switch(key: str, entry: str, *, state: Path | None, as_json: bool) -> int:
    """Go on behind another entry. Exit 0, also where the session stands there already."""
    patience(session(key, state).path)
    with owned(key, state) as desk:
        done = branching.switch(desk.held, entry, now_ms())
        shown = len(desk.held.opened.items)
        desk.log("session.switch", session=key, leaf=done.leaf, restored=done.restored)
    back = f", {counted(done.restored, 'entry')} brought back from segments" if done.restored else ""
    text = f"now at {done.leaf}: {counted(shown, 'message')} in view{back}" if done.done else done.reason
    return _tell(key, done, text, as_json, messages=shown, restored=done.restored)


def run_label(key: str, entry: str, text: str, *, state: Path | None, as_json: bool) -> int:
    """Name an entry; an empty text takes the name away."""
    name = " ".join(text.split())
    with owned(key, state) as desk:
        target = branching.find(load(desk.held.file.path), entry)
        done = branching.label(desk.held, target, name, now_ms())
        desk.log("session.label", session=key, entry=target)
    said = f"{target} is labelled {one_line(name)!r}" if name else f"{target} has no label any more"
    return _tell(key, done, said if done.done else done.reason, as_json, entry=target, label=name)


def run_rename(key: str, name: str, *, state: Path | None, as_json: bool) -> int:
    """Name the session."""
    name = " ".join(name.split())
    if not name:
        raise UsageError("the name is empty: give it some text")
    with owned(key, state) as desk:
        done = branching.rename(desk.held, name, now_ms())
        desk.log("session.rename", session=key)
    return _tell(key, done, f"called {one_line(name)!r}" if done.done else done.reason, as_json, name=name)


def run_fork(key: str, entry: str | None, *, new_key: str, state: Path | None, as_json: bool) -> int:
    """Make a session of the path to an entry (default: where the session stands)."""
    a_key(new_key)
    patience(session(key, state).path)
    with owned(key, state) as desk:
        source = load(desk.held.file.path)
        leaf = branching.find(source, entry) if entry is not None else desk.held.opened.leaf
        if leaf is None:
            raise UsageError(f"{key}: nothing was said yet: there is nothing to fork")
        made = fork(desk.files, source, leaf, new_key, desk.held.file.epoch, now_ms(), sync=True)
        desk.log("session.fork", session=key, leaf=leaf, made=new_key)
        desk.shop.changed.add(new_key)
    done = Branched(True, leaf=leaf)
    count = load(made).count
    text = f"{new_key}: forked at {leaf}, {counted(count, 'entry')} in {made}"
    return _tell(key, done, text, as_json, made={"key": new_key, "file": os.fspath(made), "entries": count})


def _tell(key: str, done: Branched, text: str, as_json: bool, **more: Any) -> int:
    if as_json:
        emit({"key": key, "done": done.done, "reason": done.reason, "leaf": done.leaf} | more)
    else:
        say(text if text.startswith(key) else f"{key}: {text}")
    return 0
