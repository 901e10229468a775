"""Chats in processes of their own, on a terminal or on pipes, with a model that plays a script.

Everything waits for what is shown, never for time. `python -m helpers_chat SCRIPT chat …` is the child.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.models.scripted import ScriptedModel
from perdure.records import Text

PATIENCE = 60.0  # seconds until a test gives up: a chat that hangs
HOUR = 3600.0
HALF = say("the first half, and the second", chunks=2, pace=HOUR)  # says one half, then nothing


class Chat:
    """A chat that runs, and everything it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], writing: int, reading: int) -> None:
        self.process, self._writing, self._reading = process, writing, reading
        self.shown = ""
        self._seen = 0

    def type(self, text: str) -> None:
        """As by a keyboard: on a terminal, `\\x03` is Ctrl-C and `\\x04` is Ctrl-D."""
        os.write(self._writing, text.encode())

    def until(self, text: str) -> str:
        """Wait until that is shown, after what was waited for before; what was shown up to there."""
        while (at := self.shown.find(text, self._seen)) < 0:
            assert self._more(), f"ended without {text!r}: {self.shown!r}"
        before, self._seen = self._seen, at + len(text)
        return self.shown[before : self._seen]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        while self._more():
            pass
        return self.process.wait(PATIENCE)

    @property
    def rest(self) -> str:
        """What was shown since."""
        return self.shown[self._seen :]

    def _more(self) -> bool:
        ready, _, _ = select.select([self._reading], [], [], PATIENCE)
        assert ready, f"nothing more comes: {self.shown!r}"
        try:
            data = os.read(self._reading, 65_536)
        except OSError:  # the terminal's other end is closed
            return False
        self.shown += data.decode().replace("\r\n", "\n")
        return bool(data)


@contextmanager
def on_terminal(script: str, *arguments: str | os.PathLike[str]) -> Iterator[Chat]:
    """The chat has a terminal of its own, of which Ctrl-C reaches it."""
    ours, theirs = pty.openpty()
    try:
        process = _spawn(script, arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    with _ending(process, ours):
        yield Chat(process, ours, ours)


@contextmanager
def on_pipes(script: str, *arguments: str | os.PathLike[str]) -> Iterator[Chat]:
    """Input by a pipe that stays open; stdout and stderr together in another."""
    reading, writing = os.pipe()
    process = _spawn(script, arguments, stdin=subprocess.PIPE, stdout=writing, stderr=writing)
    os.close(writing)
    assert process.stdin is not None
    with process.stdin, _ending(process, reading):
        yield Chat(process, process.stdin.fileno(), reading)


@contextmanager
def _ending(process: subprocess.Popen[bytes], fd: int) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()
        os.close(fd)


def _spawn(
    script: str, arguments: tuple[str | os.PathLike[str], ...], **streams: Any
) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "helpers_chat", script, "chat", *map(os.fspath, arguments)]
    return subprocess.Popen(command, env=environ, start_new_session=True, **streams)


# --- the child ------------------------------------------------------------------------------------


class Script:
    """Answers one after another; then what the user's latest texts were."""

    def __init__(self, *replies: ScriptedReply | Callable[[], Any]) -> None:
        self._replies = list(replies)

    async def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        if not self._replies:
            return say(f"heard {'; '.join(_texts(body))}.")
        reply = self._replies.pop(0)
        return reply if isinstance(reply, ScriptedReply) else await reply()


def _texts(body: Mapping[str, Any]) -> list[str]:
    blocks = [b for m in body["messages"] if m["role"] == "user" for b in _blocks(m["content"])]
    return [block["text"].strip().rpartition("\n")[2] for block in blocks if block["type"] == "text"]


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


async def _gated() -> ScriptedReply:
    """A call, once somebody has written to the pipe `gate` in the current folder."""
    import anyio

    await anyio.to_thread.run_sync(Path("gate").read_bytes)
    return ScriptedReply((Text("Looking."), call("find", "toolu_1", pattern="*")))


SCRIPTS: dict[str, tuple[ScriptedReply | Callable[[], Any], ...]] = {
    "plain": (),
    "half": (HALF,),
    "gated": (_gated,),
    "cut": (say("one two three four", chunks=4, fault="cut"), say("the whole answer")),
    "stalls": (say("so much " * 400), say("so much " * 400), fail("stall")),
    "looks": (
        ScriptedReply((call("find", "toolu_1", pattern="*"), call("find", "toolu_2", pattern="a*"))),
        say("the answer"),
    ),
    "overloaded": (fail("overloaded"), say("the answer")),
}


def main() -> int:
    """The command line after the script's name, on that script."""
    from perdure.cli.entry import invoke
    from perdure.hosting import furnish

    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    source = Script(*SCRIPTS[sys.argv[1]])
    furnish.default_factories = lambda clock, *_: {  # type: ignore[attr-defined,assignment]
        "scripted": lambda info: ScriptedModel(info, source, clock, accounting=False)
    }
    return invoke(sys.argv[2:])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise SystemExit(main())
