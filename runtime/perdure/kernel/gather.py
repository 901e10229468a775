"""Several jobs for one caller, structured: nobody leaves before the last of them has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from perdure.kernel.jobs import Job, Jobs
from perdure.kernel.outcome import Cancelled, Outcome


async def gather(
    jobs: Jobs,
    key: str,
    fns: Sequence[Callable[[], Awaitable[Any]]],
    on_each: Callable[[int, Outcome], None] | None = None,
) -> list[Outcome]:
    """Outcomes in the order of `fns`. Cancelled, it stops them in that order, on any loop."""
    outcomes: list[Outcome] = [Cancelled()] * len(fns)
    left = len(fns)
    done = jobs.clock.waiter(f"the last part of {key}")

    def ended(index: int, _: Job, outcome: Outcome) -> None:
        nonlocal left
        outcomes[index] = outcome
        left -= 1
        try:
            if on_each is not None and not jobs.mute:
                on_each(index, outcome)
        finally:
            if not left:
                done.set()

    started = [jobs.start(f"{key}/{i}", fn, on_end=partial(ended, i), inner=True) for i, fn in enumerate(fns)]
    if not started:
        return outcomes
    try:
        await jobs.clock.wait(done)
    except BaseException:
        with jobs.clock.shield():
            for job in started:
                job.cancel()
            await jobs.clock.wait(done)
        raise
    return outcomes
