"""Running a child process so that nothing of it remains: own group, bounded output, killed at the end.

Output goes through one pipe of ours, read as it comes: a head, a ring of the tail and, up to a cap, a
spill file are kept, so a child may print for ever. The pipe is ours because waiting for a process
would otherwise also wait for whatever grandchild still holds its output.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

import anyio
from anyio.abc import Process

from perdure.records import Record

GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
LINGER_SECONDS = 0.25  # for grandchildren that still write when the process has ended
DRAIN_SECONDS = 1.0  # for the pipe to close when all of them are gone
SPOOL_BYTES = 1 << 20  # a spill up to this stays in memory
_CHUNK = 1 << 16


class Limits(Record):
    """What one child may use; 0 is no limit. Sizes in MiB, time in seconds of CPU."""

    cpu_seconds: int = 0
    memory_mb: int = 0
    file_mb: int = 0
    open_files: int = 0

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command behind a shell that sets the limits before it becomes the command."""
        wanted = [
            ("-c", "0"),
            ("-t", str(self.cpu_seconds) if self.cpu_seconds else ""),
            ("-v", str(self.memory_mb * 1024) if self.memory_mb else ""),
            ("-f", str(self.file_mb * 2048) if self.file_mb else ""),
            ("-n", str(self.open_files) if self.open_files else ""),
        ]
        lines = [f"ulimit {flag} {value} 2>/dev/null" for flag, value in wanted if value]
        return ["/bin/sh", "-c", "; ".join([*lines, 'exec "$@"']), "sh", *argv]


class Capture:
    """What is kept of an output: at most `cap` bytes (spilled), and always its last `tail` bytes."""

    def __init__(self, cap: int, tail: int = 1 << 16) -> None:
        self.total, self._cap, self._kept = 0, cap, 0
        self._spill = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115 (closed by close)
        self._tail, self._tail_limit = bytearray(), tail

    def feed(self, data: bytes) -> None:
        """Take the next piece."""
        self.total += len(data)
        room = self._cap - self._kept
        if room > 0:
            self._spill.write(data[:room])
            self._kept += min(room, len(data))
        self._tail += data
        if len(self._tail) > self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    def whole(self) -> bytes:
        """All of it, or the first `cap` bytes, a line that says how much is missing, and the tail."""
        self._spill.seek(0)
        kept = self._spill.read()
        if self.total <= self._cap:
            return kept
        tail = bytes(self._tail[-(self.total - self._kept) :])
        missing = self.total - self._kept - len(tail)
        line = f"\n[... {missing:,} of {self.total:,} bytes were not kept ...]\n" if missing else ""
        return kept + line.encode() + tail

    def close(self) -> None:
        """Drop the spill file."""
        self._spill.close()


class Ended(Record):
    """How a process ended: its exit code (negative: signal), and whether it was stopped for time."""

    code: int
    timed_out: bool = False


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout: float,
    capture: Capture,
    stdin: bytes = b"",
    errors: bool = True,
) -> Ended:
    """Run to the end or to the timeout (seconds), then make sure that its whole group is gone.

    `errors`: stderr goes the same way as stdout, else nowhere. Raises OSError if it can't be started.
    """
    reader, writer = os.pipe()
    try:
        process = await _start(argv, cwd, env, writer, stdin, errors)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    os.set_blocking(reader, False)
    try:
        return await _until_end(process, reader, capture, timeout)
    finally:
        with anyio.CancelScope(shield=True):
            await _end_group(process)
        os.close(reader)


async def _start(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, stdin: bytes, errors: bool
) -> Process:
    with tempfile.TemporaryFile() as given:
        given.write(stdin)
        given.seek(0)
        return await anyio.open_process(
            list(argv),
            stdin=given if stdin else subprocess.DEVNULL,
            stdout=out,
            stderr=out if errors else subprocess.DEVNULL,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )


async def _until_end(process: Process, reader: int, capture: Capture, timeout: float) -> Ended:
    drained = anyio.Event()

    async def pump() -> None:
        await _pump(reader, capture)
        drained.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pump)
        with anyio.move_on_after(timeout) as scope:
            await process.wait()
        if scope.cancelled_caught:
            await _end_group(process)
        # What it wrote is in the pipe already. A grandchild that keeps the pipe open may finish a last
        # line (`> >(tee log)`), then goes with the group, which closes the pipe.
        for seconds in (LINGER_SECONDS, DRAIN_SECONDS):
            with anyio.move_on_after(seconds):
                await drained.wait()
            _signal(process.pid, signal.SIGKILL)
        tasks.cancel_scope.cancel()
    code = process.returncode
    return Ended(-signal.SIGKILL if code is None else code, scope.cancelled_caught)


async def _pump(reader: int, capture: Capture) -> None:
    while True:
        await anyio.wait_readable(reader)
        try:
            data = os.read(reader, _CHUNK)
        except BlockingIOError:
            continue
        if not data:
            return
        capture.feed(data)


async def _end_group(process: Process) -> None:
    """No member of the process's group survives a call: asked first, then killed."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with anyio.move_on_after(GRACE_SECONDS):
            await process.wait()
    _signal(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with anyio.move_on_after(GRACE_SECONDS):  # one that even SIGKILL can't end is left behind
            await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # it ended by itself
