"""The journal of a host's state folder: what an earlier owner left in it is settled, then it is ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from perdure.edges.journal import aside
from perdure.edges.journal.form import identity
from perdure.edges.journal.journal import Journal
from perdure.edges.journal.replay import Recovered, recover
from perdure.edges.log import Log
from perdure.edges.placement import boot_id
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError


def recovered(folder: StateFolder, log: Log) -> Recovered:
    """Settle the journal that is there, whatever durability is now. Under the shard's lock; blocking.

    Raises `NewerState`, `StorageFailed`.
    """
    if not folder.journal.is_dir():
        return Recovered()
    done = recover(folder.journal, folder.path, identity(folder.journal, boot_id()))
    if done.replayed:
        log.warning("journal.replayed", text=done.line(), cut=done.cut)
    for place, why in done.aside:
        log.error("journal.put_aside", file=place, why=why)
    return done


def journal(folder: StateFolder, settings: Settings) -> Journal | None:
    """The journal that this host writes, if its durability is `power`. What was there is settled."""
    if settings.host.durability != "power":
        return None
    who = identity(folder.journal, boot_id())
    return Journal(folder.journal, folder.path, who, size=settings.host.journal_mb * 1024 * 1024)


def forgetting(folder: StateFolder, journal: Journal | None) -> Callable[[Path], None]:
    """Takes what the journal has of a deleted file out of it: a replay must not bring the file back."""

    def forget(path: Path) -> None:
        if journal is None:  # segments of an earlier owner were retired at the start; lines may lie aside
            aside.forget(folder.journal, os.path.relpath(path, folder.path))
        else:
            journal.barrier(os.fspath(path), sync=False)
            journal.purge(os.fspath(path))

    return forget


def leave(journal: Journal, log: Log, *, clean: bool) -> None:
    """The host has stopped. `clean`: every session was closed, so nothing of the journal is needed."""
    try:
        journal.close(clean=clean)
    except (PerdureError, OSError) as error:  # it is settled by the next start
        log.error("journal.not_closed", error=str(error))
