"""`perdure undo` and `perdure truncate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perdure.actors.changed import listed
from perdure.cli.changing import figures, report, session
from perdure.cli.desks import Sized, changes
from perdure.cli.output import emit, patience, say, size
from perdure.context.text.plural import counted
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.session import retention, rewrite
from perdure.edges.session.load import load as load_file
from perdure.edges.session.tail import open_session
from perdure.looking.resolving import resolve


def run_undo(key: str, *, model: str | None, window: int | None, state: Path | None, as_json: bool) -> int:
    """Exit 0 if the compaction is undone, 1 if not."""
    patience(session(key, state).path)
    done = changes(key, state).undo(model, window)
    emit(_report(key, done)) if as_json else say(done.change.text)
    return 0 if done.change.done else 1


def _report(key: str, done: Sized) -> dict[str, Any]:
    told = done.change
    return report(
        key, done=told.done, reason=told.reason, before=done.before, after=done.after, proof=told.proof
    )


# --- truncate -------------------------------------------------------------------------------------


def run_truncate(
    key: str, *, dry_run: bool, discard_segments: bool, state: Path | None, as_json: bool
) -> int:
    """Exit 0, also where there is nothing to move: the reason says it."""
    patience(session(key, state).path)
    if dry_run:
        found = _plan(key, state, discard=discard_segments)
    else:
        done = changes(key, state).truncate(discard=discard_segments)
        found = _report(key, done) | {"text": done.change.text}
    emit(found) if as_json else _show(found)
    return 0


def _plan(key: str, state: Path | None, *, discard: bool) -> dict[str, Any]:
    """What would be done. Nothing is locked or changed."""
    target, folder = session(key, state), state_folder.state_folder(state)
    opened, loaded = open_session(target.path), load_file(target.path)
    env, _ = resolve(target, opened, load(state=folder.root), folder)
    before, kept = figures(opened, env), retention.kept(target.path)
    plan = rewrite.planned(loaded)
    moved = [loaded.nodes[at] for at in plan.moved]
    leaving = sum(node.end - node.start + 1 for node in moved)
    after = before | {"entries": before["entries"] - len(moved), "bytes": before["bytes"] - leaving}
    proof: dict[str, Any] = {"moved": len(moved), "segments": [listed(each) for each in kept]}
    text = f"would move {counted(len(moved), 'entry')}, about {size(leaving)}, into a segment"
    reason = plan.reason
    if discard:
        after, reason = before, "" if kept else "no segment is kept"
        proof = {"discarded": [], "segments": proof["segments"]}
        count = sum(each.bytes for each in kept)
        text = f"would discard for good {counted(len(kept), 'segment')}, {size(count)}"
    elif plan.reason:
        text = f"nothing to move: {plan.reason}"
    more = {"dry_run": True, "text": text}
    return (
        report(key, done=False, reason=reason or "a dry run", before=before, after=after, proof=proof) | more
    )


def _show(found: dict[str, Any]) -> None:
    say(f"{found['key']}: {found['text']}")
    for segment in found["proof"]["segments"]:
        count = "damaged" if segment["entries"] is None else counted(segment["entries"], "entry")
        say(f"  segment {os.fspath(segment['name'])}, {count}, {size(segment['bytes'])}")
