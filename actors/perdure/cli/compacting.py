"""`perdure compact`: make the summary now, or (`--preview`) show what it would be and store nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from perdure.actors.previewing import Previewed
from perdure.cli.changing import figures, report, session
from perdure.cli.desks import decided, read_settings
from perdure.cli.output import emit, patience, say, table
from perdure.cli.remote.address import running
from perdure.cli.remote.client import LONG, Remote
from perdure.cli.remote.client import session as path_of
from perdure.cli.signals import Signals, attending, hosted
from perdure.context.compaction.plan import Nothing
from perdure.context.environment import Environment
from perdure.context.text.plural import counted
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.facts import Opened
from perdure.edges.session.load import load as load_file
from perdure.edges.session.own import proof_of
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.host import Host
from perdure.looking.resolving import resolve
from perdure.looking.target import Target, existing


def run(
    key: str,
    *,
    preview: bool,
    focus: str,
    model: str | None,
    window: int | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Exit 0 if it was (or would be) done, 1 if not."""
    target, folder = session(key, state), existing(state)
    patience(target.path)
    at = None if preview else running(state)
    settings = read_settings(folder, at)
    found: dict[str, Any] = {}
    if at is not None:
        decided(at, model, window)
        remote = Remote(at)

        async def ask(_signals: Signals) -> int:
            found.update(await _compact(partial(_asked, remote, key), target, focus, settings, folder))
            return int(not found["done"])

        code = anyio.run(attending, remote, key, ask)
    else:
        host = Host(folder.path, settings=settings, model=model, window=window)

        async def work(_signals: Signals) -> int:
            if preview:
                found.update(await _preview(host, target, focus))
            else:
                found.update(await _compact(partial(host.command, key), target, focus, settings, folder))
            return 0 if found["done"] or found.get("preview") == "complete" else 1

        code = anyio.run(hosted, host, key, work)
    if found:
        emit(found) if as_json else _show(found)
    return code


async def _asked(remote: Remote, key: str, line: str) -> str:
    body = {"focus": line.partition(" ")[2]}
    found = await remote.post(f"{path_of(key)}/compact", body, seconds=LONG)
    return str(found["text"])


def _environment(settings: Settings, folder: StateFolder, target: Target, opened: Opened) -> Environment:
    return resolve(target, opened, settings, folder)[0]


async def _compact(
    command: Callable[[str], Awaitable[str]],
    target: Target,
    focus: str,
    settings: Settings,
    folder: StateFolder,
) -> dict[str, Any]:
    key, path = str(target.key), target.path
    opened = open_session(path)
    env = _environment(settings, folder, target, opened)
    before = figures(opened, env)
    answer = await command(f"/compact {focus}".strip())
    later = open_session(path)
    done = later.compaction != opened.compaction
    proof = _proof(path, later.compaction) if done else None
    after = figures(later, env)
    if proof:
        before |= {"tokens": proof["tokens_before"]}
        after |= {"tokens": proof["tokens_after"]}
    reason = "" if done else answer
    found = report(key, done=done, reason=reason, before=before, after=after, proof=proof or {})
    return found | {"text": answer}


def _proof(path: Path, compaction: str | None) -> dict[str, Any]:
    loaded = load_file(path)
    return {"compaction": compaction} | dict(proof_of(decode_entry(loaded.entry(compaction or ""))) or {})


async def _preview(host: Host, target: Target, focus: str) -> dict[str, Any]:
    key, opened = str(target.key), open_session(target.path)
    seen = await host.preview_compaction(key, focus)
    before = figures(opened, _environment(host.settings, host.folder, target, opened))
    if isinstance(seen.plan, Nothing):
        found = report(key, done=False, reason=seen.plan.reason, before=before, after=before, proof={})
        return found | {"preview": "nothing", "text": f"nothing would be compacted: {seen.plan.reason}"}
    found = report(
        key,
        done=False,
        reason=seen.why or "a preview",
        before=before,
        after=_after(seen, before),
        proof=msgspec.to_builtins(seen.proof) if seen.proof is not None else {},
    )
    return found | {
        "preview": "complete" if seen.proof is not None else "plan",
        "covered": [item.entry for item in seen.plan.covered],
        "kept": [item.entry for item in seen.plan.kept],
        "pins": [pin.entry for pin in seen.plan.pins],
        "identifiers": list(seen.identifiers),
        "summary": seen.summary,
        "model_calls": seen.calls,
        "text": _said(seen),
    }


def _after(seen: Previewed, before: dict[str, int]) -> dict[str, int]:
    if seen.proof is None:
        return before
    before["tokens"] = seen.proof.tokens_before
    return before | {"tokens": seen.proof.tokens_after, "entries": before["entries"] + 1}


def _said(seen: Previewed) -> str:
    assert not isinstance(seen.plan, Nothing)
    covered = f"would cover {counted(len(seen.plan.covered), 'message')} and keep {len(seen.plan.kept):,}"
    cost = f"this preview cost {seen.calls:,} model calls"
    if seen.proof is None:
        return f"{covered}; no summary: {seen.why}; {cost}"
    sizes = f"{seen.proof.tokens_before:,} → {seen.proof.tokens_after:,} tokens"
    return f"{covered} ({seen.proof.rung}): {sizes}; {cost}, nothing was stored"


def _show(found: dict[str, Any]) -> None:
    say(f"{found['key']}: {found['text']}")
    if "covered" not in found:
        return
    rows: list[tuple[str, ...]] = [("what", "count", "from", "to")]
    for name in ("covered", "kept"):
        ids = found[name]
        rows.append((name, f"{len(ids):,}", ids[0] if ids else "-", ids[-1] if ids else "-"))
    say(table(rows, frozenset({1})))
    if found["pins"]:
        say(f"pinned, word for word: {', '.join(found['pins'])}")
    if found["identifiers"]:
        say(f"identifiers kept: {', '.join(found['identifiers'])}")
    if found["summary"]:
        say()
        say(found["summary"])
