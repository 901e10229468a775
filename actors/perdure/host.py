"""The public face: one host, its sessions, and what a program does with them.

    async with Host("state") as host:
        sent = await host.send("agent:main:cli:dm:local", "hello")
        print((await sent.reply()).text)

Runs inside the caller's own asyncio or trio program. The only module that chooses plugins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from perdure.actors import arguments, previewing
from perdure.actors.approvals import Approver, Remember, verdict
from perdure.actors.budgeting import Budget
from perdure.actors.messages import Abort, Changing, Command, Deliver, Note, OutboxAsk, Timetable
from perdure.actors.outbox import Outlet
from perdure.actors.owning import NOTE, weight
from perdure.actors.pictures import admitted
from perdure.actors.previewing import Previewed
from perdure.actors.resolver import ModelFactory
from perdure.actors.services import Timing
from perdure.actors.status import host_status
from perdure.actors.subagents.stopping import stopped
from perdure.actors.waits import Waits
from perdure.context.pipeline import TransformContext
from perdure.contracts import (
    CompactionTrigger,
    ContextEngine,
    Forgotten,
    Letter,
    LetterKind,
    Memory,
    MemoryFlush,
    Model,
    OutboundChannel,
    Receipt,
    Tool,
)
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.edges.erasing import Erased
from perdure.edges.session.facts import Outgoing
from perdure.edges.session.files import Held
from perdure.edges.settings import Settings
from perdure.errors import ConfigError, UsageError
from perdure.events import ApprovalAsked, Event, Reply
from perdure.hosting.given import checked
from perdure.hosting.reloading import Reloaded, adopt
from perdure.hosting.running import Running
from perdure.hosting.scheduling import CatchUp, Scheduled, Wish, in_order
from perdure.kernel.clock import Clock
from perdure.kernel.io import IoPolicy
from perdure.kernel.waiter import Waiter
from perdure.records import Block, Message, ModelInfo, Text


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


class Host(Running):
    """Hosts the sessions of one state folder.

    `settings`: by default those of `perdure.toml` in the state folder. `model`: a `Model` of your own, or
    a reference such as `anthropic/claude-sonnet-4-5`; by default the configured one, else Anthropic's
    where a key is in the environment, else the scripted one.
    `models` and `factories` add models by reference and what makes them, by provider. `tools` replaces the
    default set. `engine`: a context engine of your own for all sessions; `trigger`: what starts their
    compactions; `flush`: called before one, with what it would take away, for text that is appended to the
    day's note; `memory`: what its agents know next week, by default `memory-core`, and none where `tools` are
    given and neither this nor the settings name one.
    `shown_workspace` is what prompts and headers say in place of the workspace's real path (so that a replay
    has the same bytes anywhere).
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
        memory: Memory | None = None,
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
        folder = state_folder.state_folder(state, environ)
        found = settings if settings is not None else load(state=folder.path, environ=environ)
        given = checked(
            model=model, models=models, factories=factories, tools=tools, engine=engine, trigger=trigger,
            flush=flush, memory=memory, workspace=workspace, window=window, shown_workspace=shown_workspace,
            hooks=hooks, timing=timing, approve=approve, most_awake=most_awake, budget=budget,
            truncate_after=truncate_after, channels=channels, environ=environ,
        )  # fmt: skip
        super().__init__(folder, arguments.some_settings(found), given, clock, io, freeze=freeze)

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
        arguments.a_sender(sender)
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

    async def forget(self, text: str, *, agent: str = "main", timeout: float = 300.0) -> Forgotten:
        """Let the memory forget what says `text` (or stands at a source that it named), for one agent.

        It goes from all that the memory made of it; what was said in a session stays there. Raises
        `UsageError` where the memory can't, or the text says too little.
        """
        self._must_run()
        key = arguments.a_key(f"agent:{agent}:cli:dm:local")
        return await self.services.memories.forget(key, text, timeout)

    async def preview_compaction(self, key: str, focus: str = "") -> Previewed:
        """What `/compact` would do: costs model calls, stores nothing. Raises as `previewing.preview`."""
        self._must_run()
        return await previewing.preview(self.services, arguments.a_key(key), focus)

    async def abort(self, key: str) -> bool:
        """Stop the session's running turn, or its compaction; whether there was anything to stop."""
        return bool(await self._ask(key, Abort, 30.0))

    async def stop(
        self, key: str, *, tree: bool = False, timeout: float = 90.0
    ) -> tuple[bool, tuple[str, ...]]:
        """Stop what a session does; a subagent has ended then, and its parent is told. `tree`: all below.

        Whether there was anything to stop, and the subagents below, once each one's end is on record.
        Raises `SessionNotFound`, and `Busy` where one does not end in time.
        """
        self._must_run()
        return await stopped(self.services, arguments.a_key(key), self._ask, timeout, tree=tree)

    async def stop_tree(self, key: str, *, timeout: float = 90.0) -> tuple[str, ...]:
        """Stop a session and all below it; those. As `stop` with `tree`."""
        return (await self.stop(key, tree=True, timeout=timeout))[1]

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
                new = await self.io.run(self.reread)
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
