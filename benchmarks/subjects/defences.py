"""The lines of defence over one history: done anew, and for one more step of it.

    python -m benchmarks.subjects.defences FOLDER whole|step|truncate MESSAGES

`whole` does each defence over all messages at once, as after waking; the history is damaged. `step` adds an
answer and a result at a time to a view whose earlier part was seen before. `truncate` moves what four
compactions cover out of a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import histories
from benchmarks.measure import cpu, fresh, median, report, wall
from perdure.context import pipeline
from perdure.context.changed import Changed
from perdure.context.environment import Environment, resolve
from perdure.context.numbers import limits
from perdure.context.pipeline import Scratch
from perdure.context.results.guard import guard
from perdure.context.safety.repair import repair
from perdure.context.safety.sanitize import sanitize
from perdure.context.tokens.estimator import Estimator, Gauge, Measure
from perdure.contracts import Assembled
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import rewrite
from perdure.edges.session.files import SessionFiles
from perdure.records import Decision, Item, Items, ModelInfo, ToolResult

STEPS, ROUNDS = 25, 3
SYSTEM = "You work in a folder with tools. " * 200
MODEL = ModelInfo("anthropic", "instant")
KEY, NOW = "agent:main:bench:dm:it", histories.START_MS


def environment(window: int) -> Environment:
    """What a session of this window runs with."""
    return resolve("agent:main:bench", MODEL, SYSTEM, (), limits(window))


def tight(items: Items) -> int:
    """A window in which the guard has to act, and everything but results fits with ease."""
    gauge = Gauge()
    results = sum((gauge.measure(i) for i in items if isinstance(i.message, ToolResult)), Measure())
    others = sum((gauge.measure(i) for i in items if not isinstance(i.message, ToolResult)), Measure())
    return (2 * others.seed + results.seed // 2) // 4 + 10_000


def spent(run: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """CPU milliseconds, the median of some runs."""
    took = []
    for _ in range(rounds):
        began = cpu()
        run()
        took.append(cpu() - began)
    return median(took) * 1e3


def prepare(
    items: Items, env: Environment, decided: dict[str, Decision], scratch: Scratch, estimator: Estimator
) -> pipeline.Prepared:
    """One request, as the turn makes it."""
    fresh_results = frozenset([items[-1].entry])
    stage: Changed = pipeline.history(items, env, decided, unseen=fresh_results, scratch=scratch)
    return pipeline.request(
        stage,
        Assembled(stage.items),
        env,
        decided=decided,
        unseen=fresh_results,
        hooks=pipeline.HOOKS,
        estimator=estimator,
        scratch=scratch,
    )


def whole(messages: int) -> dict[str, float]:
    """Each defence alone, and all of them."""
    items = histories.items(histories.damaged(histories.Mix().messages(messages)))
    window = tight(items)
    env = environment(window)
    clean = sanitize(items, env.policy, env.model).items

    def guarded() -> None:
        guard(clean, fixed_tokens=env.fixed_tokens, limits=limits(window), estimator=Estimator())

    return {
        "prepare": spent(lambda: prepare(items, env, {}, Scratch(), Estimator())),
        "sanitise": spent(lambda: sanitize(items, env.policy, env.model)),
        "repair": spent(lambda: repair(items)),
        "guard": spent(guarded),
    }


def stepped(items: Items, env: Environment) -> float:
    """CPU milliseconds of a step whose tail is one answer and one result."""
    mix, scratch, estimator = histories.Mix(5), Scratch(), Estimator(MODEL.ref)
    decided: dict[str, Decision] = {}
    took: list[float] = []
    for n in range(STEPS):
        answer, result = mix.step()
        items = (*items, Item(f"a{n}", answer), Item(f"r{n}", result))
        began = cpu()
        made = prepare(items, env, decided, scratch, estimator)
        took.append(cpu() - began)
        decided.update((d.key, d) for d in made.decisions)
        estimator = estimator.learn(made.size, made.fixed_tokens, made.forecast)
    return median(took[3:]) * 1e3


def step(messages: int) -> dict[str, float]:
    """A step of a history that is all live: with room, and where the guard has to act."""
    items = histories.items(histories.Mix().messages(messages))
    return {
        "roomy": stepped(items, environment(100 * tight(items))),
        "tight": stepped(items, environment(tight(items))),
    }


def truncate(folder: Path, messages: int) -> dict[str, float]:
    """A file with four compactions, what they cover moved out."""
    grant = LocalPlacement(folder, wall_ms=NOW).grant(0)
    assert grant is not None
    files = SessionFiles(folder, grant, sync=False)
    size = histories.write(Path(files.path(KEY)), messages)
    held = files.open(KEY, NOW)
    began, clock = cpu(), wall()
    done = rewrite.truncate(held.file, lambda: held.ids.entry(NOW), NOW, sync=False)
    took, waited = cpu() - began, wall() - clock
    assert done.done, done.reason
    return {"truncate": took * 1e3, "wall": waited * 1e3, "mb": size / 1e6, "kept_mb": done.bytes_after / 1e6}


if __name__ == "__main__":
    place, what, count = sys.argv[1:]
    if what == "whole":
        figures = whole(int(count))
    elif what == "step":
        figures = step(int(count))
    else:
        figures = truncate(fresh(place), int(count))
    report(**figures)
