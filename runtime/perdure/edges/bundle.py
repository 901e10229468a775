"""Bundles: many files in one, each with its SHA-256. Archives of what `cleanup` removes, and backups.

A zip file, so that damage costs the file it is in and any program can open it: `contents.json` first (what
was to come), then the files, `manifest.json` last (what came: path, bytes, SHA-256). It is written beside
its place, read back whole, synced and then renamed: a bundle is there and good, or it isn't there.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal

import msgspec

from perdure.edges.disk import sync_folder
from perdure.errors import StorageFailed, UnreadableFile
from perdure.records import Record

FORMAT: Final = "perdure-bundle"
VERSION: Final = 1
CONTENTS, MANIFEST = "contents.json", "manifest.json"
_BLOCK = 1 << 20
_PACKED = (".segment", ".zip", ".png", ".jpg", ".gz")  # as small as they get
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the manifest tells times; the same files make the same bytes


class Source(Record):
    """A file to be bundled: its path in the bundle, where it is, how many bytes of it (`None`: all)."""

    path: str
    file: str
    bytes: int | None = None


class Member(Record):
    """A file in a bundle. `mtime_ns` of the file it was."""

    path: str
    bytes: int
    sha256: str
    mtime_ns: int = 0


class Manifest(Record):
    """What a bundle holds. `about`: what it is of, in plain JSON."""

    kind: Literal["archive", "backup"]
    made_ms: int
    files: tuple[Member, ...]
    about: dict[str, Any]
    format: str = FORMAT
    v: int = VERSION

    @property
    def bytes(self) -> int:
        """Bytes of its files, unpacked."""
        return sum(member.bytes for member in self.files)


Opener = Callable[[Source], BinaryIO]


def write_bundle(
    out: Path,
    sources: Iterable[Source],
    *,
    contents: Sequence[str],
    kind: Literal["archive", "backup"],
    made_ms: int,
    about: dict[str, Any],
    opener: Opener | None = None,
) -> Manifest:
    """Write a bundle and read it back. Blocking. Raises `StorageFailed`; nothing is left behind then.

    `contents`: paths that are to come, told first; `sources` may find others when they are walked. `about`
    is written at the end, with what the walk put into it.
    """
    temp = out.with_name(f"{out.name[:180]}.tmp")
    try:
        out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temp.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            manifest = _write(file, sources, contents, kind, made_ms, about, opener or _opened)
            file.flush()
            os.fsync(file.fileno())
        wrong = verify(temp)
        if wrong:
            raise StorageFailed(f"{out}: was not written as it should be ({wrong[0]}): try again")
        os.replace(temp, out)
        sync_folder(out.parent)
    except OSError as error:
        place = error.filename or out
        raise StorageFailed(f"{place}: can't be bundled ({error.strerror or error}): make room") from None
    finally:
        temp.unlink(missing_ok=True)
    return manifest


def _opened(source: Source) -> BinaryIO:
    return open(source.file, "rb")


def _write(
    file: BinaryIO,
    sources: Iterable[Source],
    contents: Sequence[str],
    kind: Literal["archive", "backup"],
    made_ms: int,
    about: dict[str, Any],
    opener: Opener,
) -> Manifest:
    members = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as bundle:
        bundle.writestr(_info(CONTENTS), msgspec.json.encode(list(contents)))
        for source in sources:
            with opener(source) as data:
                members.append(_copied(bundle, source, data))
        manifest = Manifest(kind, made_ms, tuple(members), about)
        bundle.writestr(_info(MANIFEST), msgspec.json.encode(manifest))
    return manifest


def _copied(bundle: zipfile.ZipFile, source: Source, data: BinaryIO) -> Member:
    status = os.fstat(data.fileno())
    left = status.st_size if source.bytes is None else source.bytes
    digest, count = hashlib.sha256(), 0
    with bundle.open(_info(source.path), "w", force_zip64=True) as out:
        while left and (block := data.read(min(_BLOCK, left))):
            digest.update(block)
            out.write(block)
            count, left = count + len(block), left - len(block)
    if left:
        raise OSError(5, "became shorter while it was copied", source.file)
    return Member(source.path, count, digest.hexdigest(), status.st_mtime_ns)


def _info(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _EPOCH)
    info.external_attr = 0o600 << 16
    info.compress_type = zipfile.ZIP_STORED if path.endswith(_PACKED) else zipfile.ZIP_DEFLATED
    return info


# --- reading --------------------------------------------------------------------------------------


def read_manifest(path: Path) -> Manifest:
    """What a bundle says it holds. Raises `UnreadableFile`, naming what a torn one has lost."""
    try:
        with zipfile.ZipFile(path) as bundle:
            manifest = msgspec.json.decode(bundle.read(MANIFEST), type=Manifest)
    except OSError as error:
        raise UnreadableFile(f"{path}: can't be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError):
        raise UnreadableFile(f"{path}: {_torn(path)}") from None
    except (msgspec.MsgspecError, ValueError, zlib.error) as error:
        raise UnreadableFile(f"{path}: its manifest is damaged ({error}): it is no bundle any more") from None
    if manifest.format != FORMAT or manifest.v > VERSION:
        raise UnreadableFile(f"{path}: made by a newer perdure (version {manifest.v}): update perdure")
    for member in manifest.files:
        if not _plain(member.path):
            raise UnreadableFile(f"{path}: names {member.path!r}, which is no path inside a state folder")
    return manifest


DAMAGE: Final = (
    zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error,
)  # fmt: skip


def verify(path: Path) -> list[str]:
    """What is wrong with a bundle, file by file; empty: every byte is as it was. Reads all of it."""
    manifest = read_manifest(path)
    return [wrong for _, wrong in walk(path, manifest, lambda _member: None) if wrong]


def walk(
    path: Path, manifest: Manifest, write: Callable[[Member], BinaryIO | None]
) -> Iterator[tuple[Member, str]]:
    """Each file, written to what `write` opens for it, and what is wrong with it ("": nothing)."""
    with zipfile.ZipFile(path) as bundle:
        for member in manifest.files:
            out = write(member)
            try:
                wrong = _unpacked(bundle, member, out)
            except DAMAGE as error:
                wrong = f"damaged ({error})"
            finally:
                if out is not None:
                    out.close()
            yield member, f"{member.path}: {wrong}" if wrong else ""


def _unpacked(bundle: zipfile.ZipFile, member: Member, out: BinaryIO | None) -> str:
    digest, count = hashlib.sha256(), 0
    with bundle.open(member.path) as data:
        while block := data.read(_BLOCK):
            count += len(block)
            if count > member.bytes:
                return f"is longer than the {member.bytes:,} bytes it had"
            digest.update(block)
            if out is not None:
                out.write(block)
    if count < member.bytes:
        return f"is {count:,} bytes, it had {member.bytes:,}"
    return "" if digest.hexdigest() == member.sha256 else "was changed: its content does not fit its SHA-256"


def _plain(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and "\0" not in path and ".." not in parts


def _torn(path: Path) -> str:
    """What can still be said of a bundle whose end is missing."""
    try:
        with path.open("rb") as file:
            names = list(_local_names(file))
            file.seek(0)
            told = _first(file)
    except OSError:
        return "can't be read"
    if not names or names[0] != CONTENTS:
        return "no bundle of perdure"
    whole = set(names[:-1])  # the last one may be cut
    lost = [name for name in told if name not in whole]
    listed = ", ".join(lost[:20]) + (f" and {len(lost) - 20:,} more" if len(lost) > 20 else "")
    return f"it is torn: its end is missing, and with it {listed or 'its manifest'}"


_LOCAL: Final = b"PK\x03\x04"
_MOST: Final = 30 + 65_535  # bytes of a header with the longest name


def _local_names(file: BinaryIO) -> Iterator[str]:
    """Names in the headers before each file, in order. For a file without its directory."""
    tail = b""
    while block := file.read(_BLOCK):
        data = tail + block
        last = len(block) < _BLOCK
        place = data.find(_LOCAL)
        while place >= 0 and (last or place + _MOST <= len(data)):
            length = int.from_bytes(data[place + 26 : place + 28], "little")
            yield data[place + 30 : place + 30 + length].decode("utf-8", "replace")
            place = data.find(_LOCAL, place + 4)
        tail = data[place:] if place >= 0 else data[-3:]


def _first(file: BinaryIO) -> list[str]:
    """The list of what was to come, which stands first."""
    head = file.read(30)
    skip = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    size = int.from_bytes(head[18:22], "little")
    file.seek(30 + skip)
    data = file.read(size)
    try:
        told = msgspec.json.decode(zlib.decompress(data, -15), type=list[str])
    except (zlib.error, msgspec.MsgspecError):
        return []
    return told


def sources_of(root: Path, paths: Iterable[Path]) -> tuple[Source, ...]:
    """Files, and files in folders, by their paths below `root`. Links and locks are left out."""
    found: dict[str, Source] = {}
    for path in paths:
        every = path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)
        for each in sorted(every):
            if each.is_file() and not each.is_symlink() and not each.name.endswith(".lock"):
                name = each.relative_to(root).as_posix()
                found[name] = Source(name, os.fspath(each))
    return tuple(found.values())
