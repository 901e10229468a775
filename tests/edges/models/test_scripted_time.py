"""Under the kernel's virtual clock a scripted model waits in script time only, the same on every loop."""

from __future__ import annotations

import pytest

from helpers_kernel import each_loop, run_on
from helpers_models import INFO, answer, body, collect, request, text
from perdure.edges.models.reply import fail, say
from perdure.edges.models.scripted import ScriptedModel
from perdure.edges.models.sources import Script
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import Backend
from perdure.records import Usage

CACHED = body(system=[text("rule " * 50, cache_control={"type": "ephemeral"})])


@each_loop
def test_latency_and_pace_pass_in_script_time(loop: Backend) -> None:
    async def main(kernel: Kernel) -> float:
        model = ScriptedModel(INFO, Script([say("abcd", latency=60, chunks=4, pace=10)]), kernel.clock)
        await collect(model, request())
        return kernel.clock.now()

    assert run_on(loop, main) == 90


@each_loop
def test_a_stall_ends_at_the_callers_deadline(loop: Backend) -> None:
    async def main(kernel: Kernel) -> float:
        model = ScriptedModel(INFO, Script([fail("stall")]), kernel.clock)
        with pytest.raises(DeadlineExceeded), kernel.clock.fail_after(120):
            await collect(model, request())
        return kernel.clock.now()

    assert run_on(loop, main) == 120


@each_loop
def test_the_cache_is_cold_after_five_minutes_of_script_time(loop: Backend) -> None:
    async def main(kernel: Kernel) -> list[int]:
        model = ScriptedModel(INFO, Script([], after=say("x")), kernel.clock)
        reads = []
        for pause in (0.0, 299.0, 301.0):
            await kernel.clock.sleep(pause)
            used = (await answer(model, request(CACHED))).message.usage
            assert isinstance(used, Usage)
            reads.append(used.cache_read)
        return reads

    cold, warm, again = run_on(loop, main)
    assert cold == again == 0
    assert warm > 50
