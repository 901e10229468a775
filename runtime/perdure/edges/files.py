"""Whole files, read and written without blocking the loop, and replaced so that no reader sees half.

aiofiles on asyncio, trio's own files on trio; under virtual time inline, as the I/O policy says, because
a task that waits for a thread would hold virtual time up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from perdure.edges import disk
from perdure.kernel.io import IoPolicy


async def read_bytes(path: Path, io: IoPolicy) -> bytes:
    """The whole file. Raises `OSError`."""
    if io.virtual:
        return await io.run(path.read_bytes)
    async with _open(path, "rb") as file:
        data: bytes = await file.read()
        return data


async def write_bytes(path: Path, data: bytes, io: IoPolicy, *, mode: int = 0o600) -> None:
    """Replace the whole file atomically: temp file beside it, fsync by policy, rename. Raises `OSError`.

    An existing file keeps its rights, a new one gets `mode`.
    """
    temp = _temp(path)
    disk.announce("open", temp)
    try:
        disk.announce("write", temp)
        if io.virtual:
            _write_now(temp, data)
        else:
            async with _open(temp, "xb") as file:
                await file.write(data)
    except BaseException:
        _forget(temp)
        raise
    await io.run(_put, temp, path, mode, io.sync)


@asynccontextmanager
async def _open(path: Path, mode: str) -> AsyncIterator[Any]:
    """A file object whose methods are awaited, by whichever loop runs."""
    trio = sys.modules.get("trio")  # a loop of it can't run where it was never imported
    if trio is not None and trio.lowlevel.in_trio_task():
        async with await trio.open_file(path, mode) as file:
            yield file
        return
    import aiofiles  # type: ignore[import-untyped]

    async with aiofiles.open(path, mode) as file:
        yield file


_made = 0


def _temp(path: Path) -> Path:
    global _made
    _made += 1
    return path.with_name(f"{path.name[:180]}.{os.getpid():x}.{_made:x}.tmp")


def _forget(temp: Path) -> None:
    disk.unlink(temp, missing_ok=True)


def _write_now(temp: Path, data: bytes) -> None:
    with temp.open("xb") as out:
        out.write(data)


def _put(temp: Path, path: Path, mode: int, sync: bool) -> None:
    try:
        try:
            mode = path.stat().st_mode & 0o7777
        except FileNotFoundError:
            pass
        fd = os.open(temp, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fchmod(fd, mode)
            if sync:
                disk.fsync(fd, temp)
        finally:
            os.close(fd)
        disk.rename(temp, path)
    except BaseException:
        disk.unlink(temp, missing_ok=True)
        raise
    if sync:
        disk.sync_folder(path.parent)
