"""A thin client of the HTTP API: every wait has an end, and what goes wrong is one of perdure's errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
import httpx2
import msgspec

from perdure.cli.remote.address import TOKEN, Address
from perdure.errors import (
    Busy,
    Closed,
    Locked,
    Parked,
    PerdureError,
    SegmentGone,
    SessionNotFound,
    StorageFailed,
    UnreadableFile,
    UsageError,
)

T = TypeVar("T")
CONNECT, ANSWER = 5.0, 60.0  # seconds
LONG = 900.0  # of a command that calls models
SILENCE = 60.0  # without even a heartbeat, after which a stream is lost
LARGEST_EVENT = 2 * 1024 * 1024  # bytes
_KNOWN: dict[str, type[PerdureError]] = {
    "invalid": UsageError,
    "id_reused": UsageError,
    "message_too_large": UsageError,
    "attachment_too_large": UsageError,
    "body_too_large": UsageError,
    "not_found": SessionNotFound,
    "locked": Locked,
    "parked": Parked,
    "segment_gone": SegmentGone,
    "unreadable_file": UnreadableFile,
    "storage_failed": StorageFailed,
}


class Unreachable(PerdureError):
    """The host can't be reached, or was lost before it answered: whether it acted is not known."""


class Remote:
    """A running host. `locate` is asked again when a connection fails: a host that follows has another token.

    An async context manager.
    """

    def __init__(self, at: Address, locate: Callable[[], Address | None] | None = None) -> None:
        self.at, self._locate = at, locate
        self._http = httpx2.AsyncClient(timeout=_timeout(ANSWER), trust_env=False)

    async def __aenter__(self) -> Remote:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> Any:
        """The JSON at a path."""
        return await self.ask("GET", path)

    async def post(self, path: str, body: Any = None, *, seconds: float = ANSWER, mid: str = "") -> Any:
        """What a change answers."""
        return await self.ask("POST", path, body, seconds=seconds, mid=mid)

    async def abort(self, key: str) -> bool:
        """Stop the session's running turn, or its compaction; whether there was anything to stop."""
        return bool((await self.post(f"{session(key)}/abort"))["stopped"])

    async def ask(
        self, method: str, path: str, body: Any = None, *, seconds: float = ANSWER, mid: str = ""
    ) -> Any:
        """One request. Raises `Unreachable` where no answer came, else the error that the host told."""
        headers = {"authorization": f"Bearer {self.at.token}", "content-type": "application/json"}
        if mid:
            headers["idempotency-key"] = mid
        data = b"" if body is None else msgspec.json.encode(body)
        try:
            answer = await self._http.request(
                method, self.at.url + path, content=data, headers=headers, timeout=_timeout(seconds)
            )
        except httpx2.HTTPError as error:
            self.look_again()
            raise self.lost(error) from None
        return self._told(answer.status_code, answer.content)

    @asynccontextmanager
    async def stream(self, path: str, last: str) -> AsyncIterator[httpx2.EventSource]:
        """Server-sent events from the id `last` on (empty: from now). Raises as `ask`."""
        headers = {"authorization": f"Bearer {self.at.token}"} | ({"last-event-id": last} if last else {})
        url = self.at.url + path
        try:
            async with self._http.stream("GET", url, headers=headers, timeout=_timeout(SILENCE)) as answer:
                if answer.status_code != 200:
                    self._told(answer.status_code, await answer.aread())
                yield httpx2.EventSource(answer, max_event_size=LARGEST_EVENT)
        except httpx2.HTTPError as error:
            self.look_again()
            raise self.lost(error) from None

    def look_again(self) -> None:
        """Another host may have taken over."""
        found = self._locate() if self._locate is not None else None
        self.at = found or self.at

    def lost(self, error: Exception | None = None) -> Unreachable:
        """The line for a host that does not answer."""
        kind = type(error).__name__ if error is not None else "it ended the connection"
        return Unreachable(f"{self.at.url}: the host does not answer ({str(error or '') or kind})")

    def _told(self, status: int, data: bytes) -> Any:
        try:
            found = msgspec.json.decode(data or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UsageError(
                f"{self.at.url}: answers with no JSON (status {status}): is it perdure?"
            ) from None
        if status < 400:
            return found
        problem = found.get("error") if isinstance(found, dict) else None
        if not isinstance(problem, dict):
            raise UsageError(f"{self.at.url}: refuses with status {status}: is it perdure?")
        raise self._error(status, str(problem.get("kind")), str(problem.get("message")), problem)

    def _error(self, status: int, kind: str, text: str, problem: dict[str, Any]) -> PerdureError:
        if status == 401:
            return UsageError(f"{self.at.url}: {text}: check {TOKEN}, or serve.json of the state folder")
        if kind == "busy":
            return Busy(text, retry_after=problem.get("retry_after"))
        if kind in ("closed", "fenced"):
            return Closed(text)
        return _KNOWN.get(kind, PerdureError)(text)


def session(key: str) -> str:
    """The path of a session."""
    return f"/v1/sessions/{quote(key, safe='')}"


def asked(at: Address, ask: Callable[[Remote], Awaitable[T]]) -> T:
    """What a running host says, for a command that asks it once."""

    async def main() -> T:
        async with Remote(at) as remote:
            return await ask(remote)

    return anyio.run(main)


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=CONNECT)
