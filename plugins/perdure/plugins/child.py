"""A child process and its pipes: calls that overlap, over one stream, without a task of its own.

Whoever waits for an answer reads for all that wait, one at a time, and hands the reading on when it leaves:
so nothing runs while nobody calls. While somebody reads, stderr is drained too; what a child writes between
calls waits in its pipe.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from anyio.abc import Process

from perdure.errors import PerdureError
from perdure.plugins.wire import LONGEST, WireError, line, parsed

Message: TypeAlias = dict[str, Any]
Log: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[[Message], Awaitable[Message]]
GRACE = 1.0  # seconds that a cancelled call, a polite end and a kill may take
CHUNK = 1 << 16
LOGGED = 20  # lines of stderr that go to the log with one reading
MOST_CHARS = 500  # of such a line


class ChildEnded(PerdureError):
    """The process is gone, or was ended: it broke the protocol or was late. Call again, it is restarted."""


class _Waiting:
    """Who waits for messages of one call."""

    def __init__(self) -> None:
        self.mail: deque[Message] = deque()
        self.news = anyio.Event()


class Child:
    """A running process; made by `started`. `over` says why it can't be used any more, or ""."""

    def __init__(self, process: Process, errors: int, log: Log) -> None:
        self._process, self._errors, self._log = process, errors, log
        self._waiting: dict[int, _Waiting] = {}
        self._reading, self._writing = False, anyio.Lock()
        self._buffer, self._calls = bytearray(), 0
        self._over, self._killed = "", False
        self._said = bytearray()

    @property
    def over(self) -> str:
        if not self._over and self._process.returncode is not None:
            self._over = f"its process ended with code {self._process.returncode}"
        return self._over

    async def call(self, message: Message, asked: Asked, seconds: float) -> Message:
        """Send a message and await its answer; `asked` answers what the child asks meanwhile.

        Raises `ChildEnded`, also where it isn't answered in time: then it is cancelled, and if that is not
        answered either, the process is killed.
        """
        self._calls += 1
        number, mine = self._calls, _Waiting()
        self._waiting[number] = mine
        answer: Message | None = None
        try:
            with anyio.move_on_after(seconds) as scope:
                await self.send({"call": number, **message})
                answer = await self._answered(mine, asked)
        finally:
            if answer is None and not self.over:
                await self._cancelled(number, mine)
            del self._waiting[number]
            self._hand_on()
        if answer is None:
            late = f"`{message.get('method')}` was not answered within {seconds:g} s"
            raise ChildEnded(self.over or late) if scope.cancelled_caught else ChildEnded(self.over)
        return answer

    async def send(self, message: Message) -> None:
        """Raises `ChildEnded`. A message that is cut off costs the child: the next would be glued to it."""
        data = line(message)
        async with self._writing:
            await anyio.lowlevel.checkpoint()
            whole = False
            try:
                assert self._process.stdin is not None
                await self._process.stdin.send(data)
                whole = True
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                raise ChildEnded(self.over or "its process doesn't read any more") from None
            finally:
                if not whole:
                    self.kill("a message to it was cut off")

    async def read(self) -> Message:
        """The next message, for the one who greets it. Raises `ChildEnded`, `WireError`."""
        return parsed(await self._line())

    async def _answered(self, mine: _Waiting, asked: Asked) -> Message:
        while True:
            while mine.mail:
                message = mine.mail.popleft()
                if "ask" not in message:
                    return message
                self._hand_on()
                await self.send({"ask": message["ask"], **await asked(message)})
            if self._killed:
                raise ChildEnded(self.over)
            await self._more(mine)

    async def _more(self, mine: _Waiting) -> None:
        """Read one message, whosever it is, or wait until somebody else has."""
        if self._reading:
            await mine.news.wait()
            mine.news = anyio.Event()
            return
        self._reading = True
        try:
            self._hand_out(await self.read())
        except (ChildEnded, WireError) as error:
            self.kill(str(error))
            raise
        finally:
            self._reading = False

    def _hand_out(self, message: Message) -> None:
        if "log" in message:
            fields = message.get("fields")
            told = {str(name): value for name, value in fields.items()} if isinstance(fields, dict) else {}
            self._log(str(message["log"])[:MOST_CHARS], **told)
            return
        whose = self._waiting.get(message.get("of") or message.get("call") or 0)
        if whose is not None:  # an answer that comes too late is nobody's
            whose.mail.append(message)
            whose.news.set()

    def _hand_on(self) -> None:
        """Let somebody else read: the one who did has to do something else."""
        for other in self._waiting.values() if not self._reading else ():
            other.news.set()

    async def _cancelled(self, number: int, mine: _Waiting) -> None:
        """Tell it, and see it obey; else end it."""

        async def nothing(message: Message) -> Message:
            return {"error": {"kind": "cancelled", "text": "the call was cancelled"}}

        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(GRACE):
                try:
                    await self.send({"cancel": number})
                    await self._answered(mine, nothing)
                except (ChildEnded, WireError):
                    return
                return
            self.kill("it did not answer, and did not stop when it was told to")

    # --- the streams ------------------------------------------------------------------------------

    async def _line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LONGEST:
                raise WireError(f"a message of more than {LONGEST:,} bytes")
            self._buffer += await self._chunk()
        found = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return found

    async def _chunk(self) -> bytes:
        """More of stdout, while stderr is drained beside it. Raises `ChildEnded`."""
        found = b""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain)
            try:
                assert self._process.stdout is not None
                found = await self._process.stdout.receive(CHUNK)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
            tasks.cancel_scope.cancel()
        self._drain_now()
        if not found:
            with anyio.move_on_after(GRACE):
                await self._process.wait()
            raise ChildEnded(self.over or "it closed its stdout")
        return found

    async def _drain(self) -> None:
        while self._errors >= 0:
            await anyio.wait_readable(self._errors)
            if not self._drain_now():
                return

    def _drain_now(self) -> bool:
        """What stands in the pipe of stderr goes to the log; whether more may come."""
        lines = 0
        while self._errors >= 0:
            try:
                data = os.read(self._errors, CHUNK)
            except BlockingIOError:
                return True
            self._said += data
            *whole, rest = self._said.split(b"\n")
            self._said = bytearray(rest[-CHUNK:])
            for each in whole if data else (rest,):
                text = each.decode(errors="replace").strip()[:MOST_CHARS]
                lines += bool(text)
                if text and lines <= LOGGED:
                    self._log("stderr", text=text)
            if not data:
                return False
        return False

    # --- the end ----------------------------------------------------------------------------------

    def kill(self, why: str) -> None:
        """At once, with all it started. `close` comes later, for the pipes."""
        self._over, self._killed = self.over or why, True
        _signal(self._process.pid, signal.SIGKILL)
        for each in self._waiting.values():
            each.news.set()

    async def close(self) -> None:
        """Its stdin ends, which tells it to go; then it is killed. Nothing of it is left."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(GRACE):
                try:
                    assert self._process.stdin is not None
                    await self._process.stdin.aclose()
                    await self._process.wait()
                except (anyio.BrokenResourceError, OSError):
                    pass  # it is gone already
            self.kill("it was closed")
            with anyio.move_on_after(GRACE):
                await self._process.aclose()
            self._drain_now()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1


async def started(command: Sequence[str], env: Mapping[str, str] | None, log: Log) -> Child:
    """Start it in a group of its own. Raises `ChildEnded` where it can't be."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        process = await anyio.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer, env=env,
            start_new_session=True,
        )  # fmt: skip
    except BaseException as error:
        os.close(reader)
        if isinstance(error, OSError):
            raise ChildEnded(f"{command[0]} can't be started: {error.strerror or error}") from None
        raise
    finally:
        os.close(writer)
    return Child(process, reader, log)


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended by itself
