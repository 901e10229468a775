"""Walking and searching one folder tree: globs, lines, regular expressions. Standard library only.

Run as a script it is the child process of `grep`: a regular expression can take for ever inside one
C call that holds the interpreter's lock, so it runs where it can be killed. The job is one JSON line
on stdin; each finding is one JSON line on stdout, so what was found before a kill is kept.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"})
MAX_ENTRIES = 200_000  # a walk ends here and says so
MAX_DEPTH = 64
LINE_BYTES = 16 * 1024  # matching looks at so much of a line
SHOWN_CHARS = 500
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Walk:
    """Files below one open folder in sorted order, links never followed. `full`: the limit was hit."""

    def __init__(self, root: int, limit: int = MAX_ENTRIES) -> None:
        self._root, self._left, self.full = root, limit, False

    def entries(self) -> Iterator[tuple[str, bool, int]]:
        """(path, is a folder, descriptor of the folder it is in), folders before their content."""
        yield from self._below(self._root, "", 0)

    def _below(self, descriptor: int, prefix: str, depth: int) -> Iterator[tuple[str, bool, int]]:
        with os.scandir(descriptor) as found:
            names = sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in found)
        for name, is_folder, is_link in names:
            if self._left <= 0:
                self.full = True
                return
            self._left -= 1
            if is_link or (is_folder and name in SKIPPED):
                continue
            yield prefix + name, is_folder, descriptor
            if is_folder and depth < MAX_DEPTH:
                yield from self._enter(descriptor, name, prefix, depth)

    def _enter(self, parent: int, name: str, prefix: str, depth: int) -> Iterator[tuple[str, bool, int]]:
        try:
            below = os.open(name, _DIRECTORY, dir_fd=parent)
        except OSError:
            return  # unreadable, gone, or swapped for a link
        try:
            yield from self._below(below, f"{prefix}{name}/", depth + 1)
        finally:
            os.close(below)


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a relative path fits: `*.py` by name anywhere, `src/**/*.py` by path, `{a,b}` either.

    Matching is linear in the path for every pattern (part by part, and `fnmatch` is safe by part).
    """
    tests = [_one_glob(each) for each in _braces(pattern.removeprefix("./").lstrip("/"))]
    return lambda path: any(test(path) for test in tests)


def _one_glob(pattern: str) -> Callable[[str], bool]:
    if "/" not in pattern:
        test = re.compile(fnmatch.translate(pattern)).fullmatch
        return lambda path: test(path.rpartition("/")[2]) is not None
    parts = tuple(
        None if p == "**" else re.compile(fnmatch.translate(p)) for p in pattern.rstrip("/").split("/")
    )
    return lambda path: _fits(parts, tuple(path.split("/")))


def _fits(parts: tuple[re.Pattern[str] | None, ...], names: tuple[str, ...]) -> bool:
    @functools.cache
    def fits(i: int, j: int) -> bool:
        if i == len(parts):
            return j == len(names)
        part = parts[i]
        if part is None:
            return fits(i + 1, j) or (j < len(names) and fits(i, j + 1))
        return j < len(names) and part.fullmatch(names[j]) is not None and fits(i + 1, j + 1)

    return fits(0, 0)


def _braces(pattern: str, limit: int = 64) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting and len(done) + len(waiting) <= limit:
        now = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", now)
        if found is None:
            done.append(now)
        else:
            waiting += [now[: found.start()] + each + now[found.end() :] for each in found[1].split(",")]
    return done or [pattern]


def lines_of(file: BinaryIO, longest: int) -> Iterator[tuple[bytes, bool]]:
    """(line with its end, True), or (the beginning of a line over `longest` bytes, False)."""
    buffer, skipping = b"", False
    while chunk := file.read(1 << 16):
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if not skipping:
                yield (line[:longest], False) if len(line) > longest else (line + b"\n", True)
            skipping = False
        if len(buffer) > longest:
            if not skipping:
                yield buffer[:longest], False
            buffer, skipping = b"", True
    if buffer and not skipping:
        yield buffer, True


def search(root: int, job: dict[str, Any], emit: Callable[[list[Any]], None]) -> None:
    """Emit `[path, line number, text, is a match]` rows, `None` between groups, then `{…}` totals."""
    pattern = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
    only = glob_matcher(job["glob"]) if job.get("glob") else None
    walk, left, files = Walk(root), job["limit"], 0
    names = [(job["file"], False, root)] if job.get("file") else walk.entries()
    for path, is_folder, parent in names:
        if is_folder or (only is not None and not only(path)):
            continue
        files += 1
        left = _search_file(parent, path, pattern, job["context"], left, emit)
        if left <= 0:
            break
    emit([{"files": files, "full": walk.full, "limited": left <= 0}])


def _search_file(
    parent: int,
    path: str,
    pattern: re.Pattern[str],
    around: int,
    left: int,
    emit: Callable[[list[Any]], None],
) -> int:
    try:
        descriptor = os.open(path.rpartition("/")[2], _FILE, dir_fd=parent)
    except OSError:
        return left
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        try:
            if b"\0" in file.read(8_192):
                return left  # binary
            file.seek(0)
            return _search_lines(file, path, pattern, around, left, emit)
        except OSError:
            return left


def _search_lines(
    file: BinaryIO,
    path: str,
    pattern: re.Pattern[str],
    around: int,
    left: int,
    emit: Callable[[list[Any]], None],
) -> int:
    before: list[tuple[int, str]] = []
    last, after = 0, 0
    for number, (raw, _) in enumerate(lines_of(file, LINE_BYTES), 1):
        text = raw.rstrip(b"\r\n").decode("utf-8", "replace")
        hit = pattern.search(text) if left > 0 else None
        if hit is not None:
            if last and around and number - len(before) > last + 1:
                emit([None])
            for n, line in before:
                emit([path, n, cut(line, 0), False])
            emit([path, number, cut(text, hit.start()), True])
            left, before, after, last = left - 1, [], around, number
        elif after > 0:
            emit([path, number, cut(text, 0), False])
            after, last = after - 1, number
        elif left <= 0:
            return left
        elif around:
            before = [*before, (number, text)][-around:]
    return left


def cut(text: str, at: int) -> str:
    """So much of a line as is shown, around the match."""
    if len(text) <= SHOWN_CHARS:
        return text
    start = max(0, min(at - SHOWN_CHARS // 4, len(text) - SHOWN_CHARS))
    end = start + SHOWN_CHARS
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def main() -> None:
    """The child process: descriptor 0 carries the job, the working directory is the folder searched."""
    job = json.loads(sys.stdin.buffer.readline())
    root = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def emit(row: list[Any]) -> None:
        sys.stdout.write(json.dumps(row) + "\n")  # ASCII: undecodable names survive as escapes
        sys.stdout.flush()

    search(root, job, emit)


if __name__ == "__main__":
    main()
