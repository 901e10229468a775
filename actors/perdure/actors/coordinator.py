"""Who may compact now: one pure state machine per session that owns every compaction, whatever asks.

Rules: single-flight; at most three consecutive attempts without an accepted model call between them;
after three failures the automatic triggers back off, doubling, while overflow may always try; a view
that could not shrink is remembered and not tried again until it changes; a `manual` policy never fires
by itself. Every function returns a new state, so that a property test can walk all interleavings.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from perdure.records import Record

Reason: TypeAlias = Literal["overflow", "threshold", "manual", "idle", "size", "model_switch"]
Policy: TypeAlias = Literal["auto", "manual"]

MAX_CONSECUTIVE = 3
BACK_OFF_START = 60.0  # seconds; doubles with every further failure
BACK_OFF_CAP = 3600.0


class Coordinator(Record):
    """The state. `attempts` counts commits and failures since the last accepted model call."""

    running: Reason | None = None
    attempts: int = 0
    failures: int = 0
    retry_at: float = 0.0
    hopeless: str | None = None  # the leaf of a view that could not shrink


class Start(Record):
    """Begin now."""

    reason: Reason


class Wait(Record):
    """One is running: its end will be told."""

    running: Reason


class Refuse(Record):
    """Not now, and why, in words for a person."""

    why: str


Verdict: TypeAlias = Start | Wait | Refuse


def ask(state: Coordinator, reason: Reason, *, leaf: str, now: float, policy: Policy) -> Verdict:
    """Whether a compaction for `reason` may start on the view that ends in `leaf`."""
    if policy == "manual" and reason not in ("manual", "model_switch"):
        return Refuse(
            "the compaction trigger is manual: send /compact, start anew with /new, or use a larger model"
        )
    if state.running is not None:
        return Wait(state.running)
    if state.hopeless == leaf and reason != "manual":
        return Refuse("this view could not be made smaller")
    if state.attempts >= MAX_CONSECUTIVE and reason != "manual":
        return Refuse(f"{MAX_CONSECUTIVE} compactions in a row brought no accepted model call")
    if reason in ("threshold", "idle", "size") and now < state.retry_at:
        return Refuse("earlier compactions failed; waiting before the next try")
    return Start(reason)


def begin(state: Coordinator, reason: Reason) -> Coordinator:
    """A compaction starts; a manual one is a fresh beginning for the count."""
    attempts = 1 if reason == "manual" else state.attempts + 1
    return Coordinator(reason, attempts, state.failures, state.retry_at, state.hopeless)


def accepted(state: Coordinator) -> Coordinator:
    """A model accepted a request: what was tried before has worked."""
    if not state.attempts:
        return state
    return Coordinator(
        state.running, 1 if state.running else 0, state.failures, state.retry_at, state.hopeless
    )


def committed(state: Coordinator) -> Coordinator:
    """The compaction is in the file: failures are forgotten."""
    return Coordinator(None, state.attempts, 0, 0.0, None)


def failed(state: Coordinator, *, now: float, hopeless: str | None = None) -> Coordinator:
    """It ended without a commit; `hopeless` names the leaf of a view that can't shrink."""
    failures = state.failures + 1
    over = failures - MAX_CONSECUTIVE
    retry_at = now + min(BACK_OFF_CAP, BACK_OFF_START * 2**over) if over >= 0 else state.retry_at
    return Coordinator(None, state.attempts, failures, retry_at, hopeless or state.hopeless)


def dropped(state: Coordinator) -> Coordinator:
    """Its result came for a view that is gone (another generation): it neither failed nor counts."""
    return Coordinator(None, max(0, state.attempts - 1), state.failures, state.retry_at, state.hopeless)
