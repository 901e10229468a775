"""What Ctrl-C and a request to end do while a host runs: everything ends in order, and says why by its code.

Ctrl-C stops an answer that is under way; without one, or while it is being stopped, it ends the program.
A signal during the end itself is obeyed at once: what is lost then is what a killed host loses, nothing
that was acknowledged.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from perdure.cli.exits import BUG, INTERRUPTED
from perdure.cli.output import warn
from perdure.edges.machine import raise_open_files
from perdure.errors import PerdureError
from perdure.host import Host

LEAVE = 5.0  # seconds that tasks which will not end are still given
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """The program was told to end: the host closes without giving running turns time to."""


class Attended(Protocol):
    """A host that a command runs, or talks to."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, *details: Any) -> object: ...
    async def abort(self, key: str) -> bool: ...


class Signals:
    """Of one host and the session it serves. `busy` says whether a turn of it is under way."""

    def __init__(self, host: Attended, key: str, group: TaskGroup) -> None:
        self._host, self._key, self._group = host, key, group
        self._scope = anyio.CancelScope()
        self.busy: Callable[[], bool] = lambda: False
        self.aborting = False  # Ctrl-C has stopped the turn that is under way
        self.code = 0  # how the program ends, if by a signal

    async def listen(self, *, task_status: TaskStatus[None]) -> None:
        """Take signals until cancelled."""
        ends = (sign for sign in _ENDS if signal.getsignal(sign) is signal.SIG_DFL)  # `nohup` is obeyed
        with anyio.open_signal_receiver(signal.SIGINT, *ends) as received:
            task_status.started()
            async for number in received:
                self._received(number)

    async def obey(self, work: Callable[[], Awaitable[int]]) -> int:
        """Its exit code. Raises `Stopped` where a signal ends it first."""
        result = 0
        with self._scope:
            result = await work()
        if self.code:
            raise Stopped
        return result

    def end(self, code: int) -> None:
        """End the work; where that has begun already, the program."""
        if self.code:
            _vanish(self.code)
        self.code = code
        self._scope.cancel()

    def _received(self, number: int) -> None:
        if number == signal.SIGINT and not self.code and not self.aborting and self.busy():
            self.aborting = True
            self._group.start_soon(self._abort)
        else:
            self.end(128 + number)

    async def _abort(self) -> None:
        try:
            stopped = await self._host.abort(self._key)
        except PerdureError:
            stopped = False
        if not stopped and not self.code:  # nothing runs that could be stopped
            self.end(INTERRUPTED)


@asynccontextmanager
async def _watched(host: Attended, key: str) -> AsyncIterator[Signals]:
    async with anyio.create_task_group() as group:
        signals = Signals(host, key, group)
        await group.start(signals.listen)
        try:
            yield signals
        finally:
            group.cancel_scope.cancel()


async def hosted(host: Host, key: str, work: Callable[[Signals], Awaitable[int]]) -> int:
    """Run the host and the work in it; the exit code: the work's, or 128 and the signal's number."""
    raise_open_files()
    host.on_lost = _leave_soon
    return await attending(host, key, work)


async def attending(host: Attended, key: str, work: Callable[[Signals], Awaitable[int]]) -> int:
    """The same with another program's host, too: Ctrl-C stops the turn, and the end leaves it running."""
    async with _watched(host, key) as signals:
        try:
            async with host:
                return await signals.obey(lambda: work(signals))
        except Stopped:
            pass
    return signals.code


def _leave_soon(jobs: tuple[str, ...]) -> None:
    """Tasks swallow every cancellation: all that is ours is released, the process need not wait for them."""
    warn(f"perdure: {', '.join(jobs)} will not end: leaving in {LEAVE:.0f} s")
    leaving = threading.Timer(LEAVE, _vanish, (BUG,))
    leaving.daemon = True
    leaving.start()


def _vanish(code: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except OSError:
        pass  # nobody reads it
    os._exit(code)
