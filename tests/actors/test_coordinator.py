"""The coordinator as a state machine: every interleaving of asks, ends and accepted calls keeps its rules."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.actors import coordinator as c
from perdure.actors.coordinator import Coordinator, Reason, Refuse, Start, Wait

REASONS: tuple[Reason, ...] = ("overflow", "threshold", "manual", "idle", "size", "model_switch")
AUTOMATIC = ("threshold", "idle", "size")
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

    @rule(reason=reasons, policy=st.sampled_from(["auto", "manual"]))
    def ask(self, reason: Reason, policy: c.Policy) -> None:
        verdict = c.ask(self.state, reason, leaf=str(self.leaf), now=self.now, policy=policy)
        if self.running is not None and (policy == "auto" or reason in ("manual", "model_switch")):
            assert verdict == Wait(self.running)
        if policy == "manual" and reason not in ("manual", "model_switch"):
            assert isinstance(verdict, Refuse)
        if isinstance(verdict, Refuse):
            assert verdict.why
            assert reason != "manual"
        if not isinstance(verdict, Start):
            return
        assert self.running is None
        assert reason == "manual" or self.row < c.MAX_CONSECUTIVE
        assert reason == "manual" or self.dead != self.leaf
        if reason in AUTOMATIC and self.failures >= c.MAX_CONSECUTIVE:
            wait = min(c.BACK_OFF_CAP, c.BACK_OFF_START * 2 ** (self.failures - c.MAX_CONSECUTIVE))
            assert self.now >= self.failed_at + wait
        self.row = 1 if reason == "manual" else self.row + 1
        self.state, self.running = c.begin(self.state, reason), reason

    @precondition(lambda self: self.running is None)
    @rule(reason=st.sampled_from(["overflow", "model_switch"]))
    def what_must_act_may_try_whatever_failed_before(self, reason: Reason) -> None:
        verdict = c.ask(self.state, reason, leaf=str(self.leaf), now=self.now, policy="auto")
        assert isinstance(verdict, Start) == (self.row < c.MAX_CONSECUTIVE and self.dead != self.leaf)

    @precondition(lambda self: self.running is not None)
    @rule()
    def commit(self) -> None:
        self.state, self.running = c.committed(self.state), None
        self.failures, self.dead = 0, None
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
        self.row = 1 if self.running else 0

    @rule(seconds=st.sampled_from([1.0, 59.0, 61.0, 600.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_view_grows(self) -> None:
        self.leaf += 1

    @invariant()
    def agrees(self) -> None:
        assert self.state.running == self.running
        assert self.state.attempts == self.row
        assert self.state.failures == self.failures


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCoordinator = Machine.TestCase


def test_the_back_off_doubles_up_to_an_hour_and_is_forgotten_after_a_commit() -> None:
    state, waits = Coordinator(), []
    for n in range(12):
        state = c.failed(c.begin(c.accepted(state), "threshold"), now=0.0)
        waits.append(state.retry_at)
        assert isinstance(c.ask(c.accepted(state), "overflow", leaf=f"{n}", now=0.0, policy="auto"), Start)
    assert waits == [0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]
    assert c.committed(c.begin(state, "overflow")).retry_at == 0


def test_a_view_that_cannot_shrink_is_asked_about_once_until_it_changes_or_a_person_insists() -> None:
    state = c.failed(c.begin(Coordinator(), "overflow"), now=0.0, hopeless="leaf")
    assert isinstance(c.ask(state, "overflow", leaf="leaf", now=9e9, policy="auto"), Refuse)
    assert isinstance(c.ask(state, "manual", leaf="leaf", now=0.0, policy="auto"), Start)
    assert isinstance(c.ask(state, "overflow", leaf="other", now=0.0, policy="auto"), Start)


def test_a_verdict_on_a_view_outlives_a_manual_try_that_led_nowhere() -> None:
    state = c.failed(c.begin(Coordinator(), "overflow"), now=0.0, hopeless="leaf")
    state = c.dropped(c.begin(state, "manual"))
    assert isinstance(c.ask(c.accepted(state), "overflow", leaf="leaf", now=0.0, policy="auto"), Refuse)
