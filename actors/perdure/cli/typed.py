"""Lines from a descriptor without a thread that blocks in it: the loop says when there is something to read.

A cancelled wait loses nothing and leaves nothing behind, so that a program can end at any time.
"""

from __future__ import annotations

import os
import sys

import anyio
import anyio.lowlevel

from perdure.errors import UsageError

MOST = 5 * 1024 * 1024  # bytes of one line, or of a text that is read whole
_PIECE = 65_536


class Lines:
    """The lines of a descriptor, decoded, without their ends. `None` descriptor: there is no input."""

    def __init__(self, fd: int | None, encoding: str = "utf-8") -> None:
        self._fd, self._encoding = fd, encoding
        self._ready: list[bytes] = []  # whole lines, the next one last
        self._rest = b""

    @classmethod
    def of_stdin(cls) -> Lines:
        """The program's standard input, which may be closed."""
        if sys.stdin is None:
            return cls(None)
        return cls(sys.stdin.fileno(), sys.stdin.encoding or "utf-8")

    @property
    def typed(self) -> bool:
        """Whether a person sits at the other end."""
        return self._fd is not None and os.isatty(self._fd)

    async def next(self) -> str | None:
        """The next line; `None` at the end of input. Raises `UsageError` for one that has no end."""
        while not self._ready:
            if self._fd is None:
                return None
            self._take(await self._read(self._fd))
        return self._ready.pop().decode(self._encoding, "replace").removesuffix("\r")

    def _take(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if not data:  # the last line may lack its end
            self._fd = None
            whole += [self._rest] if self._rest else []
        elif len(self._rest) > MOST:
            raise UsageError(f"a line of input is over {MOST:,} bytes: put it into a file")
        self._ready = whole[::-1]

    async def _read(self, fd: int) -> bytes:
        try:
            await anyio.wait_readable(fd)
        except PermissionError:  # a file: there is always something to read, and no loop watches it
            await anyio.lowlevel.checkpoint()
        try:
            return os.read(fd, _PIECE)
        except BlockingIOError:  # somebody else was faster
            return await self._read(fd)
        except OSError:  # the terminal is gone
            return b""


def whole_stdin() -> str:
    """All of standard input as text. Raises `UsageError` where it is too long or no UTF-8."""
    if sys.stdin is None:
        raise UsageError("-m -: standard input is closed: pipe the message into it")
    data = sys.stdin.buffer.read(MOST + 1)
    if len(data) > MOST:
        raise UsageError(f"-m -: over {MOST:,} bytes: put the text into a file and name it instead")
    try:
        return data.decode().strip()
    except UnicodeDecodeError as error:
        raise UsageError(f"-m -: not UTF-8 at byte {error.start}: send text") from None


__all__ = ["MOST", "Lines", "whole_stdin"]
