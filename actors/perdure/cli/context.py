"""`perdure context`: the very request the next message would make, its account and its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.cli.covered import covered
from perdure.cli.output import emit, fail, patience, say, table
from perdure.cli.resolving import model_info, resolve, window_of
from perdure.cli.target import Target, find
from perdure.cli.why import explain
from perdure.cli.why import show as show_entry
from perdure.context import pipeline
from perdure.context.changed import Changed, as_decisions
from perdure.context.environment import Environment
from perdure.context.ledger import ledger
from perdure.context.prompt.pins import pin_lines, with_pins
from perdure.context.tokens.budget import INJECTION_ORDER, SACRIFICE_ORDER, Budget, Source, measure_budget
from perdure.context.tokens.estimator import Estimator, estimator_of, measure
from perdure.context.tokens.floor import floor_of, owners
from perdure.context.wire import render_dict
from perdure.contracts import Assembled
from perdure.edges import state as state_folder
from perdure.edges.blobs import with_images
from perdure.edges.config import load
from perdure.edges.session.branching import completed
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import newer
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.errors import ContextOverflow
from perdure.records import Item, Items, LedgerLine, Text, User

STAND_IN = "(the next message)"
LEAST_READ, PER_TOKEN = 16 * 1024 * 1024, 16  # bytes read of a view that was never compacted
SHOWN = 200  # ledger lines printed for a person

SACRIFICE = f"first to go: {', '.join(SACRIFICE_ORDER)}"

Report = dict[str, Any]


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
    settings = load(state=state_folder.state_folder(state).root)
    report = inspect(found, settings, window=window, model=model, message=message, state=state)
    if why is not None:
        report["ledger"], report["why"] = explain(found.path, report["ledger"], why)
    if as_json:
        emit(report if why is None else _about(report))
    else:
        show(report, why)
    return 1 if report["request"] is None else 0


def _about(report: Report) -> Report:
    """What was asked about one entry, without the request, which may be megabytes."""
    return {name: value for name, value in report.items() if name not in ("request", "budget")}


def inspect(
    target: Target,
    settings: Settings,
    *,
    window: int | None = None,
    model: str | None = None,
    message: str | None = None,
    state: Path | None = None,
) -> Report:
    """The JSON contract of the command. Changes nothing; of a bare file reads only that file."""
    room = window_of(window, settings, model_info(model, target.key, settings))
    opened = completed(open_session(target.path, window_bytes=max(LEAST_READ, room * PER_TOKEN)))
    folder = state_folder.state_folder(state)
    next_message = Item("", User((Text(message or STAND_IN),)))
    env, complaints = resolve(
        target, opened, settings, folder, model=model, window=window, asked=(next_message,)
    )
    env = with_pins(env, opened.pins)
    estimator = estimator_of(opened.learned, env.model.ref)
    problems = [*_problems(opened), *({"kind": "workspace", "detail": line} for line in complaints)]
    report: Report = {
        "file": str(target.path),
        "key": target.key,
        "window": env.limits.window,
        "model": env.model.ref,
        "recorded_model": _recorded(opened),
        "threshold": env.limits.threshold,
        "view_tokens": _standing(opened.items, env, estimator),
    }
    asked = _next(next_message, env, estimator, stand_in=message is None)
    items = with_images(opened.items, folder.evidence)
    return report | _request(opened, (*items, next_message), asked, env, estimator, problems)


def _request(
    opened: Opened,
    items: Items,
    asked: LedgerLine,
    env: Environment,
    estimator: Estimator,
    problems: list[dict[str, Any]],
) -> Report:
    decided = as_decisions(opened.decisions)
    stage = pipeline.history(items, env, decided)
    before = [*pin_lines(env.pins, estimator), *covered(opened)[0]]
    beyond = _silent(opened)
    try:
        prepared = pipeline.request(
            stage,
            Assembled(stage.items),
            env,
            decided=decided,
            unseen=frozenset(),
            hooks=pipeline.HOOKS,
            estimator=estimator,
        )
        if prepared.tokens > env.limits.window:  # a window so small that the lines lie above it
            raise ContextOverflow(prepared.tokens, env.limits.window)
    except ContextOverflow as overflow:
        lines = ledger(stage.items, stage.lines, estimator, frozenset())
        budget = measure_budget(stage.items, env, estimator, env.fixed_tokens)
        return {
            "budget": budget,
            "request": None,
            "tokens": budget.total,
            "ledger": [_line(line) for line in (*before, *beyond, *lines, asked)],
            "problems": [*problems, _overflow_problem(overflow, stage, env, estimator, budget)],
        }
    sent = ledger(prepared.items, prepared.lines, estimator, frozenset())
    size = _standing(items, env, estimator)
    if size > env.limits.threshold:
        line = f"{env.limits.threshold:,} tokens: a host would compact"
        problems.append(
            {"kind": "over_threshold", "detail": f"the view is about {size:,}, the line is {line}"}
        )
    return {
        "budget": measure_budget(prepared.items, env, estimator, env.fixed_tokens),
        "request": render_dict(prepared.body),
        "ledger": [_line(line) for line in (*before, *beyond, *sent, asked)],
        "tokens": prepared.tokens,
        "problems": problems,
    }


# --- the ledger's further lines -------------------------------------------------------------------


def _standing(items: Items, env: Environment, estimator: Estimator) -> int:
    """The request's size as the compaction trigger counts it: before the guard."""
    return measure_budget(items, env, estimator, env.fixed_tokens, guarded=False).total


def _next(item: Item, env: Environment, estimator: Estimator, *, stand_in: bool) -> LedgerLine:
    rule = "stand-in for the next message" if stand_in else "the next message, as given"
    return LedgerLine("", "synthesised" if stand_in else "in", rule, estimator.item(item), "tail")


def _silent(opened: Opened) -> list[LedgerLine]:
    """Entries between those of the view that a model is never shown."""
    speaking = {item.entry for item in opened.items}
    return [
        LedgerLine(entry.id, "left_out", _SILENT.get(entry.type, f"entry: a {entry.type} is not for models"))
        for entry in opened.entries
        if entry.id not in speaking
    ]


_SILENT = {
    "message": "entry: a message of a role nobody knows",
    "compaction": "entry: an older summary, which a later one replaces",
}


def _problems(opened: Opened) -> list[dict[str, Any]]:
    found = []
    if wrong := newer(opened.version):
        found.append({"kind": "newer_version", "detail": f"read as far as it is known: {wrong}"})
    for gap in opened.gaps:
        lost = f"{gap.child} follows {gap.missing}, which is nowhere; {gap.bridged_to or 'nothing'} stands in"
        found.append({"kind": "gap", "detail": lost})
    if opened.torn:
        found.append({"kind": "torn", "detail": "the last line is cut off: `perdure doctor` says more"})
    if opened.unread:
        found.append({"kind": "unread", "detail": "the older part is far beyond the window: not read"})
    return found


def _recorded(opened: Opened) -> str | None:
    told = opened.settings
    return f"{told.provider}/{told.model}" if told.provider and told.model else None


def _line(line: LedgerLine) -> dict[str, Any]:
    return {
        "entry": line.entry,
        "decision": line.decision,
        "rule": line.rule,
        "tokens": line.tokens,
        "zone": line.zone,
    }


# --- overflow -------------------------------------------------------------------------------------


def _overflow_problem(
    overflow: ContextOverflow, stage: Changed, env: Environment, estimator: Estimator, budget: Budget
) -> dict[str, Any]:
    floor = overflow.floor or _floor(stage.items, env, estimator, overflow.tokens)
    limit = budget.limit
    cut = budget.total - overflow.tokens
    after = f" (the guard has cut tool results by {cut:,} already)" if cut > 0 else ""
    tokens = overflow.tokens if cut > 0 or budget.total <= limit else budget.total  # it rounds each item
    return {
        "kind": "overflow",
        "detail": f"{ContextOverflow(tokens, limit, floor)}{after}",
        "tokens": tokens,
        "limit": limit,
        "floor": floor,
    }


def _floor(items: Items, env: Environment, estimator: Estimator, total: int) -> dict[str, int]:
    """What no compaction could take away, in tokens by owner."""
    chars = [estimator.chars(measure(item.message)) for item in items]
    fixed, tools = env.fixed_tokens, env.tool_tokens
    return floor_of(owners(items, chars, fixed_tokens=fixed, tool_tokens=tools, total=total))


# --- for a person ---------------------------------------------------------------------------------


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
