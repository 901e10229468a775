"""The one seam of durability: what waits until the disk has it. The session decides, and never waits itself.

Durability `process`: at once. `power`: behind the journal's next sync, in the order of the calls, one sync
for all that came together. Where the journal fails everybody who waits is told `StorageFailed`, session
files take nothing (`Journal.check`), and the sync is tried again until it succeeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter

from perdure.edges.journal.journal import Journal
from perdure.edges.log import Log
from perdure.errors import PerdureError, StorageFailed
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.waiter import Waiter

AGAIN = 1.0  # seconds until a journal that failed is tried again
TRIM_AGAIN = 30.0  # seconds until a trim that failed is

Then = Callable[[], object]
Failed = Callable[[PerdureError], object]


class Durable:
    """One for a host. `journal` None: durability `process`."""

    def __init__(self, kernel: Kernel, io: IoPolicy, journal: Journal | None, log: Log) -> None:
        self._kernel, self._io, self.journal, self._log = kernel, io, journal, log
        self._waiting: deque[tuple[int, Then, Failed]] = deque()
        self._running = self._trimming = self._killed = False
        self._trim_from = 0.0
        # Threads of their own: no slow tool, truncation or picture holds an acknowledgement up.
        self._committer, self._trimmer = CapacityLimiter(1), CapacityLimiter(1)

    def settle(self, waiter: Waiter[Any], value: Any = None) -> None:
        """Answer `waiter` once everything that was appended so far is durable, or fail it."""
        if self.journal is None:
            waiter.set(value)
        else:
            self.after(lambda: waiter.set(value), waiter.fail)

    def after(self, then: Then, failed: Failed) -> None:
        """Call `then` once what was appended so far is durable, or `failed`. Neither may wait."""
        journal = self.journal
        if journal is None or (not self._waiting and journal.durable >= journal.pushed):
            then()
            return
        self._waiting.append((journal.pushed, then, failed))
        self._begin()

    # --- the syncs ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._running or self._killed:
            return
        try:
            self._kernel.start("journal", self._run)
            self._running = True
        except KernelClosed:  # the host stops, and all that is left is what was written
            self._at_once()

    async def _run(self) -> None:
        """Commit until nobody waits."""
        journal = self.journal
        assert journal is not None
        try:
            while self._waiting or journal.failed is not None:
                try:
                    await self._io.run(journal.commit, limiter=self._committer)
                except StorageFailed as error:
                    self._fail(error)
                    return
                self._tell(journal.durable)
                self._trim()
        finally:
            self._running = False
            if self._waiting:  # cancelled: the host stops
                self._at_once()

    def _at_once(self) -> None:
        journal = self.journal
        if journal is None or self._killed:
            return
        try:
            self._tell(journal.commit())
        except StorageFailed as error:
            self._refuse(error)

    def _tell(self, durable: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= durable:
            _, then, _ = waiting.popleft()
            then()

    def _refuse(self, error: PerdureError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, failed in waiting:
            failed(error)

    def _fail(self, error: StorageFailed) -> None:
        self._log.error("journal.failed", error=str(error))
        self._refuse(error)
        if not self._killed:
            self._kernel.clock.call_after(AGAIN, self._again)

    def _again(self) -> None:
        if self.journal is not None and self.journal.failed is not None:
            self._begin()

    # --- the trims ----------------------------------------------------------------------------------

    def _trim(self) -> None:
        journal = self.journal
        if journal is None or not journal.wants_trim or self._trimming or self._killed:
            return
        if self._kernel.clock.now() < self._trim_from:
            return
        try:
            self._kernel.start("journal.trim", self._run_trim)
            self._trimming = True
        except KernelClosed:
            return  # the host stops: closing it trims everything

    async def _run_trim(self) -> None:
        assert self.journal is not None
        try:
            await self._io.run(self.journal.trim, limiter=self._trimmer)
        except StorageFailed as error:
            self._log.error("journal.not_trimmed", error=str(error))
            self._trim_from = self._kernel.clock.now() + TRIM_AGAIN
        finally:
            self._trimming = False

    # --- life ---------------------------------------------------------------------------------------

    def killed(self) -> None:
        """Nobody is told anything any more, and nothing is written."""
        self._killed = True
        self._waiting.clear()
        if self.journal is not None:
            self.journal.close(clean=False)

    def status(self) -> dict[str, Any]:
        """For `status`."""
        journal = self.journal
        if journal is None:
            return {"durability": "process"}
        return {
            "durability": "power",
            "records": journal.records,
            "batches": journal.batches,
            "trims": journal.trims,
            "failures": journal.failures,
            "failed": str(journal.failed) if journal.failed is not None else "",
        }
