"""The very request the next message of a session would make, its account and its budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.context import pipeline
from perdure.context.changed import Changed, as_decisions
from perdure.context.environment import Environment
from perdure.context.ledger import ledger
from perdure.context.prompt.pins import pin_lines, with_pins
from perdure.context.tokens.budget import Budget, measure_budget
from perdure.context.tokens.estimator import Estimator, estimator_of, measure
from perdure.context.tokens.floor import floor_of, owners
from perdure.context.wire import render_dict
from perdure.contracts import Assembled
from perdure.edges import state as state_folder
from perdure.edges.blobs import with_images
from perdure.edges.session.branching import completed
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import newer
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.errors import ContextOverflow
from perdure.looking.covered import covered
from perdure.looking.memory import remembering, unasked
from perdure.looking.resolving import model_info, resolve, window_of
from perdure.looking.target import Target
from perdure.records import Item, Items, LedgerLine, Text, User

STAND_IN = "(the next message)"
LEAST_READ, PER_TOKEN = 16 * 1024 * 1024, 16  # bytes read of a view that was never compacted

Report = dict[str, Any]


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
    chosen = remembering(settings, folder) if target.key is not None else None
    env, complaints = resolve(
        target, opened, settings, folder, model=model, window=window, asked=(next_message,), chosen=chosen
    )
    env = with_pins(env, opened.pins)
    estimator = estimator_of(opened.learned, env.model.ref)
    problems = [
        *_problems(opened),
        *_engine(opened, settings, target),
        *({"kind": "workspace", "detail": line} for line in complaints),
    ]
    if chosen is not None and chosen.trouble:
        problems.append({"kind": "memory", "detail": chosen.trouble})
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
    further = unasked(settings, chosen) if chosen is not None else ()
    return report | _request(opened, (*items, next_message), (*further, asked), env, estimator, problems)


def _request(
    opened: Opened,
    items: Items,
    asked: tuple[LedgerLine, ...],
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
            "ledger": [_line(line) for line in (*before, *beyond, *lines, *asked)],
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
        "ledger": [_line(line) for line in (*before, *beyond, *sent, *asked)],
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


def _engine(opened: Opened, settings: Settings, target: Target) -> list[dict[str, Any]]:
    """A look runs no plugin: what another engine assembles only a host can tell."""
    slot = settings.plugins.slots.context_engine if target.key is not None else "legacy"
    chosen = opened.settings.engine or slot
    if chosen == "legacy":
        return []
    told = f"the context engine {chosen} assembles this session's requests: this is what legacy would send"
    return [{"kind": "engine", "detail": told}]


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
