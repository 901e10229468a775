"""`perdure status`: what a state folder holds, and which host holds it; `--deep` looks into every session.

Seen from beside: what only the host knows (its queues, lag, calls) is null or empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.actors.memories.chosen import slot_of
from perdure.actors.status import kindred
from perdure.cli import folder as looking
from perdure.cli import hosted
from perdure.cli.output import emit, one_line, say, size, table, warn
from perdure.cli.parked import FolderDesk
from perdure.cli.remote.address import running
from perdure.cli.remote.client import asked
from perdure.context.text.plural import counted
from perdure.context.text.secrets import redact
from perdure.context.tokens.budget import SOURCES, Budget, measure_budget
from perdure.context.tokens.estimator import estimator_of
from perdure.edges.config import load
from perdure.edges.models import catalog
from perdure.edges.session.facts import Opened
from perdure.edges.session.load import load as load_file
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.errors import ConfigError, PerdureError
from perdure.looking.memory import remembering
from perdure.looking.resolving import model_info, resolve, window_of
from perdure.looking.target import Target, existing
from perdure.records import Assistant, Usage

COUNTED = 64 * 1024 * 1024  # bytes up to which a file's entries are counted
MOST_ERRORS = 5  # the latest of a session

Report = dict[str, Any]


def run(*, state: Path | None, deep: bool, as_json: bool) -> int:
    """Print it. Exit 0, whether a host runs or not."""
    folder = existing(state)
    at = running(state)
    try:
        settings = load(state=folder.root)
    except ConfigError as error:
        if at is None:
            raise
        warn(f"perdure: {error}; what follows is the running host's, which began with another")
        deep_here, settings = False, Settings()
    else:
        deep_here = deep
    report = look(folder, settings, deep=deep_here)
    if at is not None:
        path = f"/v1/status?deep={int(deep)}"
        report = hosted.merged(report, asked(at, lambda remote: remote.get(path)))
    if as_json:
        emit(report)
        return 0
    show(folder, report)
    if at is not None and deep:
        hosted.show(report)
    return 0


def look(folder: StateFolder, settings: Settings, *, deep: bool = False) -> Report:
    """The JSON contract of the command; the file is read only for `deep`."""
    rows = looking.rows(folder)
    awake = {row.path for row in rows if looking.awake(row)}
    report: Report = {
        "host": _host(looking.holder(folder), len(rows), len(awake)),
        "workers": [],
        "engines": [{"id": settings.plugins.slots.context_engine}],
        "memory": {"id": slot_of(settings.plugins.slots.memory)},
        "models": [],
        "totals": {"sessions": len(rows), "bytes": sum(row.size for row in rows)},
    }
    report |= FolderDesk(folder).parked()
    if deep:
        report["memory"]["trouble"] = remembering(settings, folder).trouble
        broken = breaks(folder.log)
        report["sessions"] = [_session(row, row.path in awake, settings, folder, broken) for row in rows]
    return report


def _host(holder: looking.Holder | None, sessions: int, awake: int) -> Report:
    held = holder is not None and holder.held
    return {
        "held": held,
        "node": holder.node if holder else None,
        "boot": holder.boot if holder else None,
        "pid": holder.pid if holder else None,
        "epoch": holder.epoch if holder else None,
        "clean": holder.clean if holder and not held else None,
        "sessions": sessions,
        "awake": awake,
        "asleep": sessions - awake,
        "rss_bytes": looking.resident(holder.pid) if holder and held and holder.local else None,
        "owned_bytes": None,
        "loop_lag_ms": None,
    }


# --- deep -----------------------------------------------------------------------------------------


def _session(
    row: looking.Row, awake: bool, settings: Settings, folder: StateFolder, broken: dict[str, Report]
) -> Report:
    line: Report = {"key": row.key, "file": row.path, "state": "awake" if awake else "asleep"}
    window = None
    try:
        window = window_of(None, settings, model_info(None, row.key, settings))
        opened = open_session(row.path)
        budget = _budget(row, opened, settings, folder)
        entries = load_file(row.path).count if row.size <= COUNTED else None
    except PerdureError as error:
        return line | {
            "entries": None,
            "view_tokens": None,
            "budget": None,
            "window": window,
            "last_compaction": None,
            "cache": {},
            "errors": [str(error)],
        }
    return line | {
        "entries": entries,
        "view_tokens": budget.total,
        "budget": budget,
        "window": window,
        "last_compaction": opened.compaction,
        "cache": _cache(opened, broken.get(row.key or "")),
        "errors": list(_errors(opened))[-MOST_ERRORS:],
        **kindred(opened.relatives),
    }


def _budget(row: looking.Row, opened: Opened, settings: Settings, folder: StateFolder) -> Budget:
    """As the session's host counts it: with the model it runs with, before the guard."""
    env, _ = resolve(Target(Path(row.path), row.key), opened, settings, folder, model=_model(opened))
    estimator = estimator_of(opened.learned, env.model.ref)
    return measure_budget(opened.items, env, estimator, env.fixed_tokens, guarded=False)


def _model(opened: Opened) -> str | None:
    """The model that the session chose, where it is one we know."""
    told = opened.settings
    if not told.provider or not told.model:
        return None
    try:
        return catalog.resolve(f"{told.provider}/{told.model}").ref
    except ConfigError:
        return None


def _cache(opened: Opened, broken: Report | None) -> Report:
    """Tokens of the prompts whose answers are in view, and how many of them came from the cache.

    The breaks are those that the runtime log still tells of; a host that logs nothing leaves none.
    """
    answers = (item.message for item in opened.items if isinstance(item.message, Assistant))
    usage = sum((answer.usage for answer in answers if answer.usage is not None), Usage())
    share = round(usage.cache_read / usage.prompt, 4) if usage.prompt else None
    none = {"breaks": {}, "lost_tokens": 0, "lost_usd": 0.0, "last_break": None}
    return {"read": usage.cache_read, "prompt": usage.prompt, "share": share} | (broken or none)


def breaks(log: Path) -> dict[str, Report]:
    """What the current runtime log tells of broken caches, by session key: causes, tokens and USD lost."""
    found: dict[str, Report] = {}
    try:
        with open(log, "rb") as lines:
            for line in lines:
                if b'"cache.break"' in line:
                    _count_break(found, line)
    except OSError:
        pass  # no host has logged anything here
    return found


def _count_break(found: dict[str, Report], line: bytes) -> None:
    try:
        told = json.loads(line)
        if told["event"] != "cache.break":
            return
        key, cause, lost, cost = str(told["session"]), str(told["cause"]), int(told["lost"]), told["cost_usd"]
        at = {
            name: told[name]
            for name in ("ts", "cause", "rule", "declared", "lost", "cost_usd", "entry", "byte")
        }
        cost = float(cost)
    except (ValueError, KeyError, TypeError):  # a line that a full disk cut off
        return
    seen = found.setdefault(key, {"breaks": {}, "lost_tokens": 0, "lost_usd": 0.0, "last_break": None})
    seen["breaks"][cause] = seen["breaks"].get(cause, 0) + 1
    seen["lost_tokens"] += lost
    seen["lost_usd"] = round(seen["lost_usd"] + cost, 6)
    seen["last_break"] = at


def _errors(opened: Opened) -> Iterator[str]:
    for item in opened.items:
        if isinstance(item.message, Assistant) and item.message.stop == "error":
            yield one_line(redact(item.message.error or "the model call failed"))


# --- for a person ---------------------------------------------------------------------------------


def show(folder: StateFolder, report: Report) -> None:
    """Who holds the folder, how much is in it, then a line for each session of `--deep`."""
    host, totals = report["host"], report["totals"]
    say(f"{folder.root}: {_holder_line(host)}")
    say(f"{counted(totals['sessions'], 'session')}, {size(totals['bytes'])}, {host['awake']:,} awake")
    if "sessions" in report:
        memory = report["memory"]
        say(f"memory {memory['id']}{': ' if memory['trouble'] else ''}{one_line(memory['trouble'])}")
    if not report.get("sessions"):
        return
    heads = ("session", "state", "entries", "request", *SOURCES, "window", "cached", "breaks", "compacted")
    rows: list[tuple[str, ...]] = [(*heads, "errors")]
    for line in report["sessions"]:
        entries, view, window = (
            f"{line[name]:,}" if line[name] is not None else "-"
            for name in ("entries", "view_tokens", "window")
        )
        shares = [f"{_part(line['budget'], name):,}" if line["budget"] else "-" for name in SOURCES]
        last = line["last_compaction"] or "-"
        errors = line["errors"][-1] if line["errors"] else ""
        name = line["key"] or line["file"]
        share, broke = line["cache"].get("share"), line["cache"].get("breaks") or {}
        cached = f"{100 * share:.0f} %" if share is not None else "-"
        causes = ", ".join(f"{count} {cause}" for cause, count in broke.items()) or "-"
        rows.append((name, line["state"], entries, view, *shares, window, cached, causes, last, errors))
    say(table(rows, frozenset({2, 3, 4, 5, 6, 7, 8, 9})))


def _part(budget: Budget | Report, name: str) -> int:
    """A host's budget comes as JSON."""
    return int(budget[name] if isinstance(budget, dict) else getattr(budget, name))


def _holder_line(host: Report) -> str:
    if host["held"]:
        memory = f", {size(host['rss_bytes'])} resident" if host["rss_bytes"] else ""
        return f"held by a host (node {host['node']}, pid {host['pid']}{memory})"
    if host["pid"] is None:
        return "no host has it, and none ever had"
    how = "released" if host["clean"] else "left without releasing it"
    return f"no host has it; the last one (node {host['node']}, pid {host['pid']}) {how}"
