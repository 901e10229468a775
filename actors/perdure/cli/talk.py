"""Whom a chat talks to: a host of its own, or a running one. One interface; the other form is remote."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from perdure.events import ApprovalAsked, Event, Reply
from perdure.host import Host
from perdure.records import Block


class Said(Protocol):
    """A message that is in the session's file."""

    async def reply(self) -> Reply: ...


class Talk(Protocol):
    """One session, to talk to."""

    def following(self, told: Callable[[Event], None]) -> AbstractAsyncContextManager[None]: ...
    def approvals(self) -> tuple[ApprovalAsked, ...]: ...
    async def command(self, line: str) -> str: ...
    async def send(self, text: str, attached: tuple[Block, ...]) -> Said: ...
    async def ask(self, text: str, attached: tuple[Block, ...]) -> Reply: ...


class HostTalk:
    """With a host in this process."""

    def __init__(self, host: Host, key: str) -> None:
        self._host, self._key = host, key

    @asynccontextmanager
    async def following(self, told: Callable[[Event], None]) -> AsyncIterator[None]:
        """What happens in the session, while the block runs."""
        leave = self._host.services.events.subscribe(
            "terminal", lambda event: told(event) if event.key == self._key else None
        )
        try:
            yield
        finally:
            leave()

    def approvals(self) -> tuple[ApprovalAsked, ...]:
        """Tool calls that wait for a person."""
        return self._host.approvals(self._key)

    async def command(self, line: str) -> str:
        """The answer of a slash command."""
        return await self._host.command(self._key, line)

    async def send(self, text: str, attached: tuple[Block, ...]) -> Said:
        """Returns once the message is in the file."""
        return await self._host.send(self._key, text, sender="cli", attachments=attached)

    async def ask(self, text: str, attached: tuple[Block, ...]) -> Reply:
        """How the turn that answers the message ended."""
        return await (await self.send(text, attached)).reply()
