"""The kernel: one clock, one dispatcher, jobs, services, pools and channels, opened and closed together.

    async with Kernel(RealClock()) as kernel:
        ref = kernel.actor("a", handle)
        await kernel.send(ref, message, timeout=5)

Nothing outlives the `async with`: every task belongs to its group.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Literal, TypeVar

import anyio
from anyio.abc import TaskGroup

from perdure.kernel.channel import Channel, OnDrop
from perdure.kernel.clock import Clock
from perdure.kernel.deadlines import Timer
from perdure.kernel.dispatcher import Dispatcher
from perdure.kernel.errors import Escalated
from perdure.kernel.gather import gather
from perdure.kernel.intensity import Intensity
from perdure.kernel.jobs import Job, Jobs, OnEnd
from perdure.kernel.mailbox import BOUND, Handler, Mailboxes, Ref
from perdure.kernel.outcome import Outcome
from perdure.kernel.poison import CHANCES, PER_ACTOR, Infirmary, Parked
from perdure.kernel.pool import Handler as PoolHandler
from perdure.kernel.pool import Order, Permits, Pool
from perdure.kernel.stats import Stats
from perdure.kernel.supervisor import ROOT, Child, ChildSpec, Supervisor
from perdure.kernel.waiter import Waiter

T = TypeVar("T")
STOP = 10.0  # seconds a stop waits for jobs to obey
LAST = 10_000  # slices served at a stop for the last reports

OnEvent = Callable[[str, dict[str, object]], None]


class Kernel:
    """`on_event(name, fields)` hears of crashes, restarts, losses and drops; it must not wait.

    An actor may crash as `actor_intensity` says, on one message `chances` times. `on_lost(keys)`: at the
    end, all else being over, jobs go on that swallow every cancellation. Neither loop can leave a task
    behind, so the exit waits for them; what the caller holds it may release now.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        on_event: OnEvent | None = None,
        mailbox_bound: int = BOUND,
        actor_intensity: Intensity = PER_ACTOR,
        chances: int = CHANCES,
        on_lost: Callable[[tuple[str, ...]], None] | None = None,
        root_intensity: Intensity = ROOT,
    ) -> None:
        self.clock = clock
        self._on_event, self._on_lost = on_event, on_lost
        self._boxes = Mailboxes(clock, mailbox_bound)
        self._infirmary = Infirmary(clock, self._boxes, self.report, actor_intensity, chances)
        self._dispatcher = Dispatcher(clock, self._boxes, self._infirmary)
        self._jobs = Jobs(clock, self.report)
        self._supervisor = Supervisor(self._jobs, self.report, self._escalate, root_intensity)
        self._pools: dict[str, Pool] = {}
        self._channels: dict[str, Channel] = {}
        self._group: TaskGroup | None = None
        self._main: Any = None
        self._escalated: Escalated | None = None

    # --- actors ---------------------------------------------------------------------------------------

    def actor(
        self, key: str, handler: Handler, *, restart: Callable[[BaseException], Handler | None] | None = None
    ) -> Ref:
        """An actor: `handler(message)` is synchronous, decides and never waits.

        After a crash `restart(error)` may reset it or give a new handler; the message is tried once more.
        """
        if iscoroutinefunction(handler):
            raise TypeError(f"{key}: a handler is `def`, never `async def`: what waits is a job")
        return Ref(self._boxes, key, handler, restart)

    async def send(self, ref: Ref, message: Any, timeout: float) -> None:
        """Deliver, waiting for room. Raises DeadlineExceeded, ActorParked or Closed: nothing was accepted."""
        await self._boxes.send(ref, message, timeout)

    async def ask(self, ref: Ref, make: Callable[[Waiter[Any]], Any], timeout: float) -> Any:
        """Send `make(waiter)`; what the actor, or who it hands it to, sets within `timeout` seconds."""
        waiter = self.clock.waiter(f"an answer of {ref.key}")
        message = make(waiter)
        if not ref.tell(message):
            began = self.clock.now()
            await self._boxes.send(ref, message, timeout)
            timeout = max(0.0, timeout - (self.clock.now() - began))
        return await self.clock.wait(waiter, timeout)

    def parked(self) -> tuple[Parked, ...]:
        """Poison messages, the oldest first."""
        return self._infirmary.parked()

    def park(self, ref: Ref, message: Any, error: BaseException) -> None:
        """An actor's own: put aside a message that it had kept for later and then broke on."""
        self._infirmary.park(ref, message, error)

    def admit_parked(self, ref: Ref, message: Any, error: str, number: int) -> None:
        """List what an earlier kernel had parked, under the same number."""
        self._infirmary.admit(ref, message, error, number)

    def retry(self, number: int) -> bool:
        """Try a parked message again. False: no such number."""
        return self._infirmary.retry(number)

    def drop(self, number: int) -> bool:
        """Forget a parked message; a parked actor goes on. False: no such number."""
        return self._infirmary.drop(number)

    # --- work that waits ------------------------------------------------------------------------------

    def start(
        self, key: str, fn: Callable[..., Awaitable[Any]], *args: Any, on_end: OnEnd | None = None
    ) -> Job:
        """Run `await fn(*args)` as a job of its own; `on_end(job, outcome)` exactly once. Raises Closed."""
        return self._jobs.start(key, fn, *args, on_end=on_end)

    async def gather(
        self,
        key: str,
        *fns: Callable[[], Awaitable[Any]],
        on_each: Callable[[int, Outcome], None] | None = None,
    ) -> list[Outcome]:
        """Run all at once, as jobs; outcomes in the order given. `on_each(index, outcome)` as each ends.

        Where the caller is cancelled, they are stopped in the order given, and waited for.
        """
        return await gather(self._jobs, key, fns, on_each)

    def spawn(self, spec: ChildSpec | str, fn: Callable[[], Awaitable[Any]] | None = None) -> Child:
        """A supervised service: a spec, or a name and a function for a permanent one."""
        if isinstance(spec, str):
            if fn is None:
                raise TypeError("a service needs a function")
            spec = ChildSpec(spec, fn)
        return self._supervisor.start(spec)

    def pool(
        self,
        name: str,
        handler: PoolHandler,
        *,
        workers: int = 4,
        queue_bound: int = 1024,
        permits: Permits | None = None,
        merge: Literal["newest"] | None = None,
        order: Order | None = None,
    ) -> Pool:
        """A keyed pool of workers; see `Pool`."""
        pool = self._pools[name] = Pool(
            name,
            self._jobs,
            self.report,
            handler,
            workers=workers,
            queue_bound=queue_bound,
            permits=permits,
            merge=merge,
            order=order,
        )
        return pool

    def channel(self, name: str, on_drop: OnDrop | None = None) -> Channel:
        """The best-effort channel of that name, made on first use."""
        if name not in self._channels:
            self._channels[name] = Channel(name, self.clock, on_drop or self._dropped)
        return self._channels[name]

    def _dropped(self, channel: str, subscriber: str, lost: int, error: BaseException | None) -> None:
        self.report(
            "channel.dropped", {"channel": channel, "subscriber": subscriber, "lost": lost, "error": error}
        )

    # --- time -----------------------------------------------------------------------------------------

    def waiter(self, label: str = "") -> Waiter[Any]:
        """A one-shot answer of this kernel's clock."""
        return self.clock.waiter(label)

    async def wait(self, waiter: Waiter[T], timeout: float | None = None) -> T:
        """Its value; see `Clock.wait`."""
        return await self.clock.wait(waiter, timeout)

    def call_at(self, when: float, fn: Callable[[], object]) -> Timer:
        """A timer; see `Clock.call_at`."""
        return self.clock.call_at(when, fn)

    # --- life -----------------------------------------------------------------------------------------

    def report(self, name: str, fields: dict[str, object]) -> None:
        """Tell `on_event`; what that raises is forgotten, the kernel goes on."""
        if self._on_event is not None:
            try:
                self._on_event(name, fields)
            except Exception:
                return

    def _escalate(self, error: Escalated) -> None:
        self._escalated = error
        if self._group is not None:
            self._group.cancel_scope.cancel()

    @property
    def closing(self) -> bool:
        """Nothing is begun any more."""
        return self._boxes.closed or self._jobs.closed

    def kill(self) -> None:
        """From now on tell nobody anything, as if the process had died; then leave the `async with`."""
        self._jobs.mute = True
        self._boxes.close()
        self._boxes.ready.clear()

    async def __aenter__(self) -> Kernel:
        clock = self.clock
        clock.report = lambda exc: self.report("timer.failed", {"error": exc})
        clock.outside = lambda names: self.report("kernel.outside_wait", {"tasks": names})
        self._main = clock.adopt("main")
        self._group = await anyio.create_task_group().__aenter__()
        self._jobs.open(self._group)
        self._group.start_soon(clock.tick, name="kernel ticker")
        owner = clock.enrol("dispatcher")
        clock.schedule(owner, lambda: self._launch(owner))
        return self

    def _launch(self, owner: Any) -> None:
        if self._group is None:  # opened and closed before anybody waited: it never came to run
            self.clock.ended(owner)
            return
        self._group.start_soon(self._serve, owner, name="kernel dispatcher")

    async def _serve(self, owner: Any) -> None:
        self.clock.entered(owner)
        try:
            await self._dispatcher.run()
        finally:
            self.clock.ended(owner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        group = self._group
        assert group is not None
        try:
            with anyio.CancelScope(shield=True):
                await self._stop()
            group.cancel_scope.cancel()
            own = error is None or isinstance(error, Exception)
            caught = await (group.__aexit__(None, None, None) if own else group.__aexit__(kind, error, trace))
        except BaseExceptionGroup as several:
            found = _single(several)
            raise found from (error if found is not error else None)
        finally:
            self._group = None
            self.clock.disown(self._main)
        if self._escalated is not None:
            raise self._escalated
        return caught if not own else None

    async def _stop(self) -> None:
        """No new mail, no restarts; jobs are cancelled in start order, their last reports are served."""
        self._boxes.close()
        self._supervisor.stop()
        for pool in self._pools.values():
            pool.stop()
        await self._jobs.stop(STOP)
        if not self._jobs.mute:
            self._dispatcher.drain(LAST)
        for channel in self._channels.values():
            channel.close()
        if self._jobs.lost:  # no loop can leave a living task behind; whoever wonders finds a name
            self._waits_for(tuple(job.key for job in self._jobs.lost.values()))

    def _waits_for(self, lost: tuple[str, ...]) -> None:
        """All else is over: the owner lets go of what others may need, or ends the process."""
        self.report("kernel.waits_for_lost", {"jobs": list(lost)})
        if self._on_lost is not None:
            try:
                self._on_lost(lost)
            except Exception as exc:
                self.report("kernel.on_lost_failed", {"error": exc})

    def stats(self) -> Stats:
        """For `status`."""
        jobs, now = self._jobs, self.clock.now()
        return Stats(
            handled=self._dispatcher.handled,
            refused=self._boxes.refused,
            ready=len(self._boxes.ready),
            crashes=self._infirmary.crashes,
            parked=len(self._infirmary.parked()),
            jobs=len(jobs.live),
            jobs_started=jobs.started,
            jobs_failed=jobs.failed,
            jobs_lost=len(jobs.lost),
            tasks=jobs.tasks,
            idle_tasks=jobs.idle,
            restarts=tuple(self._supervisor.log),
            services=tuple((name, child.state) for name, child in self._supervisor.children.items()),
            pools=tuple(
                (p.name, p.busy, p.queued, p.done, p.crashed, p.breaker.state(now))
                for p in self._pools.values()
            ),
            channels=tuple((c.name, c.published, c.dropped) for c in self._channels.values()),
        )


def _single(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error in a group of one."""
    found: BaseException = several
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return found
