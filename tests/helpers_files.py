"""Small stand-ins for tests of the writing side: a grant, a file in our hands, a limited child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from perdure.edges.session.writer import LocalSessionFile

HEADER = b'{"type":"session","version":3,"id":"s-1","timestamp":"2026-11-29T00:00:00.000Z","cwd":"/w"}\n'


class FakeGrant:
    """A grant whose validity the test decides."""

    shard = 0

    def __init__(self, token: int = 1, *, clean: bool = True) -> None:
        self.token, self.clean, self.held = token, clean, True

    def valid(self) -> bool:
        return self.held


def entry(n: int, parent: int | None = None, text: str = "hi") -> bytes:
    """A small message line with id `m<n>`, child of `m<n-1>` unless told."""
    up = n - 1 if parent is None else parent
    above = "null" if n == 0 else f'"m{up}"'
    return (
        f'{{"type":"message","id":"m{n}","parentId":{above},"timestamp":"2026-11-29T00:00:01.000Z",'
        f'"message":{{"role":"user","content":"{text}","timestamp":1}}}}\n'
    ).encode()


def held(path: Path, grant: FakeGrant | None = None, **more: object) -> LocalSessionFile:
    """A writer on `path` (made with a header if missing), sizes as they are now."""
    if not path.exists():
        path.write_bytes(HEADER)
    status = path.stat()
    return LocalSessionFile(  # type: ignore[arg-type]
        path, grant or FakeGrant(), size=status.st_size, inode=status.st_ino, sync=False, **more
    )


def child(code: str, *arguments: str) -> str:
    """Runs Python in a child process and returns what it printed; its failure fails the test."""
    folders = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": folders},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
