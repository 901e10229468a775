"""What becomes of a session whose file is in our hands: the same from a command and from the HTTP API.

All of it blocks. `proof` says what the change did, in the words of the commands' JSON.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.actors.undoing import told
from perdure.actors.undoing import undo as undo_compaction
from perdure.context.environment import Environment
from perdure.context.text.plural import counted
from perdure.context.tokens.estimator import estimator_of
from perdure.edges.session import branching, retention, rewrite
from perdure.edges.session.branching import Branched
from perdure.edges.session.files import Held
from perdure.edges.session.load import load
from perdure.edges.session.retention import Kept
from perdure.edges.session.tail import open_session
from perdure.records import Record


class Change(Record):
    """Whether it was done, or why not; `text` for a person; `leaf`: where the session stands now."""

    done: bool
    reason: str = ""
    text: str = ""
    leaf: str | None = None
    proof: dict[str, Any] = msgspec.field(default_factory=dict)


def undo(held: Held, now_ms: int, env: Environment) -> Change:
    """Take the latest compaction back, if the result fits."""
    done, measured = undo_compaction(held, now_ms, env, estimator_of(held.opened.learned, env.model.ref))
    proof = {
        "compaction": done.compaction,
        "leaf": done.leaf,
        "restored": done.restored,
        "copied": dict(done.copied),
        "request_tokens": measured.tokens,
        "window": env.limits.window,
    }
    return Change(done.done, done.reason, told(done, measured, env), done.leaf, proof)


def truncate(held: Held, now_ms: int, *, sync: bool) -> Change:
    """Move what compactions cover into a segment beside the file."""
    done = rewrite.truncate(held.file, lambda: held.ids.entry(now_ms), now_ms, sync=sync)
    held.opened = open_session(held.file.path)
    if done.done:
        branching.checkpoint(held, now_ms)
    proof = {
        "moved": done.moved,
        "segment": done.segment,
        "percent": round(done.percent, 1),
        "segments": [listed(each) for each in retention.kept(held.file.path)],
    }
    return Change(done.done, done.reason, done.line(), held.opened.leaf, proof)


def discard(held: Held, now_ms: int) -> Change:
    """Delete for good what earlier truncations moved out."""
    doomed = retention.kept(held.file.path)
    freed = retention.discard(held, doomed, now_ms)
    proof = {"discarded": [listed(each) for each in doomed], "segments": [], "freed": freed}
    reason = "" if doomed else "no segment is kept"
    return Change(bool(doomed), reason, _lost(doomed), held.opened.leaf, proof)


def _lost(doomed: tuple[Kept, ...]) -> str:
    if not doomed:
        return "nothing discarded: no segment is kept"
    entries, count = sum(each.entries or 0 for each in doomed), sum(each.bytes for each in doomed)
    return (
        f"discarded for good: {counted(len(doomed), 'segment')} with {counted(entries, 'entry')}, "
        f"{count:,} bytes; these entries can't be read any more, and views that need them are refused"
    )


def listed(segment: Kept) -> dict[str, Any]:
    """A segment as the commands' JSON shows it."""
    return {
        "name": segment.name,
        "entries": segment.entries,
        "raw_bytes": segment.raw_bytes,
        "bytes": segment.bytes,
    }


def switch(held: Held, entry: str, now_ms: int) -> Change:
    """Go on behind another entry."""
    done = branching.switch(held, entry, now_ms)
    shown = len(held.opened.items)
    back = f", {counted(done.restored, 'entry')} brought back from segments" if done.restored else ""
    text = f"now at {done.leaf}: {counted(shown, 'message')} in view{back}"
    return _branched(done, text, messages=shown, restored=done.restored)


def label(held: Held, entry: str, text: str, now_ms: int) -> Change:
    """Name an entry; an empty text takes the name away."""
    target = branching.find(load(held.file.path), entry)
    done = branching.label(held, target, text, now_ms)
    said = f"{target} is labelled {text!r}" if text else f"{target} has no label any more"
    return _branched(done, said, entry=target, label=text)


def rename(held: Held, name: str, now_ms: int) -> Change:
    """Name the session."""
    return _branched(branching.rename(held, name, now_ms), f"called {name!r}", name=name)


def _branched(done: Branched, text: str, **proof: Any) -> Change:
    return Change(done.done, done.reason, text if done.done else done.reason, done.leaf, proof)
