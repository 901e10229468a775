"""The life of a host: the folder is taken, all is put together, turns end, the folder is given back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from perdure.actors import arguments
from perdure.actors.durable import Durable
from perdure.actors.messages import Mail, Wake
from perdure.actors.status import Totals
from perdure.actors.timers import Timers
from perdure.actors.upkeep import Upkeep, open_index
from perdure.contracts import (
    Tool,
)
from perdure.edges import disk
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.log import open_log
from perdure.edges.parked import ParkedLetters
from perdure.edges.placement import LocalPlacement
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.edges.tools.mcp import servers
from perdure.errors import Busy, Closed, Parked
from perdure.hosting import storage
from perdure.hosting.draining import Drained, Settler, drain
from perdure.hosting.furnish import Ground, furnish
from perdure.hosting.given import Given
from perdure.hosting.parking import Parking
from perdure.hosting.scheduling import begin_timers
from perdure.hosting.watching import Watching
from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.errors import ActorParked, DeadlineExceeded
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.intensity import Intensity
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.pauses import Pauses
from perdure.kernel.waiter import Waiter
from perdure.plugins.registry import Registry

DRAIN = 30.0  # seconds that running turns have to end when the host stops


class Running:
    """What `Host` is while it runs; a program uses it through `Host` alone."""

    def __init__(
        self,
        folder: StateFolder,
        settings: Settings,
        given: Given,
        clock: Clock | None,
        io: IoPolicy | None,
        *,
        freeze: bool,
    ) -> None:
        self.folder, self.settings, self._given = folder, settings, given
        self.clock = clock or RealClock()
        self.io = io or IoPolicy(self.clock.virtual)
        self.registry = Registry()
        self.away: list[str] = []  # tool servers that could not be reached, and why
        self._freeze, self.pauses = freeze, Pauses(RealClock().now)
        self.settlers: tuple[Settler, ...] = ()  # what else must end before the host does
        self.reread: Callable[[], Settings] = lambda: load(state=folder.path, environ=given.environ)
        self.adopters: list[Callable[[Settings], Callable[[], object]]] = []  # may refuse, then commit
        self.drained: Drained | None = None
        self.on_lost: Callable[[tuple[str, ...]], object] = lambda jobs: None  # of tasks that won't end
        self._stack = AsyncExitStack()
        self.running = self.closing = self._killed = False

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        state_folder.create(self.folder)
        told = self.settings.log
        self.log = open_log(
            self.folder.log, level=told.level, max_mb=told.max_mb, keep=told.keep, wall_ms=self.clock.wall_ms
        )
        self._stack.callback(self.log.close)
        try:
            self.placement = LocalPlacement(
                self.folder.path, wall_ms=self.clock.wall_ms(), force=self.settings.host.force_network_fs
            )
            self._stack.callback(lambda: self.placement.close(clean=self.left_whole))
            if self.io.before is not None:
                self._stack.enter_context(disk.faults(self.io.before))
            await self.io.run(storage.recovered, self.folder, self.log)
            journal = storage.journal(self.folder, self.settings) if self.io.sync else None
            if journal is not None:
                self._stack.callback(lambda: storage.leave(journal, self.log, clean=self.left_whole))
            index = None if self.clock.virtual else open_index(self.folder.index, self.log)
            if index is not None:  # outlives the kernel, whose last jobs still write to it
                self._stack.callback(index.close)
            limits = self.settings.host
            self.kernel = Kernel(
                self.clock,
                on_event=self._kernel_event,
                on_lost=self._left_behind,
                mailbox_bound=limits.mailbox,
                actor_intensity=Intensity(limits.session_crashes, 60.0),
                chances=limits.message_tries,
            )
            await self._stack.enter_async_context(self.kernel)
            self.upkeep = Upkeep(self.kernel, self.io, index, self.log, syncs=journal is None)
            self.durable = Durable(self.kernel, self.io, journal, self.log)
            self.timers = Timers(self.kernel, self.io, index, self.log)
            awake = self._given.most_awake or self.settings.host.awake
            self.watching = Watching(self.folder, self.kernel, self.clock, self.log, awake=awake)
            self.pauses.begin()
            self._stack.callback(self.pauses.end)
            self._furnish(await self._mcp_tools())
            await self.deleting.finish()
        except BaseException:
            await self._stack.aclose()
            raise
        self._stack.push_async_exit(self._wind_down)
        self.running = True
        if self._freeze:
            self.freeze()
        self._wake_left_awake()
        begin_timers(self.timers, self.upkeep, self.directory, self.settings, self.files.list)
        self.upkeep.begin(self.files.list, self._wake)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    async def _wind_down(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """The first of the stack to leave, so that the rest is left in any case: also of a drain that is
        itself cancelled, as where a scope is cancelled and then left in peace.
        """
        try:
            if error is None or isinstance(error, Exception):
                await self.drain(0.0 if error else DRAIN)
                await self.upkeep.flush()
                await self.services.engines.dispose()
        finally:  # of a program being cancelled, the dispatcher too: the kernel's stop serves this mail
            self.closing = self.services.family.closing = True
            self.services.outbox.close(self.directory.awake)
            self.directory.ask_to_close(now=True)

    async def drain(self, deadline: float = DRAIN) -> Drained:
        """Take no more mail (`Closed`), let turns and deliveries end within so many seconds, stop the rest.

        What is cut off goes on at the next start. The end of `async with` drains, where nobody has.
        """
        self._must_run()
        self.closing = self.services.family.closing = True
        if self.drained is None:
            self.services.outbox.close(self.directory.awake)
            ends = (self.directory, self.settlers, self.clock, self.log)
            self.drained = await drain(*ends, max(0.0, deadline))
        return self.drained

    def _left_behind(self, lost: tuple[str, ...]) -> None:
        """Tasks swallow every cancellation: our exit must wait, another host need not."""
        self.log.error("host.waits_for_lost", jobs=list(lost))
        self.placement.close(clean=self.left_whole)
        self.on_lost(lost)

    def freeze(self) -> None:
        """Once, before the first turn, where the program is all ours (a server): no long pauses later."""
        self.pauses.freeze()

    def kill(self) -> None:
        """Stop as a killed process would: nothing more is written, no lock is released properly."""
        self._killed = True
        self.kernel.kill()
        self.upkeep.killed()
        self.durable.killed()
        self.services.outbox.close(())
        for session in self.directory.awake.values():
            if session.state != "opening":
                session.held.file.release()
                session.held.lock.orphan()
        self.directory.awake.clear()

    @property
    def left_whole(self) -> bool:
        """Whether no session is in our hands any more, each closed by its own actor.

        A start that failed leaves the folder as it was found.
        """
        grant = self.placement.grant(0)
        if not self.running and not (grant is not None and grant.clean):
            return False
        return not self._killed and not (hasattr(self, "directory") and self.directory.awake)

    # --- what all that is done with it goes through ---------------------------------------------

    def _must_run(self) -> None:
        if not self.running:
            raise Closed("the host is not running: use it inside `async with Host(...) as host`")

    async def _ask(self, key: str, make: Callable[[Waiter[Any]], Mail], timeout: float) -> Any:
        self._must_run()
        if self.closing:
            raise Closed("the host is stopping")
        try:
            return await self.kernel.ask(self.directory.ref(arguments.a_key(key)), make, timeout)
        except ActorParked as error:
            raise Parked(f"{key}: {error}") from None
        except KernelClosed:
            raise Closed("the host is stopping") from None
        except DeadlineExceeded:
            raise Busy(f"{key}: no answer within {timeout:g} s; send the same message id again") from None

    async def _mcp_tools(self) -> tuple[Tool, ...]:
        """Tools of the configured MCP servers; one that is away is told and left out until a restart."""
        if self.clock.virtual or not self.settings.mcp:
            return ()
        found: list[Tool] = []
        for server in servers(self.settings.mcp):
            self.kernel.spawn(f"mcp:{server.name}", server.run)
            found += await server.tools()
            if server.problem:
                self.log.warning("mcp.away", server=server.name, problem=server.problem)
                self.away.append(f"the MCP server {server.name} is away: {server.problem}")
        return tuple(found)

    def _furnish(self, more: tuple[Tool, ...]) -> None:
        ground = Ground(
            settings=self.settings,
            folder=self.folder,
            placement=self.placement,
            clock=self.clock,
            io=self.io,
            kernel=self.kernel,
            log=self.log,
            upkeep=self.upkeep,
            durable=self.durable,
            timers=self.timers,
            registry=self.registry,
            awake=self.watching.awake,
        )
        found = furnish(ground, self._given, more)
        self.services, self.directory, self.resolver = found.services, found.directory, found.resolver
        self.deleting, self.retaining = found.deleting, found.retaining
        self.files = found.services.files
        self.parking = Parking(
            self.kernel, self.directory, ParkedLetters(self.folder.path / "parked"), self.clock, self.log
        )
        self.deleting.forget_parked = self.parking.forget
        self._stack.push_async_callback(self._close_memory)
        self._stack.callback(found.services.tracing.close)
        self._stack.callback(found.services.spending.close)
        self.totals = Totals()
        self.services.events.subscribe("totals", self.totals.told)
        self._listeners = self._mids = 0

    async def _close_memory(self) -> None:
        if not self._killed:
            await self.services.memories.close()

    def _wake_left_awake(self) -> None:
        """Sessions whose lock a dead host left behind were awake when it died: look at them once."""
        for lock in sorted(self.files.root.rglob("*.jsonl.lock")):
            key = self.files.key(lock.with_suffix(""))
            if key is not None and self.files.exists(key):
                self.log("session.left_awake", session=key)
                self._wake(key)

    def _wake(self, key: str) -> None:
        self.directory.ref(key).post(Wake())

    def _new_mid(self) -> str:
        self._mids += 1
        grant = self.placement.grant(0)
        return f"{self.clock.wall_ms():x}-{grant.token if grant else 0:x}-{self._mids:x}"

    def _kernel_event(self, name: str, fields: dict[str, object]) -> None:
        plain = {k: v if isinstance(v, int | float | str) else repr(v) for k, v in fields.items()}
        self.log.graded(f"kernel.{name}", **plain)
        if hasattr(self, "parking"):
            self.parking.told(name, fields)
