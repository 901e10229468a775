"""The child's side of an engine in another process: `serve(engine)` is all that its program needs.

    from perdure.plugins.remote import serve
    from my_engine import MyEngine

    if __name__ == "__main__":
        serve(MyEngine)

`print` goes to stderr, and so to the host's log. Tokens are estimated by fixed weights here: a session's own
calibration stays with its host.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from perdure.context.tokens.estimator import Estimator
from perdure.contracts import METHODS, EngineContext, Replacement, Rewritten, Rollback
from perdure.errors import PerdureError
from perdure.plugins.registry import takes_one
from perdure.plugins.wire import CONTEXT, PROTOCOL, WireError, line, pack, parsed, unpack
from perdure.records import Items

T = TypeVar("T")
Message = dict[str, Any]
ROLLBACKS = 1_000  # that are kept: the oldest is forgotten, for its child began long ago


class AskFailed(PerdureError):
    """The host could not do what was asked; the text begins with the kind of its error."""


def serve(engine: Any) -> None:
    """Serve an engine, or the factory of one, on stdin and stdout until stdin ends. Never returns."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # a stray print is no message
    sys.stdout = sys.stderr
    try:
        anyio.run(_Server(engine, sys.stdin.buffer, out).run)
    finally:
        os._exit(0)  # whatever still runs in a thread: the host is gone, or done with us


class ChildRuntime:
    """`EngineRuntime` of one call: what it can't do here, it asks the host."""

    virtual = False

    def __init__(self, server: _Server, call: int, now: int) -> None:
        self._server, self._call, self._now = server, call, now
        self.store, self.settings = server.store, server.settings

    def wall_ms(self) -> int:
        return self._now

    def estimate(self, items: Items) -> int:
        return sum(map(Estimator().item, items))

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work)

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        """Of the session that the call is about, whatever `key` says."""
        return str(await self._server.ask(self._call, "complete", prompt, system, max_tokens))

    def log(self, event: str, **fields: object) -> None:
        self._server.write({"log": event, "fields": {name: str(value) for name, value in fields.items()}})

    async def history(self, after: str = "", limit: int = 1_000) -> Items:
        try:
            found: Items = await self._server.ask(self._call, "history", after, limit)
        except AskFailed as error:
            if str(error).startswith("LookupError"):
                raise LookupError(str(error)) from None
            raise
        return found

    async def rewrite_transcript_entries(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        found: Rewritten = await self._server.ask(self._call, "rewrite_transcript_entries", replacements)
        return found

    async def delegate(self) -> Any:
        return await self._server.ask(self._call, "delegate")


class _Server:
    def __init__(self, engine: Any, into: Any, out: Any) -> None:
        self._made, self._in, self._out = engine, into, out
        self._engine: Any = None
        self.store, self.settings = Path(), dict[str, Any]()
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._asks: dict[int, tuple[anyio.Event, Message]] = {}
        self._asked = 0
        self._rollbacks: dict[int, Rollback] = {}

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            while data := await anyio.to_thread.run_sync(self._in.readline, abandon_on_cancel=True):
                self._take(parsed(data), tasks)
            tasks.cancel_scope.cancel()

    def _take(self, message: Message, tasks: TaskGroup) -> None:
        if "hello" in message:
            self._greet(message["hello"])
        elif "method" in message:
            self._scopes[message["call"]] = anyio.CancelScope()
            tasks.start_soon(self._answer, message)
        elif "cancel" in message:
            if (scope := self._scopes.get(message["cancel"])) is not None:
                scope.cancel()
        elif message.get("ask") in self._asks:
            event, box = self._asks[message["ask"]]
            box.update(message)
            event.set()

    def _greet(self, hello: Mapping[str, Any]) -> None:
        self.store, self.settings = Path(hello["store"]), dict(hello["settings"])
        lent = ChildRuntime(self, 0, 0)
        factory = self._made
        made = isinstance(factory, type) or inspect.isroutine(factory) or isinstance(factory, partial)
        self._engine = (factory(lent) if takes_one(factory) else factory()) if made else factory
        methods = [name for name in METHODS if callable(getattr(self._engine, name, None))]
        self.write({"hello": {"protocol": PROTOCOL, "methods": methods}})

    def write(self, message: Message) -> None:
        """Whole lines, whatever is waited for meanwhile; a host that is gone ends us by our stdin."""
        view = memoryview(line(message))
        try:
            while view:
                view = view[self._out.write(view) :]
        except OSError:
            os._exit(1)

    async def ask(self, call: int, what: str, *arguments: Any) -> Any:
        """Of the host, for a call. Raises `AskFailed`."""
        self._asked += 1
        number = self._asked
        event, box = self._asks[number] = (anyio.Event(), dict[str, Any]())
        try:
            self.write({"ask": number, "of": call, "what": what, "arguments": pack(arguments)})
            await event.wait()
        finally:
            del self._asks[number]
        if "error" in box:
            raise AskFailed(f"{box['error'].get('kind')}: {box['error'].get('text')}")
        return unpack(box.get("answer"))

    async def _answer(self, message: Message) -> None:
        number = message["call"]
        told: Message = {"error": {"kind": "cancelled", "text": "the call was cancelled"}}
        with self._scopes[number]:
            try:
                told = {"answer": pack(await self._called(number, message))}
            except Exception as error:
                told = {"error": {"kind": type(error).__name__, "text": str(error)}}
        del self._scopes[number]
        self.write({"call": number, **told})

    async def _called(self, number: int, message: Message) -> Any:
        method, arguments = message["method"], unpack(message["arguments"])
        if method == "dispose":
            return await _done(getattr(self._engine, "dispose", None) or _nothing)
        runtime = ChildRuntime(self, number, message["context"].pop("now"))
        context = EngineContext(runtime=runtime, **{n: unpack(message["context"][n]) for n in CONTEXT})
        if method == "rollback":
            return await self._rollbacks[arguments[0]]()
        call = getattr(self._engine, method)
        if method == "compact":
            force, instructions = arguments
            return await _done(call, context, runtime.delegate, force=force, instructions=instructions)
        found = await _done(call, context, *arguments)
        return self._kept(found) if method == "prepare_subagent_spawn" and found is not None else found

    def _kept(self, back: Rollback) -> int:
        number = max(self._rollbacks, default=0) + 1
        self._rollbacks[number] = back
        if len(self._rollbacks) > ROLLBACKS:
            del self._rollbacks[min(self._rollbacks)]
        return number


async def _done(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A method that is `async def`, or plain `def`: that runs in a thread, as in a host."""
    if inspect.iscoroutinefunction(method):
        return await method(*arguments, **named)
    found = await anyio.to_thread.run_sync(partial(method, *arguments, **named))
    return await found if isinstance(found, Awaitable) else found


def _nothing() -> None:
    return


__all__ = ["AskFailed", "ChildRuntime", "WireError", "serve"]
