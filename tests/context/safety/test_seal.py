"""No request is refused for structure, from any history whatever; and what is sent stays the same."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_histories import HISTORIES, MESSAGES
from helpers_messages import OPUS, SONNET
from helpers_strict import complaints
from perdure.context import pipeline
from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions, as_decisions
from perdure.context.environment import resolve
from perdure.context.numbers import limits
from perdure.context.policy import policy_for
from perdure.context.safety.heartbeat import drop_silent_heartbeats
from perdure.context.safety.limit import limit
from perdure.context.safety.repair import repair
from perdure.context.safety.sanitize import sanitize
from perdure.context.safety.seal import ends, seal
from perdure.context.safety.strip import strip
from perdure.context.safety.validate import validate
from perdure.context.wire import Memo, render
from perdure.edges.models import strict
from perdure.records import (
    Item,
    Items,
    ModelInfo,
    Summary,
    ToolSpec,
)

READ = ToolSpec("read", "Reads a file", b'{"type":"object","properties":{"path":{"type":"string"}}}')


MODELS = st.sampled_from([SONNET, OPUS, replace(SONNET, thinking="none", images=False)])
LEVELS = st.sampled_from(["off", "low", "high"])
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def prepared(
    history: Items,
    model: ModelInfo,
    level: str,
    decided: Decisions,
    turns: int = 0,
    unseen: frozenset[str] | None = None,
) -> Changed:
    """All safety steps in their order, then the seal; as the pipeline runs them."""
    policy = policy_for(model)
    done = strip(history).then(
        lambda now: sanitize(now, policy, model, thinking=level, decided=decided, unseen=unseen)
    )
    done = done.then(lambda now: validate(now, policy))
    done = done.then(drop_silent_heartbeats)
    done = done.then(lambda now: limit(now, turns, decided))
    done = done.then(lambda now: repair(now, decided=decided, unseen=unseen))
    on = level if done.thinking else "off"
    return done.then(lambda now: seal(now, policy, model, thinking=on, decided=decided, unseen=unseen))


def body_of(
    done: Changed, model: ModelInfo, level: str, *, max_tokens: int = 8000, memo: Memo | None = None
) -> bytes:
    return render(
        done.items,
        system="You are perdure.\n<!-- PERDURE_CACHE_BOUNDARY -->\nRuntime: test",
        tools=(READ,),
        model=model,
        policy=policy_for(model),
        max_tokens=max_tokens,
        thinking_level=level if done.thinking else "off",
        memo=memo,
    )


@SLOW
@given(HISTORIES, MODELS, LEVELS, st.sampled_from([0, 1, 3]))
def test_no_request_is_refused_for_its_structure_whatever_the_history(history, model, level, turns):
    body = body_of(prepared(history, model, level, {}, turns), model, level)
    assert complaints(body) == []
    strict.validate(json.loads(body), model=model)


@SLOW
@given(HISTORIES, MODELS, LEVELS)
def test_a_history_that_skipped_every_step_is_made_acceptable_by_the_seal_alone(history, model, level):
    done = seal(history, policy_for(model), model, thinking=level)
    body = body_of(done, model, level)
    assert complaints(body) == []
    strict.validate(json.loads(body), model=model)


@SLOW
@given(HISTORIES, MODELS, LEVELS)
def test_sealing_what_is_sealed_changes_nothing(history, model, level):
    policy = policy_for(model)
    once = seal(history, policy, model, thinking=level)
    again = seal(once.items, policy, model, thinking=level if once.thinking else "off")
    assert again.items == once.items
    assert again.lines == ()
    decided = as_decisions(once.decisions)
    assert (
        seal(once.items, policy, model, thinking=level if once.thinking else "off", decided=decided).items
        == once.items
    )


@SLOW
@given(HISTORIES)
def test_repairing_what_is_repaired_changes_nothing(history):
    once = repair(history)
    again = repair(once.items, decided=as_decisions(once.decisions))
    assert again.items == once.items
    assert again.lines == ()


@SLOW
@given(HISTORIES, MODELS, LEVELS)
def test_the_same_history_gives_the_same_bytes_and_stays_as_it_was(history, model, level):
    before = repr(history)
    first = body_of(prepared(history, model, level, {}), model, level)
    assert body_of(prepared(history, model, level, {}), model, level) == first
    assert repr(history) == before


@SLOW
@given(HISTORIES, HISTORIES, LEVELS)
def test_no_entry_vanishes_without_a_named_rule(history, more, level):
    done = prepared(history, SONNET, level, {})
    sent = {item.entry for item in done.items}
    told = {line.entry for line in done.lines}
    assert {item.entry for item in history} <= sent | told


@SLOW
@given(HISTORIES, HISTORIES, MODELS)
def test_a_memo_never_changes_the_bytes(history, more, model):
    memo = Memo()
    for grown in (history, history + more, history[:3] + more):
        done = prepared(grown, model, "off", {})
        assert body_of(done, model, "off", memo=memo) == body_of(done, model, "off")


GROWTH = st.lists(MESSAGES.filter(lambda message: not isinstance(message, Summary)), max_size=6)


@SLOW
@given(HISTORIES, GROWTH, MODELS, LEVELS)
def test_messages_that_come_later_never_change_the_bytes_of_earlier_ones(history, later, model, level):
    more = tuple(Item(f"later{n}", message) for n, message in enumerate(later))
    first = prepared(history, model, level, {})
    decided = as_decisions(first.decisions)
    second = prepared(history + more, model, level, decided, unseen=frozenset(item.entry for item in more))
    one, two = (json.loads(body_of(done, model, level)) for done in (first, second))
    # Exceptions, each by its own rule: thinking turned off or on; the floor of images moved; thinking
    # from before a compaction goes when its tool loop closes.
    moved = any(decision.key == "images" for decision in second.decisions)
    compacted = level != "off" and any(isinstance(item.message, Summary) for item in history)
    if one.get("thinking") != two.get("thinking") or moved or compacted:
        return
    blocks, grown = ([unmarked(b, m) for m in each["messages"] for b in m["content"]] for each in (one, two))
    if first.items[-1].entry == "":
        blocks.pop()  # the line that stands for the user's next one
    assert grown[: len(blocks)] == blocks


def unmarked(block: dict[str, object], message: dict[str, object]) -> tuple[object, dict[str, object]]:
    return message["role"], {key: value for key, value in block.items() if key != "cache_control"}


ANY_MODEL = st.sampled_from(
    [
        SONNET,
        OPUS,
        ModelInfo("scripted", "x", thinking="adaptive"),
        ModelInfo("openai", "gpt-5", api="openai-responses"),
        ModelInfo("openai", "gpt-4", api="openai-completions", images=False),
        ModelInfo("mistral", "m"),
        ModelInfo("google", "gemini-2.5"),
    ]
)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(HISTORIES, ANY_MODEL, st.sampled_from(["off", "high"]), st.booleans())
def test_what_the_safety_steps_made_and_nobody_touched_needs_nothing_but_its_two_ends(
    history: Items, model: ModelInfo, thinking: str, drops: bool
) -> None:
    env = resolve("agent:a:x", model, "system", (), limits(200_000), thinking=thinking)
    env = replace(env, policy=replace(env.policy, drop_thinking=drops))
    decided: Decisions = NOTHING_DECIDED
    for _ in range(2):
        stage = pipeline.history(history, env, decided)
        level = thinking if stage.thinking else "off"
        sealed = seal(stage.items, env.policy, model, thinking=level, decided=decided)
        bare = ends(stage.items)
        assert sealed.items == bare.items
        assert set(sealed.lines) == set(bare.lines)
        assert sealed.thinking or not stage.thinking
        assert set(sealed.decisions) <= {*stage.decisions, *decided.values()}
        decided = as_decisions((*decided.values(), *stage.decisions))
