"""Bodies, a clock that jumps, and a collector of streams, for tests of models."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from perdure.contracts import Answer, Model, ModelEvent, Request
from perdure.records import ModelInfo

INFO = ModelInfo("scripted", "scripted", window=200_000, cache_minimum=16, thinking="adaptive")


class JumpingClock:
    """Every sleep is over at once; a wait for nothing blocks for ever."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return int(self.time * 1000)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await anyio.lowlevel.checkpoint()

    def waiter(self) -> anyio.Event:
        return anyio.Event()

    async def wait(self, waiter: anyio.Event) -> None:
        await waiter.wait()


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def use(ident: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": arguments}


def result(ident: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}


def tool(name: str = "read", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Reads.", "input_schema": {"type": "object"}, **more}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    start = {"model": INFO.id, "max_tokens": 1000}
    return {**start, "messages": list(messages) or [user("hello")], **more}


def request(data: dict[str, Any] | None = None, info: ModelInfo = INFO, session: str = "s") -> Request:
    return Request(msgspec.json.encode(data or body()), info, session=session)


async def collect(model: Model, asked: Request) -> list[ModelEvent]:
    return [event async for event in model.stream(asked)]


async def answer(model: Model, asked: Request) -> Answer:
    last = (await collect(model, asked))[-1]
    assert isinstance(last, Answer)
    return last
