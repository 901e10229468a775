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
from typing import Any

from perdure.actors import arguments, previewing
from perdure.actors.messages import Abort, Changing, Command, Deliver, Mail, Note, Wake
from perdure.actors.pictures import admitted
from perdure.actors.previewing import Previewed
from perdure.actors.resolver import ModelFactory
from perdure.actors.services import Timing
from perdure.actors.status import Totals, host_status
from perdure.actors.upkeep import Upkeep, open_index
from perdure.context.pipeline import TransformContext
from perdure.contracts import (
    CompactionTrigger,
    ContextEngine,
    Letter,
    LetterKind,
    MemoryFlush,
    Model,
    Receipt,
    Tool,
)
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.log import open_log
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.files import Held
from perdure.edges.settings import Settings
from perdure.edges.tools.mcp import servers
from perdure.errors import Busy, Closed, Parked, UsageError
from perdure.events import Event, Reply
from perdure.hosting.furnish import Ground, furnish
from perdure.hosting.given import checked
from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.errors import ActorParked, DeadlineExceeded
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.kernel.waiter import Waiter
from perdure.plugins.registry import Registry
from perdure.records import Block, Message, ModelInfo, Text

DRAIN = 30.0  # seconds that running turns have to end when the host stops


class Sent:
    """A letter that is acknowledged: `receipt` says where it stands in the session file."""

    def __init__(self, receipt: Receipt, answer: Waiter[Reply], clock: Clock) -> None:
        self.receipt, self._answer, self._clock = receipt, answer, clock

    async def reply(self, timeout: float | None = None) -> Reply:
        """How the turn that answers the letter ended. Raises `DeadlineExceeded` after `timeout` seconds."""
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
    `most_awake` sessions are kept in memory; `truncate_after` covered bytes leave a session's file.
    Raises `Locked` where another host has the state folder, `ConfigError` for a wrong setting.
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
        most_awake: int | None = None,
        truncate_after: int | None = None,
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
            timing=timing, most_awake=most_awake, truncate_after=truncate_after, environ=environ,
        )  # fmt: skip
        self.registry = Registry()
        self.away: list[str] = []  # tool servers that could not be reached, and why
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
            index = None if self.clock.virtual else open_index(self.folder.index, self.log)
            if index is not None:  # outlives the kernel, whose last jobs still write to it
                self._stack.callback(index.close)
            self.kernel = Kernel(
                self.clock, on_event=self._kernel_event, mailbox_bound=self.settings.host.mailbox
            )
            await self._stack.enter_async_context(self.kernel)
            self.upkeep = Upkeep(self.kernel, self.io, index, self.log)
            self._furnish(await self._mcp_tools())
        except BaseException:
            await self._stack.aclose()
            raise
        self.running = True
        self._wake_left_awake()
        self.upkeep.begin(self.files.list, self._wake)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.closing = True
        if error is None or isinstance(error, Exception):
            await self.directory.close(grace=0.0 if error else DRAIN)
            await self.upkeep.flush()
        else:  # the program is being cancelled, the dispatcher too: the kernel's stop serves this mail
            self.directory.ask_to_close(now=True)
        return await self._stack.__aexit__(kind, error, trace)

    def kill(self) -> None:
        """Stop as a killed process would: nothing more is written, no lock is released properly."""
        self._killed = True
        self.kernel.kill()
        self.upkeep.killed()
        for session in self.directory.awake.values():
            if session.state != "opening":
                session.held.file.release()
                session.held.lock.orphan()
        self.directory.awake.clear()

    @property
    def left_whole(self) -> bool:
        """Whether no session is in our hands any more, each closed by its own actor."""
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
        timeout: float = 30.0,
    ) -> Sent:
        """Deliver a message; returns once it is in the session's file, whatever then happens.

        Images among the `attachments` are scaled and converted first, where the extra `images` is there.
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
        content, evidence = await admitted(self.services, content)
        now = self.clock.wall_ms()
        letter = Letter(key, sender, mid or self._new_mid(), content, now, kind, evidence)
        answer: Waiter[Reply] = self.clock.waiter(f"the reply of {key}")
        receipt = await self._ask(key, lambda ack: Deliver(letter, ack, answer), timeout)
        return Sent(receipt, answer, self.clock)

    async def note(self, key: str, message: Message, *, timeout: float = 30.0) -> str:
        """Record a message that asks for no turn (a command the user ran beside the agent); its entry id."""
        return str(await self._ask(key, lambda done: Note(message, done), timeout))

    async def command(self, key: str, line: str, *, timeout: float = 900.0) -> str:
        """Run a slash command (`/compact`, `/status`, `/model REF` …); its answer as text for a person."""
        name, _, argument = line.strip().removeprefix("/").partition(" ")
        return str(await self._ask(key, lambda done: Command(name, argument.strip(), done), timeout))

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

    def status(self, *, deep: bool = False) -> dict[str, Any]:
        """Figures of this host, in the form that `perdure status --json` prints."""
        self._must_run()
        return host_status(self.services, self.directory, self.totals, deep=deep)

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
            registry=self.registry,
        )
        found = furnish(ground, self._given, more)
        self.services, self.directory, self.resolver = found.services, found.directory, found.resolver
        self.files = found.services.files
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
        self.log(f"kernel.{name}", **plain)
