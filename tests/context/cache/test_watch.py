"""The watch on a prompt cache: causes that no running host meets by itself, and what a break costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.cache.blame import DECLARED, Blame, Made, is_clock
from perdure.context.cache.prefix import Parting
from perdure.context.cache.watch import Broke, Watch, told
from perdure.context.changed import Changed
from perdure.context.environment import Environment, resolve
from perdure.context.numbers import limits
from perdure.context.pipeline import HOOKS, Prepared, Scratch, guarding, history, request
from perdure.context.prompt.boundary import BOUNDARY
from perdure.context.prompt.skills import Skill
from perdure.context.prompt.system import ContextFile, PromptParts, Runtime, build
from perdure.context.results.prune import PruneSettings
from perdure.contracts import Assembled
from perdure.records import Item, Items, Text, Thinking, ToolSpec, Usage, User

READ = ToolSpec("read", "Reads", b'{"type":"object"}')
WRITE = ToolSpec("write", "Writes", b'{"type":"object"}')
VIEW = items(
    *(
        m
        for n in range(6)
        for m in (user(f"{n}"), says(call(f"c{n}"), stop="toolUse"), result(f"c{n}", "x" * 9_000), says("ok"))
    )
)


def env(**more: Any) -> Environment:
    """What a session runs with; `parts` go into the prompt, the rest over the environment."""
    tools = more.pop("tools", (READ, WRITE))
    parts = PromptParts(tools=tools, **more.pop("parts", {}))
    made = resolve(
        "s", more.pop("model", SONNET), build(parts), tools, limits(200_000), **more.pop("told", {})
    )
    return replace(made, **more)


class Line:
    """Calls of one session in a row, each at its time, with the usage that a test says."""

    def __init__(self) -> None:
        self.watch, self.scratch, self.now = Watch(), Scratch(), 1_000_000

    def ask(
        self,
        view: Items,
        env: Environment,
        usage: Usage | None,
        *,
        addition: str = "",
        hooks: tuple[Any, ...] = HOOKS,
        cache_age: float | None = None,
        refreshed: str = "",
    ) -> Broke | None:
        stage = history(view, env, {}, scratch=self.scratch)
        made = request(
            stage, Assembled(stage.items, addition=addition), env, decided={}, unseen=frozenset(),
            hooks=hooks, cache_age=cache_age, scratch=self.scratch,
        )  # fmt: skip
        self.begin(view, stage.items, made, env, addition, refreshed)
        self.now += 10_000
        return self.watch.complete(usage, env.model, env.retention, self.now)

    def begin(
        self, view: Items, staged: Items, made: Prepared, env: Environment, addition: str, refreshed: str
    ) -> Blame | None:
        stages = (("stored", view), ("history", staged), *made.stages)
        how = Made(stages, made.lines, env.system, addition, made.thinking, refreshed)
        return self.watch.begin(self.scratch.memo, made.body, how, env)


WARM, COLD = Usage(10, 5, 0, 40_000), Usage(10, 5, 0, 41_000)
NOTHING = env()
AGENTS = "AGENTS.md"


def file(text: str) -> dict[str, Any]:
    return {"files": (ContextFile(AGENTS, text),)}


def skill(name: str) -> dict[str, Any]:
    return {"skills": (Skill(name, "for trees", f"skills/{name}/SKILL.md"),)}


CAUSES: dict[str, tuple[str, str, Environment, Environment]] = {
    "the order of tools": ("tools", "tools", NOTHING, replace(NOTHING, tools=(WRITE, READ))),
    "a clock in a prompt file": (
        "clock", "system", env(parts=file("It is 10:00:01 now.")), env(parts=file("It is 10:00:07 now.")),
    ),
    "a date in a prompt file": (
        "clock", "system", env(parts=file("Today is Jan 5.")), env(parts=file("Today is Jan 6.")),
    ),
    "other words in a prompt file": (
        "prompt", "system", env(parts=file("Be brief.")), env(parts=file("Be long.")),
    ),
    "other skills": ("skills", "system", env(parts=skill("oaks")), env(parts=skill("elms"))),
    "other knowledge": (
        "knowledge", "system", env(parts={"knowledge": "He likes tea."}), env(parts={"knowledge": "No tea."}),
    ),
    "another runtime line": (
        "prompt", "system",
        env(parts={"runtime": Runtime(host="a")}), env(parts={"runtime": Runtime(host="b")}),
    ),
    "the cache's life": ("retention", "", NOTHING, replace(NOTHING, retention="long")),
    "the same model's name behind another provider": (
        "model", "", NOTHING, replace(NOTHING, model=replace(SONNET, provider="another")),
    ),
    "thinking": ("thinking", "settings", NOTHING, replace(NOTHING, thinking="high")),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_a_break_between_two_calls_is_attributed_to(name: str) -> None:
    cause, part, before, after = CAUSES[name]
    line = Line()
    assert line.ask(VIEW, before, WARM) is None
    broke = line.ask(VIEW, after, COLD)
    assert broke is not None
    at = told(broke)
    assert (at["cause"], at["part"]) == (cause, part), at
    assert at["declared"] is (cause in DECLARED)
    assert line.ask(VIEW, after, Usage(10, 5, 41_000)) is None


def test_pruning_in_a_cache_that_the_provider_still_had_is_named_with_its_entry() -> None:
    line, pruned = Line(), replace(NOTHING, pruning=PruneSettings(least=0, soft_ratio=0.01))
    line.ask(VIEW, pruned, WARM)
    broke = line.ask(VIEW, pruned, Usage(10, 5, 9_000, 31_000), cache_age=400.0)
    assert broke is not None
    assert (broke.cause, broke.rule) == ("pruning", "prune.soft")
    at = told(broke)
    assert (at["part"], at["message"], at["block"], at["entry"]) == ("messages", 2, 0, VIEW[2].entry)


def test_a_prompt_read_anew_where_it_cost_nothing_more_is_declared_once() -> None:
    line, before, after = Line(), env(parts=file("Be brief.")), env(parts=file("Be long."))
    clock = env(parts=file("Be Long."))
    line.ask(VIEW, before, WARM)
    broke = line.ask(VIEW, after, COLD, refreshed="cold")
    assert broke is not None
    assert (broke.cause, broke.declared) == ("refresh", True)
    line.ask(VIEW, after, COLD, refreshed="cold")
    again = line.ask(VIEW, after, COLD, refreshed="cold", addition="He likes tea.")
    assert again is not None
    assert again.cause == "engine"
    line.ask(VIEW, clock, COLD, refreshed="woken")


def test_a_hook_that_is_gone_is_to_blame_for_what_it_did() -> None:
    def meddling(now: Items, _: Any) -> Changed:
        return Changed((Item(now[0].entry, User((Text("other"),))), *now[1:]))

    line = Line()
    line.ask(VIEW, NOTHING, WARM, hooks=(meddling, *HOOKS))
    broke = line.ask(VIEW, NOTHING, COLD)
    assert broke is not None
    assert broke.cause == "hook"
    assert "meddling" in broke.rule


def test_thinking_that_this_history_does_not_allow_is_a_safety_steps_doing() -> None:
    line, asks = Line(), replace(NOTHING, thinking="high")
    foreign = says(Thinking("t", "s"), call("f1"), stop="toolUse")
    opened = (*VIEW, *items(user("go"), replace(foreign, provider="other", model="else"), result("f1")))
    line.ask(VIEW, asks, WARM)
    broke = line.ask(opened, asks, COLD)
    assert broke is not None
    assert (broke.cause, broke.declared) == ("sanitise", False)


def test_an_edited_message_is_told_with_its_byte_and_entry() -> None:
    line = Line()
    line.ask(VIEW, NOTHING, WARM)
    edited = (VIEW[0], VIEW[1], replace(VIEW[2], message=result("c0", "y" * 9_000)), *VIEW[3:])
    broke = line.ask(edited, NOTHING, COLD)
    assert broke is not None
    assert broke.cause == "edited"
    assert told(broke)["entry"] == VIEW[2].entry
    assert told(broke)["byte"] > len(NOTHING.system)
    assert broke.parting is not None
    assert broke.parting.before.rstrip("x") == broke.parting.after.rstrip("y")


def test_the_provider_is_blamed_only_for_bytes_that_went_on_within_the_caches_life() -> None:
    line = Line()
    line.ask(VIEW, NOTHING, WARM)
    broke = line.ask(VIEW, NOTHING, COLD)
    assert broke is not None
    assert (broke.cause, broke.declared) == ("provider", False)
    line.now += 290_000
    broke = line.ask(VIEW, NOTHING, COLD)
    assert broke is not None
    assert broke.cause == "expired"
    assert broke.age == 300.0


def test_a_difference_that_loses_nothing_is_no_break() -> None:
    line = Line()
    line.ask(VIEW, NOTHING, WARM)
    assert line.ask(VIEW, env(parts=file("x")), Usage(10, 5, 39_500)) is None


def test_a_call_without_usage_tells_nothing_and_forgets_nothing() -> None:
    line = Line()
    line.ask(VIEW, NOTHING, WARM)
    assert line.ask(VIEW, NOTHING, None) is None
    assert line.ask(VIEW, NOTHING, Usage(10, 5, 40_000)) is None
    assert line.watch.left == 40_000


def test_lost_tokens_cost_what_writing_them_again_costs_above_reading_them() -> None:
    line = Line()
    line.ask(VIEW, NOTHING, WARM)
    broke = line.ask(VIEW, NOTHING, Usage(10_000, 5, 10_000, 20_000))
    assert broke is not None
    assert (broke.previous, broke.read, broke.lost) == (40_000, 10_000, 30_000)
    weighed = 20_000 * 1.25 + 10_000 - 30_000 * 0.1
    assert broke.cost_usd == round(weighed * SONNET.price_input / 1e6, 8)
    assert line.watch.line()["lost_usd"] == round(broke.cost_usd, 6)


def test_waking_takes_up_what_the_file_tells() -> None:
    line, other = Line(), Line()
    line.ask(VIEW, NOTHING, WARM)
    answered = replace(says("ok"), usage=WARM, timestamp=2_000_000)
    stored = (*VIEW[:-1], Item("z", answered))
    other.watch.waking(stored, ("z", line.watch.prefix.fingerprint))
    assert other.watch.left == 40_000
    other.now = 2_000_000
    broke = other.ask(VIEW, env(parts=file("Be long.")), COLD)
    assert broke is not None
    assert (broke.cause, told(broke)["byte"]) == ("prompt", -1)


def test_after_another_program_has_asked_nobody_is_blamed_for_what_it_sent() -> None:
    line, other = Line(), Line()
    line.ask(VIEW, NOTHING, WARM)
    answered = replace(says("ok"), usage=WARM, timestamp=other.now)
    other.watch.waking((*VIEW[:-1], Item("theirs", answered)), ("ours", line.watch.prefix.fingerprint))
    broke = other.ask(VIEW, NOTHING, COLD)
    assert broke is not None
    assert broke.cause == "restart"


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 23), st.integers(0, 59))
def test_two_times_of_day_are_a_clock_and_two_counts_are_none(h: int, m: int, x: int, y: int) -> None:
    one, two = f"It is {h:02}:{m:02} here", f"It is {x:02}:{y:02} here"
    assert is_clock(Parting(0, "system", before=one, after=two)) or one == two
    assert not is_clock(Parting(0, "system", before=f"{h} of {m} used", after=f"{x} of {y} used"))


def test_guarding_is_known_by_its_own_name() -> None:
    stage = history(VIEW, NOTHING, {})
    made = request(stage, Assembled(stage.items), NOTHING, decided={}, unseen=frozenset(), hooks=(guarding,))
    assert [name for name, _ in made.stages] == ["engine", "guard", "seal"]
    assert BOUNDARY in NOTHING.system
