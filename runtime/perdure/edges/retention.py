"""What is kept of a state folder, and what goes: one plan, for the dry run and the real one alike.

`plan` decides from sizes, times and the settings of `[retention]`; without any nothing is touched. Sessions
in use are refused: awake or locked ones, those with waiting letters, an open turn or a timer, and the
subagents of them. `carry_out` is the only code that removes by policy, and archives first: a verified
bundle below `archive/`. Old archives and rotated logs go without one of their own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from perdure.edges import segments
from perdure.edges.blobs import LocalBlobs, place
from perdure.edges.bundle import sources_of, write_bundle
from perdure.edges.erasing import Eraser, belongings, size_of
from perdure.edges.session import keys, links
from perdure.edges.session.lock import holder_of
from perdure.edges.session.references import references
from perdure.edges.settings_hosting import RetentionSettings
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError, StorageFailed
from perdure.records import Record

Kind: TypeAlias = Literal["session", "segment", "evidence", "archive", "log"]
DAY = 86_400_000
MB = 1024 * 1024
GRACE = 3_600_000  # ms that evidence may be without an entry: it is stored before its entry is written


class Found(Record):
    """Something that could go: its kind, its key or path below the state folder, bytes, last change."""

    kind: Kind
    name: str
    bytes: int
    changed_ms: int
    busy: str = ""  # why it can't go
    agent: str = ""


class Doomed(Record):
    """Something that goes, and by which rule."""

    kind: Kind
    name: str
    bytes: int
    why: str


class Plan(Record):
    """What goes, in order; what should and can't (`refused`); `unmet`: limits that then still don't hold."""

    doomed: tuple[Doomed, ...] = ()
    refused: tuple[Doomed, ...] = ()
    unmet: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """What is freed, archives apart."""
        return sum(each.bytes for each in self.doomed)


class Removed(Record):
    """What became of a plan: what went, what failed and why, the archive that holds it ("" without one)."""

    done: tuple[Doomed, ...] = ()
    failed: tuple[tuple[Doomed, str], ...] = ()
    archive: str = ""


# --- survey ---------------------------------------------------------------------------------------


def survey(
    folder: StateFolder, now_ms: int, busy: Mapping[str, str], referred: Callable[[], Collection[str]]
) -> list[Found]:
    """Everything retention may speak of, by a walk through the folder. Blocking; no transcript is read.

    `busy`: keys that are in use, and why. `referred` is asked for evidence alone, and reads every session.
    """
    found = list(_sessions(folder, now_ms, busy))
    held = {each.name: each.busy for each in found}
    found += _segments(folder, held)
    found += _files(folder, "archive", folder.archive.glob("*.zip"))
    found += _files(folder, "log", folder.path.glob("runtime.log.*"))
    blobs = [path for path in folder.evidence.glob("??/??/*") if path.is_file()]
    if blobs:
        wanted = referred()
        for each in _files(folder, "evidence", blobs):
            digest = digest_of(each.name)
            young = now_ms - each.changed_ms < GRACE
            why = "a session refers to it" if digest in wanted else "just stored" if young else ""
            found.append(Found("evidence", each.name, each.bytes, each.changed_ms, why))
    return found


def _sessions(folder: StateFolder, now_ms: int, busy: Mapping[str, str]) -> Iterator[Found]:
    every = sorted(links.keyed(folder.sessions))
    told = dict(busy)
    for key, path in every:
        if key not in told and (pid := holder_of(path, now_ms)):
            told[key] = f"in use by process {pid}"
    for parent in [key for key in told if not links.is_subagent(key)] if _spawned(every) else ():
        for child in links.spawned(parent, every):
            told.setdefault(child, f"a subagent of {parent}, which is in use")
    for key, path in every:
        try:
            count = sum(size_of(each) for each in belongings(path))
            changed = path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            continue
        yield Found("session", key, count, changed, told.get(key, ""), keys.agent_of(key) or "")


def _spawned(every: Iterable[tuple[str, Path]]) -> bool:
    return any(links.is_subagent(key) for key, _ in every)


def _segments(folder: StateFolder, held: Mapping[str, str]) -> Iterator[Found]:
    for key, path in links.keyed(folder.sessions):
        for each in _files(folder, "segment", segments.segments_of(path)):
            yield Found("segment", each.name, each.bytes, each.changed_ms, held.get(key, ""))


def _files(folder: StateFolder, kind: Kind, paths: Iterable[Path]) -> Iterator[Found]:
    for path in sorted(paths):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            name = path.relative_to(folder.path).as_posix()
            yield Found(kind, name, status.st_size, status.st_mtime_ns // 1_000_000)


# --- plan -----------------------------------------------------------------------------------------


def plan(found: Iterable[Found], wanted: RetentionSettings, now_ms: int) -> Plan:
    """What goes by the settings. Pure: the same folder and settings make the same plan."""
    draft = _Draft(found, now_ms)
    for agent in draft.agents() if wanted.max_sessions else ():
        draft.count(agent, wanted.max_sessions)
    draft.age("session", wanted.max_age_days, "max_age_days")
    draft.total("session", wanted.max_total_mb, "max_total_mb")
    draft.age("segment", wanted.segment_days, "segment_days")
    draft.total("segment", wanted.segment_mb, "segment_mb")
    draft.total("evidence", wanted.evidence_mb, "evidence_mb")
    draft.age("archive", wanted.archive_days, "archive_days")
    draft.total("archive", wanted.archive_mb, "archive_mb")
    draft.age("log", wanted.log_days, "log_days")
    return Plan(tuple(draft.doomed.values()), tuple(draft.refused.values()), tuple(draft.unmet))


class _Draft:
    """A plan in the making: oldest first, what is busy stays and is told."""

    def __init__(self, found: Iterable[Found], now_ms: int) -> None:
        self._found = sorted(found, key=lambda each: (each.changed_ms, each.name))
        self._now = now_ms
        self.doomed: dict[tuple[str, str], Doomed] = {}
        self.refused: dict[tuple[str, str], Doomed] = {}
        self.unmet: list[str] = []

    def agents(self) -> list[str]:
        return sorted({each.agent for each in self._found if each.kind == "session"})

    def count(self, agent: str, most: int) -> None:
        mine = [each for each in self._left("session") if each.agent == agent]
        over = len(mine) - most
        for each in mine:
            if over > 0 and self._take(each, f"max_sessions = {most}"):
                over -= 1
        if over > 0:
            self.unmet.append(f"max_sessions: {agent or 'no agent'} keeps {over} more than {most}")

    def age(self, kind: Kind, days: int, rule: str) -> None:
        for each in self._left(kind) if days else ():
            if self._now - each.changed_ms > days * DAY and not self._take(each, f"{rule} = {days}"):
                self.unmet.append(f"{rule}: {each.name}: {each.busy}")

    def total(self, kind: Kind, most_mb: int, rule: str) -> None:
        left = self._left(kind) if most_mb else []
        over = sum(each.bytes for each in left) - most_mb * MB
        for each in left:
            if over > 0 and self._take(each, f"{rule} = {most_mb}"):
                over -= each.bytes
        if most_mb and over > 0:
            self.unmet.append(f"{rule}: {over:,} bytes more than {most_mb} MB")

    def _left(self, kind: Kind) -> list[Found]:
        return [each for each in self._found if each.kind == kind and (kind, each.name) not in self.doomed]

    def _take(self, each: Found, why: str) -> bool:
        made = Doomed(each.kind, each.name, each.bytes, f"{why}: {each.busy}" if each.busy else why)
        (self.refused if each.busy else self.doomed)[each.kind, each.name] = made
        return not each.busy


# --- carrying out ---------------------------------------------------------------------------------


def carry_out(folder: StateFolder, doomed: Iterable[Doomed], eraser: Eraser, blobs: LocalBlobs, now_ms: int,
              discard: Callable[[Path], None]) -> Removed:  # fmt: skip
    """Archive what the plan names, verify the archive, then remove it. Blocking, for the folder's owner.

    `discard` notes in its session's file that a segment goes, and deletes it. Raises `StorageFailed` where
    the archive can't be written: nothing is removed then.
    """
    every = tuple(doomed)
    archive = _archived(folder, [each for each in every if each.kind not in ("archive", "log")], now_ms)
    done: list[Doomed] = []
    failed: list[tuple[Doomed, str]] = []
    sessions = [each for each in every if each.kind == "session"]
    left = eraser.erase_all(each.name for each in sessions)
    done += [each for each in sessions if each.name not in left]
    failed += [(each, left[each.name]) for each in sessions if each.name in left]
    for each in every:
        if each.kind not in ("evidence", "session"):
            _attempt((each,), partial(_remove, folder, each, discard), done, failed)
    evidence = tuple(each for each in every if each.kind == "evidence")
    _attempt(evidence, partial(_sweep, evidence, eraser, blobs), done, failed)
    return Removed(tuple(done), tuple(failed), archive)


def _attempt(
    each: Sequence[Doomed],
    remove: Callable[[], None],
    done: list[Doomed],
    failed: list[tuple[Doomed, str]],
) -> None:
    try:
        remove()
    except (PerdureError, OSError) as error:
        failed += [(one, str(error)) for one in each]
    else:
        done += each


def _sweep(evidence: Sequence[Doomed], eraser: Eraser, blobs: LocalBlobs) -> None:
    """All together, and last: who refers to it is read once, from every session."""
    digests = {digest_of(each.name) for each in evidence}
    if digests:
        blobs.sweep(lambda: sorted(digests - eraser.referred()))


def digest_of(name: str) -> str:
    """Of evidence by its path below the state folder."""
    return name.removeprefix("evidence/").replace("/", "")


def _archived(folder: StateFolder, every: list[Doomed], now_ms: int) -> str:
    if not every:
        return ""
    paths = [path for each in every for path in _paths(folder, each)]
    sources = sources_of(folder.path, paths)
    name = f"{now_ms:013d}.zip"
    about = {"removed": [{"kind": each.kind, "name": each.name, "why": each.why} for each in every]}
    contents = [source.path for source in sources]
    out = folder.archive / name
    if out.exists():
        raise StorageFailed(f"{out}: exists already: repeat it")
    write_bundle(out, sources, contents=contents, kind="archive", made_ms=now_ms, about=about)
    return os.fspath(out.relative_to(folder.path))


def _paths(folder: StateFolder, each: Doomed) -> list[Path]:
    if each.kind != "session":
        return [folder.path / each.name]
    mine = belongings(folder.sessions / keys.relative_path(each.name))
    files = [path for path in mine if not path.is_dir()]
    files += [path for home in mine if home.is_dir() for path in home.rglob("*.segment")]
    digests = (digest for digest in sorted(references(files)) if len(digest) == 64 and digest.isalnum())
    return mine + [blob for digest in digests if (blob := place(folder.evidence, digest)).is_file()]


def _remove(folder: StateFolder, each: Doomed, discard: Callable[[Path], None]) -> None:
    path = folder.path / each.name
    match each.kind:
        case "segment" if path.exists():
            discard(path)
        case "archive" | "log":
            path.unlink(missing_ok=True)
        case _:
            return  # went with its session
