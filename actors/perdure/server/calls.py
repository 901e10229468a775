"""One request as its handler sees it: who asks, for which session, and what the body says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast
from urllib.parse import unquote

import anyio
import msgspec
from starlette.requests import ClientDisconnect, Request

from perdure.actors.arguments import a_key
from perdure.edges.settings_hosting import TenantSettings
from perdure.errors import SessionNotFound, UsageError
from perdure.host import Host
from perdure.kernel.outcome import Failed, Outcome, Returned
from perdure.server.problems import NOT_FOUND, Refused
from perdure.server.state import Serving

T = TypeVar("T")


class Call:
    """`tenant` is who asks; routes that anyone may ask have none."""

    def __init__(self, serving: Serving, request: Request, tenant: TenantSettings | None) -> None:
        self.serving, self.request, self._tenant = serving, request, tenant

    @property
    def host(self) -> Host:
        """The host."""
        return self.serving.host

    @property
    def tenant(self) -> TenantSettings:
        """Who asks."""
        assert self._tenant is not None
        return self._tenant

    def owns(self, key: str) -> bool:
        """Whether the session is one of theirs."""
        return self.serving.tenancy.owns(self.tenant, key)

    def key(self) -> str:
        """The key in the path. Another tenant's is not found, as one that nobody has."""
        try:
            key = unquote(self.request.path_params["key"], errors="strict")
        except UnicodeDecodeError:
            raise Refused(400, "invalid", "the session key is not UTF-8") from None
        return self.checked(key)

    def checked(self, key: str) -> str:
        """A key that may be used by who asks."""
        try:
            a_key(key)
            self.host.files.path(key)
        except UsageError as error:
            raise Refused(400, "invalid", str(error)) from None
        if not self.owns(key):
            raise Refused(404, "not_found", NOT_FOUND)
        return key

    async def known(self) -> str:
        """The key in the path, of a session that there is."""
        key = self.key()
        if not await self.host.io.run(self.host.files.exists, key):
            raise SessionNotFound(NOT_FOUND)
        return key

    # --- query and body ---------------------------------------------------------------------------

    def text(self, name: str) -> str | None:
        """A query parameter."""
        return self.request.query_params.get(name)

    def number(self, name: str, default: int, most: int) -> int:
        """A query parameter that counts, from 1 to `most`."""
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise Refused(400, "invalid", f"{name}={text[:40]}: give a whole number from 1 to {most}")
        return int(text)

    def flag(self, name: str) -> bool:
        """A query parameter that is on or off."""
        text = self.text(name)
        if text not in (None, "", "0", "1", "true", "false"):
            raise Refused(400, "invalid", f"{name}={text[:40]}: give 1 or 0")
        return text in ("", "1", "true")

    def seconds(self, name: str, most: float) -> float:
        """A query parameter in seconds; 0 where it is not given."""
        text = self.text(name)
        try:
            value = float(text or 0)
        except ValueError:
            value = -1.0
        if not 0 <= value <= most:
            raise Refused(400, "invalid", f"{name}={(text or '')[:40]}: give seconds, from 0 to {most:g}")
        return value

    async def body(self, kind: type[T]) -> T:
        """The JSON body. Its size is bounded by the door, its depth by the type: no field takes anything."""
        content = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        data = await self._read()
        if data and content != "application/json":
            raise Refused(415, "unsupported_type", "send the body as content-type: application/json")
        try:
            return msgspec.json.decode(data or b"{}", type=kind)
        except msgspec.ValidationError as error:
            raise Refused(422, "invalid", f"the body is not as it should be: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refused(400, "invalid", f"the body is no JSON: {error}") from None

    async def _read(self) -> bytes:
        stall = self.serving.settings.stall_seconds
        kept = bytearray()
        pieces = self.request.stream()
        try:
            while True:
                with anyio.fail_after(stall):
                    kept += await anext(pieces)
        except StopAsyncIteration:
            return bytes(kept)
        except TimeoutError:
            raise Refused(408, "timeout", f"nothing of the body came for {stall:g} s") from None
        finally:
            await pieces.aclose()

    async def while_connected(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` gives, given up where the client leaves before."""
        outcome: Outcome | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._left, group.cancel_scope)
            try:
                outcome = Returned(await work())
            except Exception as error:  # raised outside of the group, as itself
                outcome = Failed(error)
            group.cancel_scope.cancel()
        match outcome:
            case Returned(value):
                return cast(T, value)
            case Failed(failure):
                raise failure
            case _:
                raise ClientDisconnect

    async def _left(self, scope: anyio.CancelScope) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()
