"""Somebody else's blocking code, which may never end: in a daemon thread that nothing waits for.

The loops' own worker threads are joined when the interpreter exits (asyncio's), or are few; a thread that
is stuck in a plugin must hold up neither. Idle threads are kept: a hop costs about 30 µs, a new one 100.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

IDLE = 8  # threads kept for the next call


class _Job:
    __slots__ = ("done", "error", "fn", "over", "token", "value")

    def __init__(self, fn: Callable[[], Any], over: Callable[[], None] | None) -> None:
        self.fn, self.over, self.done, self.token = fn, over, anyio.Event(), current_token()
        self.value: Any = None
        self.error: BaseException | None = None


class Daemons:
    """Runs blocking calls, each in a thread of its own. `busy` of them are at work, or stuck."""

    def __init__(self) -> None:
        self.busy = 0
        self._idle: list[SimpleQueue[_Job]] = []

    async def run(self, fn: Callable[[], Any], over: Callable[[], None] | None = None) -> Any:
        """What `fn()` returns or raises. A cancelled wait leaves the thread alone; `over`: it has ended."""
        job = _Job(fn, over)
        inbox = self._idle.pop() if self._idle else self._thread()
        self.busy += 1
        inbox.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error
        return job.value

    def _thread(self) -> SimpleQueue[_Job]:
        inbox: SimpleQueue[_Job] = SimpleQueue()
        threading.Thread(target=self._serve, args=(inbox,), name="perdure plugin", daemon=True).start()
        return inbox

    def _serve(self, inbox: SimpleQueue[_Job]) -> None:
        while True:
            job = inbox.get()
            try:
                job.value = job.fn()
            except BaseException as error:
                job.error = error
            try:
                from_thread.run_sync(self._ended, inbox, job, token=job.token)
            except BaseException:  # the loop is gone: so is whoever waited
                return
            if inbox not in self._idle:
                return

    def _ended(self, inbox: SimpleQueue[_Job], job: _Job) -> None:
        self.busy -= 1
        if len(self._idle) < IDLE:
            self._idle.append(inbox)
        if job.over is not None:
            job.over()
        job.done.set()
