"""An agent's workspace as records: bootstrap files, skills, MEMORY.md and daily notes.

Read safely: inside the root, regular files only, no hard links from elsewhere, bounded sizes and
counts. A session keeps the frozen snapshot its prompt was made of; it is read anew when the session
wakes or was compacted, when the cache is cold anyway. What can't be used is named in `problems`.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from pathlib import Path
from typing import BinaryIO, TypeVar

from perdure.context.prompt.bootstrap import NAMES, BootstrapFile
from perdure.context.prompt.knowledge import MEMORY_FILE, Note
from perdure.context.prompt.skills import Skill, parse
from perdure.edges.tools.confine import Refused, folder, locate, open_file
from perdure.records import Record

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_SKILL_BYTES = 256_000
MAX_CANDIDATES = 300  # skill folders looked at
MAX_NOTES = 60  # newest daily notes
MAX_CACHED = 2_000  # files remembered over all workspaces
_DAILY = re.compile(r"\d{4}-\d{2}-\d{2}(?:[-_.].{0,80})?\.md", re.IGNORECASE)

_CHANGED = "\0"  # no text: NULs never reach one

T = TypeVar("T")
Identity = tuple[int, int, int, int]


class Snapshot(Record):
    """What a workspace held when it was read. Equal content is one shared object."""

    root: str
    files: tuple[BootstrapFile, ...] = ()
    skills: tuple[Skill, ...] = ()
    notes: tuple[Note, ...] = ()
    problems: tuple[str, ...] = ()


class WorkspaceReader:
    """Reads workspaces, remembering files by path, inode, size and time of change. Blocks."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, tuple[Identity, str]] = OrderedDict()
        self._last: OrderedDict[str, Snapshot] = OrderedDict()

    def read(self, root: str | Path) -> Snapshot:
        """The workspace as it is now; a missing or unreadable folder is an empty one with a problem."""
        path = Path(root)
        problems: list[str] = []
        try:
            locate(path, ".")
        except Refused as error:
            missing = tuple(BootstrapFile(name, name) for name in NAMES)
            return Snapshot(str(root), files=missing, problems=(str(error),))
        made = Snapshot(
            str(root),
            files=tuple(BootstrapFile(n, n, self._text(path, n, MAX_FILE_BYTES, problems)) for n in NAMES),
            skills=self._skills(path, problems),
            notes=self._notes(path, problems),
            problems=tuple(problems),
        )
        before = self._last.get(str(root))
        made = before if before == made else made
        _remember(self._last, str(root), made, 256)
        return made

    def _skills(self, root: Path, problems: list[str]) -> tuple[Skill, ...]:
        skills = []
        for name in _names(root, ("skills",), folders=True)[:MAX_CANDIDATES]:
            path = f"skills/{name}/SKILL.md"
            text = self._text(root, path, MAX_SKILL_BYTES, problems)
            made = parse(text, path) if text is not None else None
            if isinstance(made, Skill):
                skills.append(made)
            elif made is not None:
                problems.append(made)
        return tuple(skills)

    def _notes(self, root: Path, problems: list[str]) -> tuple[Note, ...]:
        daily = [name for name in _names(root, ("memory",), folders=False) if _DAILY.fullmatch(name)]
        paths = [f"memory/{name}" for name in sorted(daily, reverse=True)[:MAX_NOTES]]
        notes = []
        for path in (MEMORY_FILE, *paths):
            text = self._text(root, path, MAX_FILE_BYTES, problems)
            if text is not None and text.strip():
                notes.append(Note(path, text))
        return tuple(notes)

    def _unchanged(self, key: str) -> str | None:
        """The text of a file that is still the one that was read, or None where there is none; one look.

        The name itself must be that file: what a link leads to is opened and checked anew.
        """
        try:
            found = os.lstat(key)
        except FileNotFoundError:
            return None
        except OSError:
            return _CHANGED
        cached = self._texts.get(key)
        if cached is None or cached[0] != _identity(found):
            return _CHANGED
        self._texts.move_to_end(key)
        return cached[1]

    def _text(self, root: Path, path: str, limit: int, problems: list[str]) -> str | None:
        """A file's text; None where it is missing (no problem) or unusable (a problem)."""
        key = os.path.join(root, path)
        if (known := self._unchanged(key)) is not _CHANGED:
            return known
        try:
            with open_file(root, path) as file:
                found = os.fstat(file.fileno())
                identity = _identity(found)
                cached = self._texts.get(key)
                if cached is not None and cached[0] == identity:
                    self._texts.move_to_end(key)
                    return cached[1]
                problem = _problem(found, limit)
                if problem:
                    problems.append(f"{path}: {problem}; left out")
                    return None
                text = _all(file, limit).decode("utf-8", "replace").removeprefix("\ufeff")
        except (Refused, OSError) as error:
            if not str(error).endswith("no such file or folder"):
                problems.append(f"{error}; left out")
            return None
        _remember(self._texts, key, (identity, text), MAX_CACHED)
        return text


def _identity(found: os.stat_result) -> Identity:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_dev


def _problem(found: os.stat_result, limit: int) -> str:
    if found.st_nlink > 1:
        return "a hard link, which may belong to a file elsewhere"
    return f"{found.st_size:,} bytes, over the limit of {limit:,}" if found.st_size > limit else ""


def _all(file: BinaryIO, limit: int) -> bytes:
    data = bytearray()
    while len(data) < limit and (chunk := file.read(min(1 << 20, limit - len(data)))):
        data += chunk
    return bytes(data)


def _names(root: Path, parts: tuple[str, ...], *, folders: bool) -> list[str]:
    """Sorted names of real folders (or files) directly in a folder; links are left out."""
    if not os.path.lexists(root.joinpath(*parts)):
        return []
    try:
        if locate(root, "/".join(parts)) != parts:
            return []  # the folder itself is a link: files in it would have two names
        with folder(root, parts) as opened, os.scandir(opened) as found:
            kept = [e.name for e in found if (e.is_dir if folders else e.is_file)(follow_symlinks=False)]
        return sorted(kept)
    except (Refused, OSError):
        return []


def _remember(cache: OrderedDict[str, T], key: str, value: T, limit: int) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > limit:
        cache.popitem(last=False)
