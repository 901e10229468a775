"""`perdure context`: the very request the next message would make, its account and its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from perdure.cli.output import emit, fail, patience, say, table, warn
from perdure.cli.remote.address import running
from perdure.cli.remote.client import asked
from perdure.cli.remote.client import session as path_of
from perdure.cli.why import explain
from perdure.cli.why import show as show_entry
from perdure.context.tokens.budget import INJECTION_ORDER, SACRIFICE_ORDER, Budget, Source
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.errors import ConfigError
from perdure.looking.context import Report, inspect
from perdure.looking.target import Target, find

SHOWN = 200  # ledger lines printed for a person
SACRIFICE = f"first to go: {', '.join(SACRIFICE_ORDER)}"


def run(
    target: str,
    *,
    window: int | None,
    model: str | None,
    message: str | None,
    why: str | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Print it; exit 0, or 1 where the request would overflow."""
    if message is not None and not message.strip():
        fail("the message of -m is empty: give it text, or leave -m out for a stand-in")
    found = find(target, state)
    patience(found.path)
    report = _report(found, window, model, message, state)
    if why is not None:
        report["ledger"], report["why"] = explain(found.path, report["ledger"], why)
    if as_json:
        emit(report if why is None else _about(report))
    else:
        show(report, why)
    return 1 if report["request"] is None else 0


def _report(
    found: Target, window: int | None, model: str | None, message: str | None, state: Path | None
) -> Report:
    """By the configuration; where that is broken, as the host says that still runs on an earlier one."""
    try:
        settings = load(state=state_folder.state_folder(state).root)
    except ConfigError as error:
        at = running(state) if found.key else None
        if at is None:
            raise
        warn(f"perdure: {error}; asking the running host, which began with another")
        asked_for = {"window": window, "model": model, "message": message}
        query = urlencode({name: value for name, value in asked_for.items() if value is not None})
        told: Report = asked(at, lambda remote: remote.get(f"{path_of(found.key or '')}/context?{query}"))
        return told | {"budget": msgspec.convert(told["budget"], Budget)}
    return inspect(found, settings, window=window, model=model, message=message, state=state)


def _about(report: Report) -> Report:
    """What was asked about one entry, without the request, which may be megabytes."""
    return {name: value for name, value in report.items() if name not in ("request", "budget")}


def show(report: Report, why: str | None) -> None:
    """The budget, then what is not sent as it is stored."""
    budget = report["budget"]
    say(f"{report['file']}: {report['tokens']:,} of {report['window']:,} tokens for {report['model']}")
    say("  ".join(_share(budget, source, report["window"]) for source in INJECTION_ORDER))
    say(f"before the guard {report['view_tokens']:,}: compaction at {report['threshold']:,}")
    say(f"no request over {budget.limit:,}; {SACRIFICE}")
    _show_ledger(report["ledger"], why)
    if why is not None:
        show_entry(report["why"])
    for problem in report["problems"]:
        say(f"{problem['kind']}: {problem['detail']}")


def _share(budget: Budget, source: Source, window: int) -> str:
    tokens = getattr(budget, source.name)
    return f"{source.name} {tokens:,} ({100 * tokens / window:.0f} %)"


def _worth_telling(line: dict[str, Any]) -> bool:
    return line["decision"] not in ("in", "covered") and not line["rule"].startswith("entry:")


def _show_ledger(lines: list[dict[str, Any]], why: str | None) -> None:
    counts: dict[str, int] = {}
    for line in lines:
        counts[line["decision"]] = counts.get(line["decision"], 0) + 1
    say("entries: " + ", ".join(f"{count:,} {decision}" for decision, count in counts.items()))
    told = lines if why else [line for line in lines if _worth_telling(line)]
    silent = 0 if why else sum(line["rule"].startswith("entry:") for line in lines)
    if silent:
        say(f"left_out: {silent:,} of them are not for models, and not in this table: `--json` lists all")
    if not told:
        return
    rows: list[tuple[str, ...]] = [("entry", "decision", "tokens", "rule")]
    rows += [(x["entry"] or "-", x["decision"], f"{x['tokens']:,}", x["rule"]) for x in told[-SHOWN:]]
    say(table(rows, frozenset({2})))
    if len(told) > SHOWN:
        say(f"… and {len(told) - SHOWN:,} older ones: `--json` lists all")
