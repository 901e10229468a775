"""A consistent backup of a state folder, whether a host runs in it or not. Changes nothing there.

Session files are append-only: each is copied up to its last whole line. A file and its segments are opened
together, the file first, so that a truncation or a discard meanwhile takes nothing away: an entry is in the
copy of the file, or in a segment beside it. Evidence follows, which is stored before anything refers to it.
Left out: the index (rebuilt by the next host), locks, the log, and the journal, whose records stand in the
session files already (after a power failure start a host once before, which replays it).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from perdure.edges import segments
from perdure.edges.bundle import Manifest, Source, sources_of, write_bundle
from perdure.edges.erasing import GRAVE
from perdure.edges.session import keys
from perdure.edges.session.swap import whole_lines
from perdure.edges.state import StateFolder
from perdure.records import Record


class Backup(Record):
    """What was written. `problems`: evidence that doesn't fit its hash, copied as it is."""

    manifest: Manifest
    problems: tuple[str, ...] = ()


def back_up(folder: StateFolder, out: Path, now_ms: int, *, workspaces: bool = False) -> Backup:
    """Write a backup of the folder to `out`. Blocking. Raises `StorageFailed`."""
    about: dict[str, Any] = {"epoch": _epoch(folder), "links": {}}
    pins = _Pins(folder, about["links"])
    rest = [folder.evidence, folder.archive, folder.config, *([folder.workspaces] if workspaces else [])]
    rest = [path for path in rest if path.exists()]
    contents = [source.path for source in sources_of(folder.path, [folder.sessions, *rest])]

    def sources() -> Iterator[Source]:
        yield from pins.sessions()
        yield from sources_of(folder.path, rest)

    manifest = write_bundle(
        out, sources(), contents=contents, kind="backup", made_ms=now_ms, about=about, opener=pins.open
    )
    wrong = (member for member in manifest.files if _misfit(member.path, member.sha256))
    return Backup(manifest, tuple(f"{member.path}: does not fit its hash" for member in wrong))


def _misfit(path: str, sha256: str) -> bool:
    place, _, rest = path.partition("/")
    return place == "evidence" and not path.endswith(".tmp") and rest.replace("/", "") != sha256


def _epoch(folder: StateFolder) -> int:
    try:
        found = json.loads((folder.path / "shard.lock").read_bytes())["epoch"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return found if isinstance(found, int) else 0


Beside: TypeAlias = list[tuple[Path, BinaryIO]]
Pinned: TypeAlias = tuple[BinaryIO, Beside, str]


class _Pins:
    """One session's files at a time, held open while they are copied."""

    def __init__(self, folder: StateFolder, links: dict[str, str]) -> None:
        self._folder, self._links = folder, links
        self._open: dict[str, BinaryIO] = {}

    def open(self, source: Source) -> BinaryIO:
        return self._open.pop(source.file, None) or open(source.file, "rb")

    def sessions(self) -> Iterator[Source]:
        for place, folders, names in os.walk(self._folder.sessions):
            folders[:] = sorted(name for name in folders if not name.endswith((GRAVE, ".segments")))
            for name in sorted(names):
                if keys.SUFFIX in name and not name.endswith((".lock", ".swap", ".old", ".tmp")):
                    yield from self._session(Path(place, name))

    def _session(self, path: Path) -> Iterator[Source]:
        with ExitStack() as stack:
            found = self._opened(path, stack)
            if found is None:
                return  # deleted meanwhile
            file, beside, swapped = found
            self._open = {os.fspath(path): file}
            self._open.update((os.fspath(each), opened) for each, opened in beside)
            if swapped:
                self._links[self._told(_names(path)[0])] = swapped
            size = os.fstat(file.fileno()).st_size
            yield Source(self._told(path), os.fspath(path), self._whole(path, file, size, bool(swapped)))
            for each, _ in beside:
                yield Source(self._told(each), os.fspath(each))

    def _opened(
        self, path: Path, stack: ExitStack
    ) -> tuple[BinaryIO, list[tuple[Path, BinaryIO]], str] | None:
        """The file, what belongs to it, and the mark of a swap under way. One that ends in between takes its
        second name away: then all of it is opened again. `None`: the session is gone.
        """
        mark, kept = _names(path)
        while True:
            with ExitStack() as held:
                try:
                    file: BinaryIO = held.enter_context(path.open("rb"))
                    swapped = _swap(mark, kept, file)  # looked at last: it may have begun only now
                    others = _segments(path, [kept] if swapped else [])
                    beside: Beside = [(each, held.enter_context(each.open("rb"))) for each in others]
                except FileNotFoundError:
                    if not path.exists():
                        return None
                    continue
                stack.push(held.pop_all())
                return file, beside, swapped

    def _whole(self, path: Path, file: BinaryIO, size: int, late: bool) -> int:
        """What is read of a file: a line that is being written now belongs to nobody yet."""
        current = path.name.endswith(keys.SUFFIX) and not late
        return whole_lines(file.fileno(), size) or size if current else size

    def _told(self, path: Path) -> str:
        return path.relative_to(self._folder.path).as_posix()


def _names(path: Path) -> tuple[Path, Path]:
    """The mark of a swap of this file, and the second name of its old inode."""
    mark, kept = (path.with_name(f"{path.name[:200]}{suffix}") for suffix in (".swap", ".old"))
    return mark, kept


def _swap(mark: Path, kept: Path, file: BinaryIO) -> str:
    """The mark of a swap whose new file this is, and which may not have taken over the late lines yet."""
    try:
        swapped = os.readlink(mark)
        old = kept.stat().st_ino == os.fstat(file.fileno()).st_ino
    except OSError:
        return ""
    return "" if old else swapped


def _segments(path: Path, late: list[Path]) -> list[Path]:
    return [*late, *segments.segments_of(path)]
