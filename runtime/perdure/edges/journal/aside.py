"""Lines that a replay would not put into a changed file: kept beside the journal, for a person to judge.

`<journal>/aside/<path of the file>.<offset>-<digest>`; the same lines are put aside once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from perdure.edges import disk

NAME = "aside"


def put(journal: Path, key: str, offset: int, data: bytes) -> Path:
    """Keep bytes that belong at `offset` of the file `key`; where they are. Raises `OSError`."""
    digest = hashlib.sha256(data).hexdigest()[:12]
    path = _stem(journal, key).with_name(f"{_name(key)}.{offset}-{digest}")
    if path.exists() and path.read_bytes() == data:
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temp = path.with_name(f"{path.name}.tmp")
    fd = disk.open_(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        disk.write_all(fd, data, temp)
        disk.fsync(fd, temp)
    finally:
        os.close(fd)
    disk.rename(temp, path)
    disk.sync_folder(path.parent)
    return path


def of(journal: Path, key: str) -> list[Path]:
    """What was put aside for a file."""
    stem = f"{_name(key)}."
    folder = _stem(journal, key).parent
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [folder / name for name in names if name.startswith(stem) and "/" not in name[len(stem) :]]


def forget(journal: Path, key: str) -> None:
    """Delete what was put aside for a file. Raises `OSError`."""
    for path in of(journal, key) if key else ():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            disk.unlink(path)


def _stem(journal: Path, key: str) -> Path:
    return journal / NAME / key


def _name(key: str) -> str:
    return Path(key).name[:200]
