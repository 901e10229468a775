"""The public face: one host, its sessions, and what a program does with them.

    async with Host("state") as host:
        sent = await host.send("agent:main:cli:dm:local", "hello")
        print((await sent.reply()).text)

Runs inside the caller's own asyncio or trio program. The only module that chooses plugins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from perdure.actors import arguments, previewing
from perdure.actors.approvals import Approver, Remember, verdict
from perdure.actors.budgeting import Budget
from perdure.actors.durable import Durable
from perdure.actors.messages import Abort, Changing, Command, Deliver, Mail, Note, OutboxAsk, Timetable, Wake
from perdure.actors.outbox import Outlet
from perdure.actors.owning import NOTE, weight
from perdure.actors.pictures import admitted
from perdure.actors.previewing import Previewed
from perdure.actors.resolver import ModelFactory
from perdure.actors.services import Timing
from perdure.actors.status import Totals, host_status
from perdure.actors.timers import Timers
from perdure.actors.upkeep import Upkeep, open_index
from perdure.actors.waits import Waits
from perdure.context.pipeline import TransformContext
from perdure.contracts import (
    CompactionTrigger,
    ContextEngine,
    Letter,
    LetterKind,
    MemoryFlush,
    Model,
    OutboundChannel,
    Receipt,
    Tool,
)
from perdure.edges import disk
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.erasing import Erased
from perdure.edges.log import open_log
from perdure.edges.parked import ParkedLetters
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.facts import Outgoing
from perdure.edges.session.files import Held
from perdure.edges.settings import Settings
from perdure.edges.tools.mcp import servers
from perdure.errors import Busy, Closed, ConfigError, Parked, UsageError
from perdure.events import ApprovalAsked, Event, Reply
from perdure.hosting import storage
from perdure.hosting.draining import Drained, Settler, drain
from perdure.hosting.furnish import Ground, furnish
from perdure.hosting.given import checked
from perdure.hosting.parking import Parking
from perdure.hosting.reloading import Reloaded, adopt
from perdure.hosting.scheduling import CatchUp, Scheduled, Wish, begin_timers, in_order
from perdure.hosting.watching import Watching
from perdure.kernel import pauses
from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.errors import ActorParked, DeadlineExceeded
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.intensity import Intensity
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.pauses import Pauses
from perdure.kernel.waiter import Waiter
from perdure.plugins.registry import Registry
from perdure.records import Block, Message, ModelInfo, Text

DRAIN = 30.0  # seconds that running turns have to end when the host stops


class Sent:
    """A letter that is acknowledged: `receipt` says where it stands in the session file."""

    def __init__(self, receipt: Receipt, answer: Waiter[Reply], clock: Clock, waits: Waits) -> None:
        self.receipt, self._answer, self._clock, self._waits = receipt, answer, clock, waits

    async def reply(self, timeout: float | None = None) -> Reply:
        """How the turn that answers the letter ended. Raises `DeadlineExceeded` after `timeout` seconds.

        Inside a tool it raises `WaitCycle` at once where that turn waits for this one to end.
        """
        with self._waits.for_reply_of(self.receipt.key):
            return await self._clock.wait(self._answer, timeout)


class Host:
    """Hosts the sessions of one state folder.

    `settings`: by default those of `perdure.toml` in the state folder. `model`: a `Model` of your own, or
    a reference such as `anthropic/claude-sonnet-4-5`; by default the configured one, else Anthropic's
    where a key is in the environment, else the scripted one.
    `models` and `factories` add models by reference and what makes them, by provider. `tools` replaces the
    default set. `engine`: a context engine of your own for all sessions; `trigger`: what starts their
    compactions; `flush`: called before one, with what it would take away, for text that is appended to the
    day's note. `shown_workspace` is what prompts
    and headers say in place of the workspace's real path (so that a replay has the same bytes anywhere).
    `channels`: ways out for answers that no caller awaits, beside the configured ones.
    `approve` is asked before a tool that `[tools] approve` names, or `exec` in mode `ask`, runs; "events":
    whoever listens to `events()` answers by `answer`; by default nobody is there, and such calls are refused.
    `most_awake` sessions are kept in memory, and own at most `budget` bytes; `truncate_after` covered bytes
    leave a session's file. `freeze`: take the whole program's objects out of the collector's sight once.
    Raises `Locked` where another host has the state folder, `NewerState` where a newer perdure wrote it,
    `ConfigError` for a wrong setting.
    """

    def __init__(
        self,
        state: str | Path | None = None,
        *,
        settings: Settings | None = None,
        model: Model | str | None = None,
        window: int | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        factories: Mapping[str, ModelFactory] | None = None,
        tools: Iterable[Tool] | None = None,
        engine: ContextEngine | None = None,
        trigger: CompactionTrigger | None = None,
        flush: MemoryFlush | None = None,
        workspace: str | Path | None = None,
        shown_workspace: str | None = None,
        hooks: tuple[TransformContext, ...] = (),
        clock: Clock | None = None,
        io: IoPolicy | None = None,
        timing: Timing | None = None,
        approve: Approver | Literal["events"] | None = None,
        most_awake: int | None = None,
        budget: Budget | None = None,
        freeze: bool = False,
        truncate_after: int | None = None,
        channels: Iterable[OutboundChannel | Outlet] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = state_folder.state_folder(state, environ)
        found = settings if settings is not None else load(state=self.folder.path, environ=environ)
        self.settings = arguments.some_settings(found)
        self.clock = clock or RealClock()
        self.io = io or IoPolicy(self.clock.virtual)
        self._given = checked(
            model=model, models=models, factories=factories, tools=tools, engine=engine, trigger=trigger,
            flush=flush, workspace=workspace, window=window, shown_workspace=shown_workspace, hooks=hooks,
            timing=timing, approve=approve, most_awake=most_awake, budget=budget,
            truncate_after=truncate_after,
            channels=channels, environ=environ,
        )  # fmt: skip
        self.registry = Registry()
        self._freeze, self.pauses = freeze, Pauses(RealClock().now)
        self.away: list[str] = []  # tool servers that could not be reached, and why
        self.settlers: tuple[Settler, ...] = ()  # what else must end before the host does
        self.drained: Drained | None = None
        self.on_lost: Callable[[tuple[str, ...]], object] = lambda jobs: None  # of tasks that won't end
        self._stack = AsyncExitStack()
        self.running = self.closing = self._killed = False

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Host:
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
        self.closing = True
        self.services.outbox.close(self.directory.awake)
        if error is None or isinstance(error, Exception):
            await self.drain(0.0 if error else DRAIN)
            await self.upkeep.flush()
        else:  # the program is being cancelled, the dispatcher too: the kernel's stop serves this mail
            self.directory.ask_to_close(now=True)
        return await self._stack.__aexit__(kind, error, trace)

    async def drain(self, deadline: float = DRAIN) -> Drained:
        """Take no more mail (`Closed`), let turns and deliveries end within so many seconds, stop the rest.

        What is cut off goes on at the next start. The end of `async with` drains, where nobody has.
        """
        self._must_run()
        self.closing = True
        if self.drained is None:
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
        pauses.freeze()

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

    # --- use --------------------------------------------------------------------------------------

    async def send(
        self,
        key: str,
        text: str,
        *,
        sender: str = "user",
        mid: str | None = None,
        kind: LetterKind = "external_user",
        attachments: Iterable[Block] = (),
        deliver: bool | None = None,
        timeout: float = 30.0,
    ) -> Sent:
        """Deliver a message; returns once it is in the session's file, whatever then happens.

        Images among the `attachments` are scaled and converted first, where the extra `images` is there.
        `deliver`: whether the answer goes out by the session's channel; by default a user's own letter is
        answered to who sent it alone (`Sent.reply`), those of the system and of other sessions go out.
        `(sender, mid)` makes redelivery free: the same pair is answered from the record. Raises `Busy`
        (nothing accepted, try again), `MessageTooLarge`, `StorageFailed`, `Parked`, `Closed`.
        """
        self._must_run()
        if not isinstance(text, str):
            raise UsageError(f"a message's text is a str, not {type(text).__name__}")
        content: tuple[Block, ...] = (*((Text(text),) if text else ()), *attachments)
        if not content:
            raise UsageError("the message is empty: give it text or an attachment")
        arguments.a_key(key)
        if kind == "external_user":
            self.services.admit(key, sender)
        content, evidence = await admitted(self.services, content)
        now = self.clock.wall_ms()
        letter = Letter(key, sender, mid or self._new_mid(), content, now, kind, evidence, deliver)
        answer: Waiter[Reply] = self.clock.waiter(f"the reply of {key}")
        with self.services.memory.admitted(key, weight(letter)):
            receipt = await self._ask(key, lambda ack: Deliver(letter, ack, answer), timeout)
        return Sent(receipt, answer, self.clock, self.services.waits)

    async def note(self, key: str, message: Message, *, timeout: float = 30.0) -> str:
        """Record a message that asks for no turn (a command the user ran beside the agent); its entry id."""
        self._must_run()
        with self.services.memory.admitted(arguments.a_key(key), NOTE):
            return str(await self._ask(key, lambda done: Note(message, done), timeout))

    async def command(self, key: str, line: str, *, timeout: float = 900.0) -> str:
        """Run a slash command (`/compact`, `/status`, `/model REF` …); its answer as text for a person."""
        name, _, argument = line.strip().removeprefix("/").partition(" ")
        return str(await self._ask(key, lambda done: Command(name, argument.strip(), done), timeout))

    async def outbox(self, key: str) -> tuple[Outgoing, ...]:
        """The session's answers on their way out, and those that went nowhere, oldest first."""
        found: tuple[Outgoing, ...] = await self._ask(key, OutboxAsk, 30.0)
        return found

    async def change(self, key: str, make: Callable[[Held, int], Any], *, timeout: float = 300.0) -> Any:
        """What `make(held, wall ms)` returns, which changes a session's file while nobody else has it.

        It may block. Raises `Busy` while something is under way in the session.
        """
        return await self._ask(key, lambda done: Changing(make, done), timeout)

    async def preview_compaction(self, key: str, focus: str = "") -> Previewed:
        """What `/compact` would do: costs model calls, stores nothing. Raises as `previewing.preview`."""
        self._must_run()
        return await previewing.preview(self.services, arguments.a_key(key), focus)

    async def abort(self, key: str) -> bool:
        """Stop the session's running turn, or its compaction; whether there was anything to stop."""
        return bool(await self._ask(key, Abort, 30.0))

    async def delete(self, key: str) -> tuple[Erased, ...]:
        """Delete a session for good, its subagents first; what went. A running turn is stopped.

        Mail that comes meanwhile is refused (`Busy`); later mail begins a new session. Raises
        `SessionNotFound`, `Locked` (by another program), `Busy` (it can't be stopped), `StorageFailed`.
        """
        self._must_run()
        return await self.deleting.delete(arguments.a_key(key))

    async def schedule(
        self,
        key: str,
        message: str,
        *,
        every: str = "",
        cron: str = "",
        at: str = "",
        timezone: str = "",
        model: str = "",
        isolated: bool = False,
        catch_up: CatchUp = "once",
        id: str = "",
    ) -> Scheduled:
        """Send `message` to a session `every` so often ("4h"), by `cron`, or once, `at` (ISO 8601).

        It is in the session's file when this returns, and outlives the host. `isolated`: a session of its
        own, which may have its own `model`. An `id` that is there already is set anew.
        Raises `UsageError`, `ConfigError`, and what `send` raises.
        """
        self._must_run()
        when = (every, cron, at, timezone)
        wish = Wish(key, message, *when, model, isolated, catch_up, id or self._new_mid())
        timer = wish.timer(self.clock.wall_ms())
        await self._ask(wish.target, lambda done: Timetable(done, timer, model), 30.0)
        return Scheduled(wish.target, timer)

    async def schedules(self, key: str) -> tuple[Scheduled, ...]:
        """What is scheduled for a session, the next first."""
        found = await self._ask(key, Timetable, 30.0)
        return in_order(key, found, self.clock.wall_ms())

    async def unschedule(self, key: str, id: str) -> None:
        """Take a schedule away. Raises `UsageError` where there is none of that id."""
        await self._ask(key, lambda done: Timetable(done, gone=id), 30.0)

    async def reload(self, settings: Settings | None = None) -> Reloaded:
        """Take over what can change live, from `perdure.toml` or as given; the rest is refused by key.

        Raises `ConfigError` for a wrong file: then nothing has changed.
        """
        self._must_run()
        own = self._given
        try:
            new = settings
            if new is None:
                new = await self.io.run(lambda: load(state=self.folder.path, environ=own.environ))
            return adopt(self, new, own_timing=own.timing is not None, own_awake=own.most_awake is not None)
        except ConfigError as error:
            self.log.error("config.refused", error=str(error))
            raise

    def approvals(self, key: str | None = None) -> tuple[ApprovalAsked, ...]:
        """Tool calls that wait for a person, of one session or all, the oldest first."""
        self._must_run()
        return self.services.approvals.waiting(key)

    def answer(
        self, id: str, allow: bool, *, remember: Remember = "once", note: str = "", key: str | None = None
    ) -> None:
        """Answer one; `note` is told to the model. `key`: only that session's. Raises `UsageError`."""
        self._must_run()
        self.services.approvals.answer(id, verdict(allow, remember, note), key)

    def events(self, key: str | None = None) -> AsyncIterator[Event]:
        """What happens from now on, in one session or all: best-effort, the oldest goes when you are slow."""
        self._must_run()
        self._listeners += 1
        listener = self.services.events.listen(f"events-{self._listeners}")

        async def stream() -> AsyncIterator[Event]:
            try:
                while True:
                    event = await listener.next()
                    if key is None or event.key == key:
                        yield event
            except StopAsyncIteration:
                return
            finally:
                listener.close()

        return stream()

    def parked(self) -> list[dict[str, Any]]:
        """Poison messages: number, session, kind of mail, error, when. Never their text."""
        self._must_run()
        return self.parking.lines()

    def retry(self, what: int | str) -> bool:
        """Try a parked message (by number) or a session that could not be opened (by key) again."""
        self._must_run()
        return self.parking.retry(what)

    def drop(self, number: int) -> bool:
        """Forget a parked message for good."""
        self._must_run()
        return self.parking.drop(number)

    def status(self, *, deep: bool = False) -> dict[str, Any]:
        """Figures of this host, in the form that `perdure status --json` prints."""
        self._must_run()
        told = host_status(self.services, self.directory, self.totals, self.pauses, deep=deep)
        told |= {"parked": self.parking.lines(), "quarantined": self.parking.quarantined()}
        told |= (more := self.watching.status(self.without))
        told["host"]["loop_lag_ms"] = more["lag"] and more["lag"]["p99_ms"]
        return told

    def health(self) -> list[str]:
        """Why this host should get no traffic now, in words; empty: it is ready."""
        if self.closing or not self.running:
            return ["the host is stopping" if self.closing else "the host is not running"]
        return self.watching.health()

    @property
    def without(self) -> list[str]:
        """What the host does without, in words: tool servers, plugins, index, pictures."""
        missing = [] if self.upkeep.indexed or self.clock.virtual else ["there is no index of sessions"]
        if self.services.scaler is None and not self.clock.virtual:
            missing.append("pictures are not scaled: pip install 'perdure[images]'")
        return [*filter(None, (self.resolver.replaced,)), *self.away, *missing]

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
        self._stack.callback(found.services.tracing.close)
        self.totals = Totals()
        self.services.events.subscribe("totals", self.totals.told)
        self._listeners = self._mids = 0

    def _wake_left_awake(self) -> None:
        """Sessions whose lock a dead host left behind were awake when it died: look at them once."""
        for lock in sorted(self.files.root.rglob("*.jsonl.lock")):
            key = self.files.key(lock.with_suffix(""))
            if key is not None:
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
