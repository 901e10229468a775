"""A step costs its tail only, and gives what doing everything anew gives."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_histories import HISTORIES, MESSAGES
from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions, as_decisions
from perdure.context.policy import TranscriptPolicy, policy_for
from perdure.context.safety.heartbeat import drop_silent_heartbeats
from perdure.context.safety.sanitize import Before, sanitize
from perdure.context.safety.seal import seal
from perdure.context.safety.strip import strip
from perdure.context.safety.validate import validate
from perdure.context.settled import JUMP, Settled
from perdure.records import Assistant, Item, Items, Summary, Text, ToolResult, User

CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
POLICY = policy_for(SONNET)

# Whole turns make cuts likely; hostile messages between them try to reach back.
TURN = st.one_of(
    st.just((user("q"), says("a"))),
    st.just((user("q"), says(call("exec_0")), result("exec_0", "x"), says("a"))),
    st.just((user("q"), says(call("c1")), says("a"))),
    st.just((result("c1", "late"),)),
    st.just((user("reply HEARTBEAT_OK"), says("HEARTBEAT_OK"))),
    st.just((user(""), says("a"))),
    st.just((user("q"), says("no", stop="error"))),
    MESSAGES.map(lambda message: (message,)),
)
GROWTHS = st.lists(st.lists(TURN, max_size=3).map(lambda turns: sum(turns, ())), min_size=1, max_size=6)


def steps_of(policy: TranscriptPolicy, decided: Decisions):
    def steps(now: Items, before: Before | None) -> Changed:
        done = strip(now).then(lambda bare: sanitize(bare, policy, SONNET, decided=decided, before=before))
        return done.then(lambda clean: validate(clean, policy)).then(drop_silent_heartbeats)

    return steps


@CALM
@given(GROWTHS, st.booleans(), st.sampled_from([1, 5, JUMP]))
def test_a_growing_history_gives_the_same_with_and_without_what_was_settled(growths, drops, jump):
    policy = replace(POLICY, drop_thinking=drops)
    settled, sealed = Settled(jump), Settled(jump)
    history: Items = ()
    decided: Decisions = NOTHING_DECIDED
    for messages in growths:
        history += tuple(Item(f"e{len(history) + n}", message) for n, message in enumerate(messages))
        steps = steps_of(policy, decided)
        anew = steps(history, None)
        done = settled.run(history, steps, key=policy, policy=policy, decided=decided)
        assert done.items == anew.items
        assert done.thinking == anew.thinking
        assert set(done.lines) == set(anew.lines)
        assert as_decisions(done.decisions) == as_decisions(anew.decisions)
        last = seal(done.items, policy, SONNET, decided=decided, settled=sealed)
        assert last == seal(done.items, policy, SONNET, decided=decided)
        decided = as_decisions((*decided.values(), *done.decisions))


@CALM
@given(HISTORIES, HISTORIES)
def test_another_history_is_never_taken_for_the_settled_one(one, other):
    settled = Settled(jump=1)
    steps = steps_of(POLICY, NOTHING_DECIDED)
    for history in (one, other, one[:3] + other):
        done = settled.run(history, steps, key=1, policy=POLICY, decided=NOTHING_DECIDED)
        assert done.items == steps(history, None).items


def counting(seen: list[int]):
    steps = steps_of(POLICY, NOTHING_DECIDED)

    def counted(now: Items, before: Before | None) -> Changed:
        seen.append(len(now))
        return steps(now, before)

    return counted


def turn(n: int) -> tuple[User | Assistant | ToolResult, ...]:
    return (user(f"q{n}"), says(call(f"c{n}")), result(f"c{n}"), says(f"a{n}"))


def test_a_step_looks_at_the_tail_only() -> None:
    settled, seen = Settled(), list[int]()
    history = items(*(message for n in range(500) for message in turn(n)))
    for n in range(3):
        settled.run(history, counting(seen), key=1, policy=POLICY, decided=NOTHING_DECIDED)
        history = (*history, *(replace(item, entry=f"n{n}{item.entry}") for item in items(*turn(9000 + n))))
    assert max(seen[1:]) <= 12


def test_a_late_result_of_a_settled_call_is_still_sent_as_a_note() -> None:
    settled = Settled(jump=1)
    steps = steps_of(POLICY, NOTHING_DECIDED)
    history = items(
        user("q"), says(call("c1")), says("a"), user("b"), says("c"), user("d"), result("c1", "late")
    )
    for n in range(1, len(history) + 1):
        done = settled.run(history[:n], steps, key=1, policy=POLICY, decided=NOTHING_DECIDED)
    assert Text("late") in done.items[-1].message.content  # type: ignore[union-attr]


def test_a_new_compaction_settles_anew() -> None:
    settled = Settled(jump=1)
    steps = steps_of(POLICY, NOTHING_DECIDED)
    history = items(*turn(1), *turn(2))
    settled.run(history, steps, key=1, policy=POLICY, decided=NOTHING_DECIDED)
    compacted = (Item("s", Summary("x", timestamp=5)), *history[4:])
    done = settled.run(compacted, steps, key=1, policy=POLICY, decided=NOTHING_DECIDED)
    assert done.items == steps(compacted, None).items
