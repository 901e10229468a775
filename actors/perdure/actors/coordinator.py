"""Who may compact now: one pure state machine per session that owns every compaction, whatever asks.

    rest ──Start──► flush ──flushed──► summary ──committed──► rest      (flush → compact → verify → notify)
                      └──────────── failed, dropped ─────────► rest

Rules: single-flight; at most three consecutive attempts without an accepted model call between them;
after three failures the automatic triggers back off, doubling, while overflow may always try; a view
that could not shrink is remembered and not tried again until it changes; memory is flushed once a cycle
ahead of time (`soft`), and of what came since right before a loss. When something *wants* a compaction is
the trigger's business (a slot); a person who commands one is refused only while another runs. Every
function returns a new state, so that a property test can walk all interleavings. A run's number fences
its worker's reports.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec.structs import replace

from perdure.context.numbers import MAX_COMPACTION_ATTEMPTS
from perdure.contracts import CompactionReason
from perdure.records import Record

Reason: TypeAlias = CompactionReason
Phase: TypeAlias = Literal["rest", "flush", "summary"]

MAX_CONSECUTIVE = MAX_COMPACTION_ATTEMPTS
BACK_OFF_START = 60.0  # seconds; doubles with every further failure
BACK_OFF_CAP = 3600.0
AUTOMATIC = ("threshold", "idle", "size")  # nobody waits for these, so they back off


class Coordinator(Record):
    """The state. `attempts` counts commits and failures since the last accepted model call.

    `flush`: this cycle's is due, one is being made, or the latest was done or failed.
    """

    running: Reason | None = None
    phase: Phase = "rest"
    run: int = 0
    attempts: int = 0
    failures: int = 0
    retry_at: float = 0.0
    hopeless: str | None = None  # the leaf of a view that could not shrink
    flush: Literal["due", "under way", "done", "failed"] = "due"


class Start(Record):
    """Begin now."""

    reason: Reason


class Wait(Record):
    """One is running: its end will be told."""

    running: Reason


class Refuse(Record):
    """Not now, and why, in words for a person."""

    why: str
    cause: Literal["floor", "attempts", "summariser"]


Verdict: TypeAlias = Start | Wait | Refuse


def ask(state: Coordinator, reason: Reason, *, leaf: str, now: float) -> Verdict:
    """Whether a compaction for `reason` may start on the view that ends in `leaf`."""
    if state.running is not None:
        return Wait(state.running)
    if reason == "manual":
        return Start(reason)
    if state.hopeless == leaf:
        return Refuse("this view could not be made smaller", "floor")
    if state.attempts >= MAX_CONSECUTIVE:
        return Refuse(f"{MAX_CONSECUTIVE} compactions in a row brought no accepted model call", "attempts")
    if reason in AUTOMATIC and now < state.retry_at:
        return Refuse("earlier compactions failed; waiting before the next try", "summariser")
    return Start(reason)


def begin(state: Coordinator, reason: Reason, *, flushes: bool = False) -> Coordinator:
    """A compaction starts; a manual one is a fresh beginning for the count.

    `flushes`: there is something to flush, which comes first.
    """
    attempts = 1 if reason == "manual" else state.attempts + 1
    phase: Phase = "flush" if flushes else "summary"
    return replace(state, running=reason, phase=phase, run=state.run + 1, attempts=attempts)


def wants_flush(state: Coordinator, tokens: int, soft_line: int) -> bool:
    """Whether memory should be flushed now, ahead of a compaction that comes nearer."""
    return state.flush == "due" and state.running is None and tokens > soft_line


def flushing(state: Coordinator) -> Coordinator:
    """Memory is being flushed."""
    return replace(state, flush="under way")


def flushed(state: Coordinator, *, well: bool, soft: bool = False) -> Coordinator:
    """It was, or could not be: a compaction that waited for it goes on in either case.

    `soft`: it was begun ahead of the compaction, which flushes what came since before it goes on.
    """
    phase: Phase = "summary" if state.phase == "flush" and not soft else state.phase
    return replace(state, flush="done" if well else "failed", phase=phase)


def accepted(state: Coordinator) -> Coordinator:
    """A model accepted a request: what was tried before has worked."""
    return replace(state, attempts=1 if state.running else 0) if state.attempts else state


def committed(state: Coordinator) -> Coordinator:
    """The compaction is in the file: failures are forgotten, a new cycle begins."""
    return Coordinator(run=state.run, attempts=state.attempts)


def failed(state: Coordinator, *, now: float, hopeless: str | None = None) -> Coordinator:
    """It ended without a commit; `hopeless` names the leaf of a view that can't shrink."""
    failures = state.failures + 1
    over = failures - MAX_CONSECUTIVE
    retry_at = now + min(BACK_OFF_CAP, BACK_OFF_START * 2**over) if over >= 0 else state.retry_at
    return replace(
        state,
        running=None,
        phase="rest",
        failures=failures,
        retry_at=retry_at,
        hopeless=hopeless or state.hopeless,
    )


def asleep(state: Coordinator) -> Coordinator:
    """What outlives a sleep: a session that is put to sleep after each turn must back off all the same."""
    if not (state.attempts or state.failures or state.hopeless):
        return FRESH
    return replace(state, running=None, phase="rest", flush="due")


FRESH = Coordinator()  # one for all that have nothing to remember


def dropped(state: Coordinator) -> Coordinator:
    """It was stopped, or came for a view that is gone: it neither failed nor counts."""
    return replace(state, running=None, phase="rest", attempts=max(0, state.attempts - 1))
