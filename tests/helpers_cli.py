"""Runs commands in this process, as the console script would, and in processes of their own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.entry import invoke


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        return json.loads(self.out)


def run(*arguments: str | os.PathLike[str], encoding: str = "utf-8") -> Ran:
    """One command line in this process, with streams of that encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n") for _ in range(2))
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        code = invoke([os.fspath(word) for word in arguments])
        out.flush(), err.flush()
    finally:
        sys.stdout, sys.stderr = kept
    texts = (stream.buffer.getvalue().decode(encoding) for stream in (out, err))  # type: ignore[attr-defined]
    return Ran(code, *texts)


def failed(ran: Ran, code: int = 2) -> str:
    """The one line a mistake costs; anything else fails the test."""
    assert ran.code == code, (ran.out, ran.err)
    assert ran.err.endswith("\n"), ran.err
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("perdure: "), ran.err
    return ran.err.removeprefix("perdure: ").rstrip("\n")


def process(
    *arguments: str | os.PathLike[str], env: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """The same in a process of its own."""
    return python("from perdure.cli import main; main()", *arguments, env=env, **streams)


def python(
    code: str, *arguments: str | os.PathLike[str], env: dict[str, str] | None = None, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """Python code in a process of its own, which finds this source tree and the helpers."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})}
    kept: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    command = [sys.executable, "-c", code, *(os.fspath(word) for word in arguments)]
    return subprocess.run(command, env=environ, timeout=60, check=False, **kept)


def fingerprint(root: Path) -> dict[str, Any]:
    """Every file and folder below `root`: content, size, times. Equal before and after: nothing changed."""
    found: dict[str, Any] = {}
    for path in sorted((root, *root.rglob("*"))):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, content)
    return found
