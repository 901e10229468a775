"""How a job ended, as data. Exactly one of these reaches `on_end`, exactly once."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

MOST_OF_A_TRACE = 40  # lines of a traceback, the last ones


@dataclass(frozen=True, slots=True)
class Returned:
    """It came to its end; `value` is what it returned."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It raised; a stray cancellation from a library counts as a failure of the job, not of the host."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """We cancelled it and it obeyed."""


@dataclass(frozen=True, slots=True)
class Lost:
    """We cancelled it and it didn't obey within the grace: its later reports are refused by number."""


@dataclass(frozen=True, slots=True)
class Superseded:
    """A newer message of the same key took its place in the queue before it was begun."""


Outcome: TypeAlias = Returned | Failed | Cancelled | Lost | Superseded


def at_once(work: Callable[[], object]) -> Outcome:
    """How `work` ends, done here and now."""
    try:
        return Returned(work())
    except Exception as error:
        return Failed(error)


def describe(outcome: object) -> str:
    """One line for a bad end."""
    return (
        f"{type(outcome.error).__name__}: {outcome.error}"
        if isinstance(outcome, Failed)
        else type(outcome).__name__
    )


def trace_of(outcome: object) -> str:
    """The whole story of a bad end, for a log: where it was raised, and why."""
    if not isinstance(outcome, Failed):
        return type(outcome).__name__
    return "".join(traceback.format_exception(outcome.error)[-MOST_OF_A_TRACE:])
