"""What an engine leaves running or open: tasks, threads, child processes, files of its store.

Linux tells all of it; elsewhere what can't be seen counts as nothing.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import sniffio

POOLED = ("AnyIO worker thread", "Trio thread", "asyncio_", "waitpid-")


class Traces:
    """A look at the process; `since` says in words what has come since."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before = self._look()

    def since(self) -> str:
        """ "" where nothing has."""
        found = [f"{what} {name}" for what, name in sorted(self._look() - self._before)]
        return f"left behind: {', '.join(found)}" if found else ""

    def _look(self) -> set[tuple[str, str]]:
        return {*_tasks(), *_threads(), *_children(), *_files(self._root)}


def _tasks() -> Iterator[tuple[str, str]]:
    if sniffio.current_async_library() == "asyncio":
        for task in asyncio.all_tasks():
            yield "task", task.get_name()
    else:
        import trio

        yield "task", f"count {trio.lowlevel.current_statistics().tasks_living}"


def _threads() -> Iterator[tuple[str, str]]:
    for thread in threading.enumerate():
        if not thread.name.startswith(POOLED):
            yield "thread", f"{thread.name} {thread.ident}"


def _children() -> Iterator[tuple[str, str]]:
    for task in _listed(f"/proc/{os.getpid()}/task"):
        try:
            pids = Path(f"/proc/{os.getpid()}/task/{task}/children").read_text()
        except OSError:
            continue
        for pid in pids.split():
            yield "process", pid


def _files(root: Path) -> Iterator[tuple[str, str]]:
    gc.collect(0)
    for number in _listed("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if path.startswith(str(root)):
            yield "file", os.path.relpath(path.removesuffix(" (deleted)"), root)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
