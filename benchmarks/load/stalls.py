"""How late an event loop is: a tick each ten milliseconds, and by how much it was missed."""

from __future__ import annotations

import json
import sys
import time

import anyio
import anyio.to_thread

from benchmarks.measure import percentile

TICK = 0.01


class Stalls:
    """Runs in the loop that is measured. `take` gives the figures since the last one, in milliseconds."""

    def __init__(self) -> None:
        self._late: list[float] = []

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            due = time.perf_counter() + TICK
            await anyio.sleep(TICK)
            self._late.append(max(0.0, time.perf_counter() - due) * 1000)

    def take(self) -> dict[str, float]:
        """And begin anew."""
        late, self._late = self._late or [0.0], []
        return {
            "stall_p50": round(percentile(late, 0.5), 2),
            "stall_p99": round(percentile(late, 0.99), 2),
            "stall_max": round(max(late), 2),
        }


async def control() -> None:
    """An idle loop in a process of its own: prints its figures for each line on standard input."""
    stalls = Stalls()
    async with anyio.create_task_group() as group:
        group.start_soon(stalls.watch)
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(stalls.take()), flush=True)
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(control)
