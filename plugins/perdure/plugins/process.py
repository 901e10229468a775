"""An engine in another process: `perdure.plugins.wire` is what both say, `remote.serve` the other side.

The process begins with the first call and goes with `dispose`. A crash fails the calls that were under way
(the host hands their entries over again) and the next call starts it anew, after a pause that doubles while
it crashes again and again. It gets no virtual time: there it is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel

from perdure.contracts import (
    METHODS,
    Assembled,
    Bootstrapped,
    Delegate,
    EngineCompaction,
    EngineContext,
    EngineInfo,
    Maintained,
    Moment,
    Rollback,
    Spawn,
    SpawnEnd,
    TurnReport,
)
from perdure.errors import PerdureError
from perdure.plugins.child import Child, ChildEnded, Message, started
from perdure.plugins.wire import PROTOCOL, WireError, pack, pack_context, unpack
from perdure.records import Item, Items

CALL_SECONDS = 20.0  # below the host's own deadline, so that it is told why
START_SECONDS = 15.0  # Python and its imports on a machine under load
LONGEST_PAUSE = 60.0


class ProcessEngine:
    """The engine `info` in the process of `command`: words of a command line, or a Python module.

    `env`: all of its environment (default: the host's). Every call that the process doesn't answer raises
    `PerdureError`.
    """

    def __init__(
        self,
        info: EngineInfo,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        call_seconds: float = CALL_SECONDS,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.info, self._env = info, env
        self._command = [sys.executable, "-m", command] if isinstance(command, str) else list(command)
        self._call_seconds, self._start_seconds = call_seconds, start_seconds
        self._child: Child | None = None
        self._methods: frozenset[str] = frozenset()
        self._starting = anyio.Lock()
        self._crashes, self._not_before = 0, 0.0
        self._disposed = False

    async def bootstrap(self, context: EngineContext) -> Bootstrapped:
        return await self._call("bootstrap", Bootstrapped, context) or Bootstrapped()

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        return bool(await self._call("ingest", bool, context, item))

    async def ingest_batch(self, context: EngineContext, items: Items) -> int:
        if await self._has("ingest_batch", context):
            return int(await self._call("ingest_batch", int, context, items) or 0)
        return sum([await self.ingest(context, item) for item in items])

    async def after_turn(self, context: EngineContext, report: TurnReport) -> None:
        await self._call("after_turn", type(None), context, report)

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        return await self._call("assemble", Assembled, context, messages) or Assembled(messages)

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        found: EngineCompaction | None = await self._call(
            "compact", EngineCompaction, context, force, instructions, delegate=delegate
        )
        return await delegate() if found is None else found

    async def maintain(self, context: EngineContext, moment: Moment) -> Maintained:
        return await self._call("maintain", Maintained, context, moment) or Maintained()

    async def prepare_subagent_spawn(self, context: EngineContext, spawn: Spawn) -> Rollback | None:
        number: int | None = await self._call("prepare_subagent_spawn", int, context, spawn)
        return None if number is None else partial(self._rollback, context, number)

    async def _rollback(self, context: EngineContext, number: int) -> None:
        await self._call("rollback", type(None), context, number)

    async def on_subagent_ended(self, context: EngineContext, child_key: str, end: SpawnEnd) -> None:
        await self._call("on_subagent_ended", type(None), context, child_key, end)

    async def dispose(self) -> None:
        """It may close its store; then it is ended, whatever it does."""
        self._disposed = True
        child, self._child = self._child, None
        if child is None:
            return
        try:
            if not child.over:
                await child.call({"method": "dispose", "context": None, "arguments": []}, _refuse, GOODBYE)
        except PerdureError:
            pass  # it is ended below
        finally:
            await child.close()

    # --- a call -----------------------------------------------------------------------------------

    async def _has(self, method: str, context: EngineContext) -> bool:
        await self._running(context)
        return method in self._methods

    async def _call(
        self,
        method: str,
        kind: type,
        context: EngineContext,
        *arguments: Any,
        delegate: Delegate | None = None,
    ) -> Any:
        """Its answer, `None` where it has no such method."""
        child = await self._running(context)
        if method in METHODS and method not in self._methods:
            return None
        packed = {"method": method, "context": pack_context(context), "arguments": pack(arguments)}
        try:
            told = await child.call(packed, partial(_asked, context, delegate), self._call_seconds)
        except (ChildEnded, WireError) as error:
            raise PerdureError(f"{self.info.id}: {error}") from None
        self._crashes = 0
        return self._result(method, kind, told)

    def _result(self, method: str, kind: type, told: Message) -> Any:
        if "error" in told:
            error = told["error"] if isinstance(told["error"], dict) else {}
            raise PerdureError(f"{self.info.id}: `{method}`: {error.get('kind')}: {error.get('text')}")
        found = unpack(told.get("answer"))
        if found is not None and type(found) is not kind:
            raise PerdureError(
                f"{self.info.id} answered `{method}` with a {type(found).__name__}, not {kind.__name__}"
            )
        return found

    # --- the process ------------------------------------------------------------------------------

    async def _running(self, context: EngineContext) -> Child:
        """The process, started where there is none. Raises `PerdureError`."""
        if context.runtime.virtual:
            raise PerdureError(
                f"{self.info.id} runs in another process, which has no virtual time: use a real clock"
            )
        async with self._starting:
            self._refuse_disposed()
            if self._child is not None and not self._child.over:
                return self._child
            await self._buried(context)
            wait = self._not_before - anyio.current_time()
            if wait > 0:
                raise PerdureError(
                    f"{self.info.id} crashed {self._crashes} times: it is restarted in {wait:.0f} s"
                )
            child = await self._started(context)
            self._child = child
            return child

    def _refuse_disposed(self) -> None:
        if self._disposed:
            raise PerdureError(f"{self.info.id} was disposed")

    async def _buried(self, context: EngineContext) -> None:
        """Close what has ended, and see how long to wait before the next."""
        dead, self._child = self._child, None
        if dead is None:
            return
        context.runtime.log("process.ended", engine=self.info.id, reason=dead.over)
        self._pause()
        await dead.close()

    def _pause(self) -> None:
        """The first restart comes at once."""
        self._crashes += 1
        pause = min(LONGEST_PAUSE, 2.0 ** (self._crashes - 2)) if self._crashes > 1 else 0.0
        self._not_before = anyio.current_time() + pause

    async def _started(self, context: EngineContext) -> Child:
        runtime = context.runtime
        hello = {"protocol": PROTOCOL, "store": str(runtime.store), "settings": dict(runtime.settings)}
        child: Child | None = None
        why = f"it did not say hello within {self._start_seconds:g} s"
        try:
            with anyio.move_on_after(self._start_seconds):
                child = await started(self._command, self._env, runtime.log)
                await child.send({"hello": hello})
                self._methods = _methods(await child.read())
                self._refuse_disposed()  # meanwhile
                return child
        except (ChildEnded, WireError) as error:
            why = str(error)
        except BaseException:
            if child is not None:
                await child.close()
            raise
        self._pause()
        if child is not None:
            await child.close()
        raise PerdureError(f"{self.info.id}: {why}")


GOODBYE = 5.0  # seconds that a child may take to close its store


def _methods(told: Message) -> frozenset[str]:
    hello = told.get("hello")
    if not isinstance(hello, dict) or hello.get("protocol") != PROTOCOL:
        raise WireError(f"it did not say hello in protocol {PROTOCOL}: {str(told)[:80]}")
    return frozenset(map(str, hello.get("methods", ())))


async def _refuse(message: Message) -> Message:
    return {"error": {"kind": "refused", "text": "nothing may be asked now"}}


async def _asked(context: EngineContext, delegate: Delegate | None, message: Message) -> Message:
    """What a call asks of its host. Errors go back to the child, which may handle them."""
    try:
        arguments = unpack(message.get("arguments", []))
        return {"answer": pack(await _done(context, delegate, str(message.get("what")), arguments))}
    except Exception as error:
        return {"error": {"kind": type(error).__name__, "text": str(error)}}


async def _done(
    context: EngineContext, delegate: Delegate | None, what: str, arguments: tuple[Any, ...]
) -> Any:
    runtime = context.runtime
    if what == "history":
        return await runtime.history(*arguments)
    if what == "complete":
        prompt, system, most = arguments
        return await runtime.complete(context.session_key, prompt, system=system, max_tokens=most)
    if what == "rewrite_transcript_entries":
        return await runtime.rewrite_transcript_entries(*arguments)
    if what == "delegate" and delegate is not None:
        return await delegate()
    raise WireError(f"{what!r} can't be asked here")
