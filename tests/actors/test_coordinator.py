"""The coordinator as a state machine: every interleaving of asks, ends and accepted calls keeps its rules."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.actors import coordinator as c
from perdure.actors.coordinator import Coordinator, Reason, Refuse, Start, Wait

REASONS: tuple[Reason, ...] = ("overflow", "threshold", "manual", "idle", "size", "model_switch")
reasons = st.sampled_from(REASONS)


class Machine(RuleBasedStateMachine):
    """A model of the rules in other words: counts kept here, compared with what the coordinator allows."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.now, self.leaf = Coordinator(), 0.0, 0
        self.running: Reason | None = None
        self.row = 0  # attempts begun since an accepted call or a manual fresh beginning
        self.failures = 0
        self.failed_at = 0.0
        self.dead: int | None = None
        self.flush, self.soft = "due", False

    @rule(reason=reasons, flushes=st.booleans())
    def ask(self, reason: Reason, flushes: bool) -> None:
        verdict = c.ask(self.state, reason, leaf=str(self.leaf), now=self.now)
        if self.running is not None:
            assert verdict == Wait(self.running)
        if isinstance(verdict, Refuse):
            assert verdict.why
            assert reason != "manual"
        if not isinstance(verdict, Start):
            return
        assert self.running is None
        assert reason == "manual" or self.row < c.MAX_CONSECUTIVE
        assert reason == "manual" or self.dead != self.leaf
        if reason in c.AUTOMATIC and self.failures >= c.MAX_CONSECUTIVE:
            wait = min(c.BACK_OFF_CAP, c.BACK_OFF_START * 2 ** (self.failures - c.MAX_CONSECUTIVE))
            assert self.now >= self.failed_at + wait
        self.row = 1 if reason == "manual" else self.row + 1
        before = self.state.run
        self.state, self.running = c.begin(self.state, reason, flushes=flushes), reason
        assert self.state.run == before + 1
        assert self.state.phase == ("flush" if flushes else "summary")

    @precondition(lambda self: self.running is None)
    @rule(reason=st.sampled_from(["overflow", "model_switch"]))
    def what_must_act_may_try_whatever_failed_before(self, reason: Reason) -> None:
        verdict = c.ask(self.state, reason, leaf=str(self.leaf), now=self.now)
        assert isinstance(verdict, Start) == (self.row < c.MAX_CONSECUTIVE and self.dead != self.leaf)

    @precondition(lambda self: c.wants_flush(self.state, 2, 1) or self.state.phase == "flush")
    @precondition(lambda self: self.flush != "under way")
    @rule()
    def memory_is_flushed(self) -> None:
        self.soft = self.running is None
        self.state, self.flush = c.flushing(self.state), "under way"

    @precondition(lambda self: self.flush == "under way")
    @rule(well=st.booleans())
    def the_flush_ends(self, well: bool) -> None:
        waited = self.state.phase == "flush"
        self.state = c.flushed(self.state, well=well, soft=self.soft)
        self.flush = "done" if well else "failed"
        assert self.state.phase == "flush" if waited and self.soft else self.state.phase != "flush"

    @precondition(lambda self: self.state.phase == "summary")
    @rule()
    def commit(self) -> None:
        self.state, self.running = c.committed(self.state), None
        self.failures, self.dead, self.flush = 0, None, "due"
        self.leaf += 1

    @precondition(lambda self: self.running is not None)
    @rule(hopeless=st.booleans())
    def fail(self, hopeless: bool) -> None:
        self.state = c.failed(self.state, now=self.now, hopeless=str(self.leaf) if hopeless else None)
        self.running, self.failures, self.failed_at = None, self.failures + 1, self.now
        self.dead = self.leaf if hopeless else self.dead

    @precondition(lambda self: self.running is not None)
    @rule()
    def drop(self) -> None:
        self.state, self.running = c.dropped(self.state), None
        self.row = max(0, self.row - 1)

    @rule()
    def a_model_accepts_a_request(self) -> None:
        self.state = c.accepted(self.state)
        self.row = min(self.row, 1 if self.running else 0)

    @rule(seconds=st.sampled_from([1.0, 59.0, 61.0, 600.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_view_grows(self) -> None:
        self.leaf += 1

    @invariant()
    def agrees(self) -> None:
        assert self.state.running == self.running
        assert (self.state.phase == "rest") == (self.running is None)
        assert self.state.attempts == self.row
        assert self.state.failures == self.failures
        assert self.state.flush == self.flush


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCoordinator = Machine.TestCase


# --- every state there is -------------------------------------------------------------------------

NOW, LATER = 0.0, 10 * c.BACK_OFF_CAP


def moves(state: Coordinator) -> Iterator[tuple[str, Coordinator]]:
    """All that can happen next, at a moment and long after."""
    yield "accepted", c.accepted(state)
    for now in (NOW, LATER):
        for reason in REASONS:
            if isinstance(c.ask(state, reason, leaf="leaf", now=now), Start):
                yield f"begin {reason}", c.begin(state, reason, flushes=True)
    if state.flush == "under way":
        for soft in (True, False):
            yield "flushed", c.flushed(state, well=True, soft=soft)
            yield "not flushed", c.flushed(state, well=False, soft=soft)
    elif state.phase == "flush" or c.wants_flush(state, 2, 1):
        yield "flush", c.flushing(state)
    if state.phase == "summary":
        yield "commit", c.committed(state)
    if state.running is not None:
        yield "fail", c.failed(state, now=NOW)
        yield "hopeless", c.failed(state, now=NOW, hopeless="leaf")
        yield "drop", c.dropped(state)


def shape(state: Coordinator) -> tuple[object, ...]:
    """What decides about the future: counts beyond the last rule are the same to it."""
    return (
        state.running,
        state.phase,
        min(state.attempts, c.MAX_CONSECUTIVE + 1),
        min(state.failures, c.MAX_CONSECUTIVE + 7),
        state.hopeless,
        state.flush,
    )


def test_in_every_state_that_can_be_reached_the_rules_hold_and_there_is_a_way_on() -> None:
    """Walks all states and all moves between them, to the end."""
    seen, front = {shape(Coordinator())}, [Coordinator()]
    while front:
        state = front.pop()
        ways = list(moves(state))
        assert state.attempts <= c.MAX_CONSECUTIVE
        assert (state.phase == "rest") == (state.running is None)
        for name, after in ways:
            if name == "commit":  # flush precedes loss: it has been made, or failed
                assert state.phase == "summary"
            if name.startswith("begin"):
                assert state.running is None
            if shape(after) not in seen:
                seen.add(shape(after))
                front.append(after)
        ends = {name for name, after in ways if after.running is None and state.running is not None}
        assert state.running is None or ends >= {"fail", "hopeless", "drop"}
        if state.running is None:  # a person may always try
            assert any(name == "begin manual" for name, _ in ways)
    assert len(seen) > 300


def test_the_back_off_doubles_up_to_an_hour_and_is_forgotten_after_a_commit() -> None:
    state, waits = Coordinator(), []
    for n in range(12):
        state = c.failed(c.begin(c.accepted(state), "threshold"), now=0.0)
        waits.append(state.retry_at)
        assert isinstance(c.ask(c.accepted(state), "overflow", leaf=f"{n}", now=0.0), Start)
    assert waits == [0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    assert c.committed(c.begin(state, "overflow")).retry_at == 0


def test_a_view_that_cannot_shrink_is_asked_about_once_until_it_changes_or_a_person_insists() -> None:
    state = c.failed(c.begin(Coordinator(), "overflow"), now=0.0, hopeless="leaf")
    assert isinstance(c.ask(state, "overflow", leaf="leaf", now=9e9), Refuse)
    assert isinstance(c.ask(state, "manual", leaf="leaf", now=0.0), Start)
    assert isinstance(c.ask(state, "overflow", leaf="other", now=0.0), Start)


def test_a_verdict_on_a_view_outlives_a_manual_try_that_led_nowhere() -> None:
    state = c.failed(c.begin(Coordinator(), "overflow"), now=0.0, hopeless="leaf")
    state = c.dropped(c.begin(state, "manual"))
    assert isinstance(c.ask(c.accepted(state), "overflow", leaf="leaf", now=0.0), Refuse)


def test_memory_is_flushed_once_a_cycle_ahead_of_time_and_again_before_the_loss() -> None:
    for well in (True, False):
        state = c.flushed(c.flushing(Coordinator()), well=well, soft=True)
        assert not c.wants_flush(state, 9, 1)
        state = c.begin(state, "threshold", flushes=True)
        assert state.phase == "flush"
        state = c.flushed(c.flushing(state), well=well)
        assert state.phase == "summary"
        assert c.wants_flush(c.committed(state), 9, 1)


def test_a_flush_that_was_begun_ahead_is_waited_for_and_followed_by_what_came_since() -> None:
    state = c.begin(c.flushing(Coordinator()), "overflow", flushes=True)
    state = c.flushed(state, well=True, soft=True)
    assert (state.phase, state.flush) == ("flush", "done")
    assert c.flushed(c.flushing(state), well=True).phase == "summary"
