"""Blocking work: in a thread by real time, inline by virtual time, with faults on demand."""

from __future__ import annotations

import threading

from helpers_kernel import each_loop, run_on, run_real
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import Backend


@each_loop
def test_real_policy_leaves_the_loop_free_and_virtual_policy_stays_on_it(loop: Backend) -> None:
    async def main(_: Kernel) -> int:
        return await IoPolicy(virtual=False).run(threading.get_ident)

    async def inline(_: Kernel) -> int:
        return await IoPolicy(virtual=True).run(threading.get_ident)

    assert run_real(loop, main) != threading.get_ident()
    assert run_on(loop, inline) == threading.get_ident()


def test_a_simulated_disk_needs_no_sync_unless_asked() -> None:
    assert [IoPolicy(False).sync, IoPolicy(True).sync, IoPolicy(True, sync=True).sync] == [True, False, True]
