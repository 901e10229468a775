"""A state folder in this command's hands, while no host has it.

The one door of every command that changes something: a client of a running host goes in front of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from perdure.edges.blobs import LocalBlobs
from perdure.edges.config import load
from perdure.edges.erasing import Eraser
from perdure.edges.index import SessionIndex
from perdure.edges.log import Log, open_log
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.files import Listed, SessionFiles
from perdure.edges.session.survey import survey
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError, StorageFailed
from perdure.hosting import storage
from perdure.kernel.io import IoPolicy
from perdure.looking.target import existing


@dataclass(frozen=True, slots=True)
class Shop:
    """What an owner works with. `changed`: keys whose rows in the index are written again at the end."""

    folder: StateFolder
    settings: Settings
    files: SessionFiles
    blobs: LocalBlobs
    log: Log
    index: SessionIndex | None
    changed: set[str] = field(default_factory=set)

    def eraser(self) -> Eraser:
        """What deletes sessions here; what a kill interrupted is completed first."""
        forget = storage.forgetting(self.folder, None)
        made = Eraser(self.folder.path, self.blobs, self.index, forget_journal=forget)
        made.finish()
        return made


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


@contextmanager
def owning(state: Path | None) -> Iterator[Shop]:
    """Own the folder while the block runs. Raises `Locked` with the host that has it.

    It is given back as it was found: after a host that was killed the next one still has to take its
    files over.
    """
    folder = existing(state)
    settings = load(state=folder.root)
    placement = LocalPlacement(folder.path, wall_ms=now_ms(), force=settings.host.force_network_fs)
    grant = placement.grant(0)
    assert grant is not None
    clean = grant.clean
    try:
        files = SessionFiles(
            folder.path, grant, node=placement.node, boot=placement.boot, outgrow=placement.outgrow
        )
        log = open_log(folder.log, level=settings.log.level, wall_ms=now_ms)
        storage.recovered(folder, log)
        index = _index(folder)
        shop = Shop(folder, settings, files, LocalBlobs(folder.evidence, IoPolicy(False)), log, index)
        try:
            yield shop
        finally:
            _refresh(shop)
            if index is not None:
                index.close()
            log.close()
    finally:
        placement.close(clean=clean)


def _index(folder: StateFolder) -> SessionIndex | None:
    """The index where there is one: a new one would have to be filled by a scan, which is a host's work."""
    if not folder.index.exists():
        return None
    try:
        return SessionIndex(folder.index)
    except StorageFailed:
        return None


def _refresh(shop: Shop) -> None:
    """The rows of what was changed. A file that can't be counted has none, and the next host counts it."""
    if shop.index is None or shop.index.fresh:
        return
    for key in shop.changed:
        path = shop.files.path(key)
        with suppress(PerdureError, OSError):
            status = path.stat()
            shop.index.put(survey(Listed(key, str(path), status.st_size, status.st_mtime_ns)))
