"""A program in which ties abound, whose log must be the same on every loop, for each seed."""

from __future__ import annotations

import hashlib
import random
import sys
from collections import deque
from functools import partial
from typing import Any

from perdure.kernel.clock import Clock
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.run import run
from perdure.kernel.virtual import VirtualClock
from perdure.kernel.waiter import Waiter


class Semaphore:
    """First come, first served, by the kernel's waits."""

    def __init__(self, clock: Clock, free: int) -> None:
        self.clock, self.free = clock, free
        self.queue: deque[Waiter[Any]] = deque()

    async def take(self, timeout: float) -> bool:
        if self.free:
            self.free -= 1
            return True
        waiter = self.clock.waiter("the semaphore")
        self.queue.append(waiter)
        try:
            await self.clock.wait(waiter, timeout)
        except DeadlineExceeded:
            waiter.set()
            return False
        return True

    def give(self) -> None:
        while self.queue:
            if self.queue.popleft().set():
                return
        self.free += 1


class Program:
    """Forty sessions, a pool, an actor, services that break, jobs that are cancelled."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.clock = kernel, kernel.clock
        self.log: list[str] = []
        self.semaphore = Semaphore(kernel.clock, 5)
        self.pool = kernel.pool("work", self.work, workers=3, queue_bound=20)
        self.actor = kernel.actor("desk", self.desk)
        self.flaky = 0

    def say(self, *words: object) -> None:
        self.log.append(" ".join(map(str, (f"{self.clock.now():g}", *words))))

    async def work(self, key: str, message: int) -> int:
        await self.clock.sleep(message % 4)
        if message % 11 == 0:
            raise ValueError(key)
        return message

    def desk(self, message: tuple[str, int, Waiter[Any]]) -> None:
        who, n, answer = message
        self.say("desk", who, n)
        if n % 5:
            answer.set(n)
        else:
            self.kernel.start(f"slow {who}", self.slow, answer, n)

    async def slow(self, answer: Waiter[Any], n: int) -> None:
        await self.clock.sleep(3)
        answer.set(-n)

    async def child(self, who: str, n: int) -> int:
        try:
            await self.clock.sleep(n)
        finally:
            self.say(who, "child", n, "ends")
        return n

    async def step(self, who: str, r: random.Random) -> None:
        if await self.semaphore.take(r.choice([1, 2, 5])):
            await self.clock.sleep(r.choice([0, 1, 2]))
            self.semaphore.give()
            self.say(who, "used it")
        else:
            self.say(who, "gave up")
        try:
            with self.clock.fail_after(r.choice([2, 4])):
                ask = partial(self.ask, who, r.randrange(20))
                self.say(who, "got", await self.kernel.ask(self.actor, ask, 9))
        except DeadlineExceeded:
            self.say(who, "no answer")
        done = self.pool.submit(f"k{r.randrange(6)}", r.randrange(30), partial(self.say, who, "pool"))
        self.say(who, "queued" if done else "refused")

    def ask(self, who: str, n: int, waiter: Waiter[Any]) -> tuple[str, int, Waiter[Any]]:
        return who, n, waiter

    async def session(self, i: int) -> None:
        r, who = random.Random(i), f"s{i}"
        for _ in range(12):
            await self.clock.sleep(r.randrange(0, 20, 5))
            await self.step(who, r)
            if r.random() < 0.3:
                job = self.kernel.start(f"family {who}", self.family, who, on_end=self.ended)
                self.clock.call_after(r.choice([1, 2]), job.cancel)

    async def family(self, who: str) -> None:
        await self.kernel.gather(f"kids {who}", *[partial(self.child, who, n) for n in (4, 1, 2, 2)])

    def ended(self, job: Any, outcome: object) -> None:
        self.say(job.key, type(outcome).__name__)

    async def service(self) -> None:
        self.flaky += 1
        self.say("service", self.flaky)
        await self.clock.sleep(5)
        raise RuntimeError

    async def main(self) -> list[str]:
        self.kernel.spawn("flaky", self.service)
        await self.kernel.gather("all", *[partial(self.session, i) for i in range(40)])
        await self.clock.sleep(100)
        return self.log


def digest(loop: Any, seed: int) -> str:
    """Of everything the program did, in order."""

    async def main(kernel: Kernel) -> list[str]:
        return await Program(kernel).main()

    log = run(main, backend=loop, clock=VirtualClock(seed))
    assert len(log) > 2000, "the program did less than it should"
    return hashlib.sha256("\n".join(log).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.stdout.write(digest(sys.argv[1], int(sys.argv[2])))
