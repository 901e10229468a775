"""Telling cancellations from faults, also inside groups. Pure but for `calm`."""

from __future__ import annotations

import asyncio

import trio

from perdure.kernel.errors import JobCancelled, ScopeExpired
from perdure.kernel.park import on_trio

_CANCELS = (asyncio.CancelledError, trio.Cancelled, JobCancelled, ScopeExpired)
_FATAL = (KeyboardInterrupt, SystemExit, GeneratorExit)


def only_cancelled(exc: BaseException) -> bool:
    """Whether it is nothing but cancellation."""
    if isinstance(exc, BaseExceptionGroup):
        return all(only_cancelled(inner) for inner in exc.exceptions)
    return isinstance(exc, _CANCELS)


def fatal(exc: BaseException) -> bool:
    """Whether it must reach the root: somebody ends the program."""
    if isinstance(exc, BaseExceptionGroup):
        return any(fatal(inner) for inner in exc.exceptions)
    return isinstance(exc, _FATAL)


def calm() -> None:
    """Forget native cancellation requests against this task, which a library made and nobody wants."""
    if on_trio():
        return
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
