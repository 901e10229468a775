"""A chat with a running host: what it says comes by an event stream that is taken up again when it is cut.

Nothing is shown twice or lost: text is shown as it comes; a message that is in the file is compared with
what was shown of it, and only the rest follows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import anyio
import msgspec

from perdure.cli.remote import forms
from perdure.cli.remote.client import Remote, Unreachable, session
from perdure.edges.session.decode import decode_message
from perdure.errors import Busy, Closed, PerdureError
from perdure.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Notice,
    Reply,
    Said,
    SubagentEnded,
    SubagentStarted,
    ToolEnded,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.records import Assistant, Block, Text, Usage, User

T = TypeVar("T")
PATIENCE = 120.0  # seconds that a lost host may take to come back
BACK_OFF = (0.1, 0.3, 1.0, 3.0)  # seconds between attempts; the last again and again
WAIT = 60  # seconds that one request waits for a reply
GRACE = 2.0  # seconds in which a turn's last events follow its reply
_EVENTS: dict[str, type[Event]] = {
    "turn.started": TurnStarted,
    "text": Said,
    "tool.started": ToolStarted,
    "tool.ended": ToolEnded,
    "approval.asked": ApprovalAsked,
    "approval.answered": ApprovalAnswered,
    "notice": Notice,
    "subagent.started": SubagentStarted,
    "subagent.ended": SubagentEnded,
    "turn.finished": TurnFinished,
}


class RemoteTalk:
    """With one session of a running host."""

    def __init__(self, remote: Remote, key: str, *, patience: float = PATIENCE) -> None:
        self._remote, self._key, self._patience = remote, key, patience
        self._path = session(key)
        self._asked: dict[str, ApprovalAsked] = {}
        self._told: Callable[[Event], None] = lambda event: None
        self._ready = anyio.Event()
        self._ended = anyio.Event()  # the turn
        self._last = self._latest = ""  # event, and message entry, that are told
        self._shown = ""  # of the message that is being written
        self._blind = False  # a piece of it may be missing
        self._running = False
        self._sending = 0
        self._mine: set[str] = set()  # entries of what was said here
        self._users: list[tuple[str, str]] = []  # what users said, while it is not known by whom

    # --- what is asked ----------------------------------------------------------------------------

    def approvals(self) -> tuple[ApprovalAsked, ...]:
        """Tool calls that wait for a person, as far as events told."""
        return tuple(self._asked.values())

    async def command(self, line: str) -> str:
        """The answer of a slash command."""
        found = await self._remote.post(f"{self._path}/command", {"line": line}, seconds=900.0)
        return str(found["text"])

    async def send(self, text: str, attached: tuple[Block, ...]) -> RemoteSaid:
        """Returns once the message is in the file; sent again under its id where a connection was lost."""
        mid, body = forms.mid(), forms.body(text, attached)
        self._sending += 1
        try:
            found = await self._again(lambda: self._remote.post(f"{self._path}/messages", body, mid=mid))
            self._mine.add(str(found["entry"]))
        finally:
            self._sending -= 1
            self._tell_users()
        return RemoteSaid(self, body, mid)

    async def ask(self, text: str, attached: tuple[Block, ...]) -> Reply:
        """How the turn that answers the message ended: one request, unless the connection is lost."""
        return await self.reply_to(forms.body(text, attached), forms.mid())

    async def reply_to(self, body: dict[str, Any], mid: str) -> Reply:
        """The reply, from the record where the turn is over."""
        path, ended = f"{self._path}/messages?wait={WAIT}", self._ended
        while True:
            found = await self._again(lambda: self._remote.post(path, body, mid=mid, seconds=WAIT + 30.0))
            if "reply" in found:
                break
        with anyio.move_on_after(GRACE):
            await ended.wait()
        return forms.reply(found)

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the host answers: what is asked may be asked twice."""
        attempt, since = 0, anyio.current_time()
        while True:
            try:
                return await ask()
            except (Unreachable, Closed):
                if anyio.current_time() - since > self._patience + WAIT:
                    raise
            await self._pause(attempt)
            attempt += 1

    async def _pause(self, attempt: int) -> None:
        await anyio.sleep(BACK_OFF[min(attempt, len(BACK_OFF) - 1)])
        self._remote.look_again()

    # --- what happens -----------------------------------------------------------------------------

    @asynccontextmanager
    async def following(self, told: Callable[[Event], None]) -> AsyncIterator[None]:
        """What happens in the session, while the block runs. Raises `Unreachable` where the host is gone."""
        self._told = told
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            await self._ready.wait()
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _follow(self) -> None:
        attempt, since = 0, anyio.current_time()
        while True:
            told = self._last
            try:
                await self._read()
                error: PerdureError = self._remote.lost()
            except (Unreachable, Closed, Busy) as lost:
                error = lost
            if self._last != told:
                attempt, since = 0, anyio.current_time()
            if not self._ready.is_set() or anyio.current_time() - since > self._patience:
                raise error
            if not attempt:
                self._told(Notice(self._key, "connection", "lost; trying to reach the host again"))
            await self._pause(attempt)
            attempt += 1

    async def _read(self) -> None:
        resumed, synced = bool(self._last), False
        async with (
            self._remote.stream(f"{self._path}/events", self._last) as source,
            aclosing(aiter(source)) as events,  # type: ignore[type-var]
        ):
            async for event in events:
                name, data = event.event, event.data.encode()
                if name in ("lagged", "closing", "failed"):
                    continue  # the stream ends now; one left early would leave httpx2's generators open
                if name == "resync":
                    synced = self._blind = True
                elif name == "ready":
                    self._last = event.id or self._last
                    await self._live(resumed, synced)
                    continue
                elif name == "entry":
                    self._entry(msgspec.json.decode(data, type=forms.Entry))
                elif name in _EVENTS:
                    self._happened(msgspec.json.decode(data, type=_EVENTS[name]))
                self._last = event.id or self._last

    async def _live(self, resumed: bool, synced: bool) -> None:
        if resumed:
            self._told(Notice(self._key, "connection", "reconnected"))
        if synced:
            self._asked.clear()
        if synced and self._running and not await self._works():
            self._happened(TurnFinished(self._key, Reply(self._key, "", "stop", 0, Usage())))
        self._ready.set()

    async def _works(self) -> bool:
        """Whether a turn is under way: its end may have been told while nobody listened."""
        try:
            return (await self._remote.get(self._path)).get("state") in ("running", "settling", "opening")
        except PerdureError:
            return True  # the stream will say

    def _happened(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._running, self._blind, self._shown = True, False, ""
            case Said(_, text):
                if self._blind:
                    return  # a piece is missing: the whole message follows
                self._shown += text
            case ApprovalAsked():
                self._asked[event.id] = event
            case ApprovalAnswered():
                self._asked.pop(event.id, None)
            case TurnFinished():
                self._running = False
                self._asked.clear()
            case _:
                pass
        self._told(event)
        if isinstance(event, TurnFinished):
            self._ended.set()
            self._ended = anyio.Event()

    def _entry(self, entry: forms.Entry) -> None:
        if self._latest and entry.entry <= self._latest:
            return
        self._latest = entry.entry
        message = decode_message(entry.message) if bytes(entry.message) != b"null" else None
        if isinstance(message, Assistant):
            self._answered("".join(block.text for block in message.content if isinstance(block, Text)))
        elif isinstance(message, User):
            text = "".join(block.text for block in message.content if isinstance(block, Text))
            self._users.append((entry.entry, text))
            self._tell_users()

    def _answered(self, text: str) -> None:
        rest = "" if text == self._shown else text
        if self._blind and self._shown and text.startswith(self._shown):
            rest = text[len(self._shown) :]
        if rest and (self._blind or not self._shown):
            self._told(Said(self._key, rest))
        self._shown, self._blind = "", False

    def _tell_users(self) -> None:
        if self._sending:
            return
        for entry, text in self._users:
            if entry not in self._mine:
                self._told(Notice(self._key, "said", text))
        self._users.clear()


class RemoteSaid:
    """A message that is in the session's file."""

    def __init__(self, talk: RemoteTalk, body: dict[str, Any], mid: str) -> None:
        self._talk, self._body, self._mid = talk, body, mid

    async def reply(self) -> Reply:
        """How the turn that answers it ended."""
        return await self._talk.reply_to(self._body, self._mid)
