"""Server-sent events of an open answer, decoded: what every server of the OpenAI family streams.

Read here and not by the SDK: its reader leaves its generators open where an answer ends early, which
trio reports, and its typed events drop what compatible servers add.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import anyio
import msgspec

from perdure.errors import ModelError

DONE = b"[DONE]"
DRAIN = 1.0  # seconds given to a server for ending a stream that is done, so that its connection lives
MAX_EVENT = 64 * 1024 * 1024

Json = dict[str, Any]


class Lines:
    """Bytes in, whole events' data out."""

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that ends in `chunk`."""
        found: list[bytes] = []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > MAX_EVENT:
            raise ModelError("server", "the provider sent an event without an end")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found

    def end(self) -> list[bytes]:
        """The data of a last event that no empty line ends."""
        return self.feed(b"\n\n")


async def events(response: Any) -> AsyncGenerator[Json]:
    """Each event as an object, until `[DONE]` or the end of `response`, which is closed.

    Raises `ModelError` for an event that is no JSON, and what the HTTP client raises.
    """
    try:
        async with aclosing(response.aiter_bytes()) as chunks:
            try:
                async with aclosing(_data(chunks)) as found:
                    async for data in found:
                        yield data
            finally:
                await _drain(chunks)
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()


async def _data(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[Json]:
    lines = Lines()
    async for chunk in chunks:
        for data in lines.feed(chunk):
            if data.startswith(DONE):
                return
            yield _decoded(data)
    for data in lines.end():
        if not data.startswith(DONE):
            yield _decoded(data)


async def _drain(chunks: AsyncGenerator[bytes]) -> None:
    """Read what a server still sends: a stream left in its middle can't be closed cleanly."""
    with anyio.move_on_after(DRAIN):
        async for _ in chunks:
            pass


def _decoded(data: bytes) -> Json:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise ModelError("cut", "the answer broke off: an event of the stream is no whole JSON") from None
    return found if isinstance(found, dict) else {}


def text_at(node: Any, name: str) -> str:
    """A field that is a text; "" where it isn't there or is something else."""
    value = node.get(name) if isinstance(node, dict) else None
    return value if isinstance(value, str) else ""
