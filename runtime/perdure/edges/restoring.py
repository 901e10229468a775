"""A state folder made of a backup: every byte compared, then in place in one step.

Files go into `<folder>.restoring` first (a second try goes on with what is there and right), and the folder
is renamed when all of it fits. What was written behind the backup is unknown here: the original may have
answered the letters that wait in it. So a restored copy doesn't, unless told: they count as taken, are
listed, and a redelivery is answered from the record. A turn that was cut off isn't taken up either, and
subagents that had not ended count as lost.
The ownership counter goes on far above the original's, so that no line or id of one is like one of the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from perdure.edges.bundle import Manifest, Member, read_manifest, walk
from perdure.edges.disk import sync_folder
from perdure.edges.placement import LocalPlacement
from perdure.edges.session import branching, copying, lines
from perdure.edges.session.files import Held, SessionFiles
from perdure.edges.session.ids import MOST
from perdure.edges.session.kin import closings
from perdure.edges.session.tail import open_session
from perdure.edges.state import StateFolder, create
from perdure.errors import PerdureError, StorageFailed, UnreadableFile, UsageError
from perdure.records import Record

TELLS = 20  # damaged files named in one line


class Waiting(Record):
    """A letter that waited in the backup, and is not answered here."""

    key: str
    sender: str
    mid: str
    arrived: int


class Restored(Record):
    """What was restored. `interrupted`: keys whose turn had been cut off. `problems`: left as they are."""

    manifest: Manifest
    epoch: int
    waiting: tuple[Waiting, ...] = ()
    interrupted: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def restore(backup: Path, target: Path, now_ms: int, *, answer: bool = False) -> Restored:
    """Make the state folder `target` of a backup. Blocking.

    `answer`: the original is gone for good, so waiting letters are answered here. Raises `UsageError`
    (the folder isn't empty), `UnreadableFile` (the damage, file by file), `StorageFailed`.
    """
    _refuse(target)
    manifest = read_manifest(backup)
    if manifest.kind != "backup":
        raise UsageError(f"{backup}: an archive of what cleanup removed, no backup of a folder: unzip it")
    temp = target.with_name(f"{target.name}.restoring")
    try:
        _unpack(backup, manifest, temp)
        found = _settle(temp, manifest, now_ms, answer=answer)
        os.sync()  # all of it at once, before the name says that it is there
        os.rename(temp, target)
        sync_folder(target.parent)
    except OSError as error:
        place = error.filename or temp
        why = f"can't be restored ({error.strerror}): make room, and repeat it"
        raise StorageFailed(f"{place}: {why}") from None
    return found


def _refuse(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: isn't empty: give --state a folder that isn't there yet")


def _unpack(backup: Path, manifest: Manifest, temp: Path) -> None:
    temp.mkdir(mode=0o700, parents=True, exist_ok=True)
    create(StateFolder(os.fspath(temp)))
    _drop_others(temp, manifest)
    there = {member.path for member in manifest.files if _fits(temp / member.path, member)}
    missing = replace(manifest, files=tuple(m for m in manifest.files if m.path not in there))
    wrong = [text for _, text in walk(backup, missing, _into(temp)) if text]
    if wrong:
        shutil.rmtree(temp)
        more = f" and {len(wrong) - TELLS:,} more" if len(wrong) > TELLS else ""
        raise UnreadableFile(f"{backup}: damaged, nothing was restored: {'; '.join(wrong[:TELLS])}{more}")
    for member in manifest.files:
        os.utime(temp / member.path, ns=(member.mtime_ns, member.mtime_ns))
    for name, text in manifest.about.get("links", {}).items():
        (temp / name).unlink(missing_ok=True)
        os.symlink(text, temp / name)


def _into(temp: Path) -> Callable[[Member], BinaryIO]:
    def write(member: Member) -> BinaryIO:
        path = temp / member.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")

    return write


def _fits(path: Path, member: Member) -> bool:
    """Whether an earlier try has written it whole."""
    try:
        if path.stat().st_size != member.bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == member.sha256
    except OSError:
        return False


def _drop_others(temp: Path, manifest: Manifest) -> None:
    """What an earlier try made of itself, or of another backup."""
    wanted = {member.path for member in manifest.files}
    for path in temp.rglob("*"):
        if not path.is_dir() and path.relative_to(temp).as_posix() not in wanted:
            path.unlink()


# --- the copy's own life --------------------------------------------------------------------------


def _settle(temp: Path, manifest: Manifest, now_ms: int, *, answer: bool) -> Restored:
    before = manifest.about.get("epoch", 0)
    before = before if isinstance(before, int) and 0 <= before < MOST // 4 else 0
    epoch = max(before + 1, now_ms // 1000)
    record = {"v": 1, "epoch": epoch - 1, "clean": True}
    (temp / "shard.lock").write_bytes(json.dumps(record).encode().ljust(511) + b"\n")
    placement = LocalPlacement(temp, wall_ms=now_ms, force=True)
    try:
        grant = placement.grant(0)
        assert grant is not None
        files = SessionFiles(temp, grant, sync=False, outgrow=placement.outgrow)
        return _settled(files, manifest, now_ms, answer=answer, epoch=grant.token)
    finally:
        placement.close(clean=True)


def _settled(files: SessionFiles, manifest: Manifest, now_ms: int, *, answer: bool, epoch: int) -> Restored:
    waiting: list[Waiting] = []
    cut_off: list[str] = []
    problems = []
    for listed in () if answer else sorted(files.list(), key=lambda each: each.path):
        if listed.key is None:
            continue
        try:
            opened = open_session(listed.path)
            interrupted = bool(opened.items) and branching.waits(opened.items[-1])
            if not (opened.pending or interrupted or opened.relatives.owes):
                continue
            letters = _take(files.open(listed.key, now_ms), now_ms)
        except PerdureError as error:
            problems.append(str(error))
            continue
        waiting += (Waiting(listed.key, sender, mid, arrived) for sender, mid, arrived in letters)
        cut_off += [listed.key] if interrupted else []
    return Restored(manifest, epoch, tuple(waiting), tuple(cut_off), tuple(problems))


def _take(held: Held, now_ms: int) -> list[tuple[str, str, int]]:
    """Letters that wait count as taken, and a turn that was cut off is left so."""
    opened, epoch, rows = held.opened, held.file.epoch, []
    try:
        if opened.pending:
            record = copying.checkpoint_of(opened, epoch, {d.key: d for d in opened.decisions})
            made = held.ids.entry(now_ms)
            rows.append(lines.checkpoint_line(made, opened.leaf, now_ms, replace(record, pending=())))
        if opened.items and branching.waits(opened.items[-1]):
            last, made = opened.items[-1].entry, held.ids.entry(now_ms)
            rows.append(lines.resume_line(made, opened.leaf, now_ms, last, epoch, never=True))
        for fact in closings(opened.relatives, now_ms, "it went on elsewhere: this is a restored copy"):
            made, name = held.ids.entry(now_ms), opened.session_id
            rows.append(lines.child_line(made, opened.leaf, now_ms, name, epoch, fact))
        if rows:
            held.file.append(rows)
    finally:
        held.close(handover=True)
    return [(p.letter.sender, p.letter.mid, p.letter.arrived) for p in opened.pending]
