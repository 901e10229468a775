"""`perdure undo` and `perdure truncate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perdure.actors.undoing import told, undo
from perdure.cli.changing import figures, owned, report, session
from perdure.cli.output import emit, patience, say, size
from perdure.cli.owning import now_ms
from perdure.context.text.plural import counted
from perdure.context.tokens.estimator import estimator_of
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.session import branching, retention, rewrite
from perdure.edges.session.load import load as load_file
from perdure.edges.session.retention import Kept
from perdure.edges.session.tail import open_session
from perdure.looking.resolving import resolve


def run_undo(key: str, *, model: str | None, window: int | None, state: Path | None, as_json: bool) -> int:
    """Exit 0 if the compaction is undone, 1 if not."""
    patience(session(key, state).path)
    with owned(key, state) as desk:
        opened = desk.held.opened
        env = desk.environment(model, window)
        before = desk.figures(env)
        estimator = estimator_of(opened.learned, env.model.ref)
        done, measured = undo(desk.held, now_ms(), env, estimator)
        after = desk.figures(env)
        text = told(done, measured, env)
        desk.log("session.undo", session=key, done=done.done, text=text)
    if as_json:
        proof = {
            "compaction": done.compaction,
            "leaf": done.leaf,
            "restored": done.restored,
            "copied": dict(done.copied),
            "request_tokens": measured.tokens,
            "window": env.limits.window,
        }
        emit(report(key, done=done.done, reason=done.reason, before=before, after=after, proof=proof))
    else:
        say(text)
    return 0 if done.done else 1


# --- truncate -------------------------------------------------------------------------------------


def run_truncate(
    key: str, *, dry_run: bool, discard_segments: bool, state: Path | None, as_json: bool
) -> int:
    """Exit 0, also where there is nothing to move: the reason says it."""
    patience(session(key, state).path)
    found = _plan(key, state, discard=discard_segments) if dry_run else None
    found = found or (_discard if discard_segments else _truncate)(key, state)
    emit(found) if as_json else _show(found)
    return 0


def _truncate(key: str, state: Path | None) -> dict[str, Any]:
    with owned(key, state) as desk:
        held, now, env = desk.held, now_ms(), desk.environment()
        before = desk.figures(env)
        done = rewrite.truncate(held.file, lambda: held.ids.entry(now), now, sync=True)
        held.opened = open_session(held.file.path)
        if done.done:
            branching.checkpoint(held, now)
        desk.log("session.truncation", session=key, text=done.line())
        proof = _proof(done, retention.kept(held.file.path))
        return report(
            key, done=done.done, reason=done.reason, before=before, after=desk.figures(env), proof=proof
        ) | {"text": done.line()}


def _proof(done: rewrite.Truncated, kept: tuple[Kept, ...]) -> dict[str, Any]:
    return {
        "moved": done.moved,
        "segment": done.segment,
        "percent": round(done.percent, 1),
        "segments": [_listed(each) for each in kept],
    }


def _listed(segment: Kept) -> dict[str, Any]:
    return {
        "name": segment.name,
        "entries": segment.entries,
        "raw_bytes": segment.raw_bytes,
        "bytes": segment.bytes,
    }


def _discard(key: str, state: Path | None) -> dict[str, Any]:
    with owned(key, state) as desk:
        held, env = desk.held, desk.environment()
        before, doomed = desk.figures(env), retention.kept(desk.held.file.path)
        freed = retention.discard(held, doomed, now_ms())
        text = _lost(doomed)
        if doomed:
            desk.log.warning("session.discarded", session=key, text=text, bytes=freed)
        reason = "" if doomed else "no segment is kept"
        proof = {"discarded": [_listed(each) for each in doomed], "segments": [], "freed": freed}
        return report(
            key, done=bool(doomed), reason=reason, before=before, after=desk.figures(env), proof=proof
        ) | {"text": text}


def _lost(doomed: tuple[Kept, ...]) -> str:
    if not doomed:
        return "nothing discarded: no segment is kept"
    entries, count = sum(each.entries or 0 for each in doomed), sum(each.bytes for each in doomed)
    return (
        f"discarded for good: {counted(len(doomed), 'segment')} with {counted(entries, 'entry')}, "
        f"{count:,} bytes; these entries can't be read any more, and views that need them are refused"
    )


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
    proof: dict[str, Any] = {"moved": len(moved), "segments": [_listed(each) for each in kept]}
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
