"""Puts together what waking yields, the same way whether a file was read whole or from its tail."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.context.truncation.dag import COMPACTION, Hole, Node
from perdure.edges.session.facts import Checkpoint, Opened, Settings
from perdure.edges.session.fold import Known
from perdure.edges.session.header import File, Header
from perdure.edges.session.view import Found, Read, gaps_of, items_of, path_entries
from perdure.records import Record


class Sight(Record):
    """The live branch as far as it was read: `branch` root first, its view from index `first` on."""

    leaf: str | None
    branch: Sequence[Node] = ()
    first: int = 0
    compaction: Node | None = None
    holes: tuple[Hole, ...] = ()


def on_branch(checkpoint: Checkpoint, end: int, branch: Sequence[Node]) -> bool:
    """Whether a checkpoint (its line ends at `end`) speaks about this branch."""
    if any(node.end == end for node in branch if node.type == COMPACTION):
        return True
    return checkpoint.leaf is not None and any(node.id == checkpoint.leaf for node in branch)


def opened(
    file: File,
    header: Header,
    sight: Sight,
    known: Known,
    found: Found,
    read: Read,
    *,
    torn: bool,
    unread: bool = False,
    unsearched: int = 0,
    decode: bool = True,
) -> Opened:
    """The record a host wakes a session from."""
    shown = sight.branch[sight.first :]
    base = known.checkpoint
    covered = max(0, shown[0].start) if shown and sight.compaction is not None else 0
    speaks = on_branch(base, known.at, sight.branch)
    return Opened(
        path=file.path,
        session_id=header.id,
        cwd=header.cwd,
        version=header.version,
        size=file.size,
        inode=file.inode,
        leaf=sight.leaf,
        entries=path_entries(shown),
        items=items_of(shown, sight.compaction, sight.holes, read) if decode else (),
        compaction=None if sight.compaction is None else sight.compaction.id,
        settings=replace(found.over(base.settings if speaks else Settings()), engine=known.engine),
        name=known.name,
        epoch=known.epoch,
        pending=known.pending,
        recent=known.recent,
        decisions=known.decisions,
        sent=known.sent,
        outgoing=known.outgoing,
        owes=known.owes,
        learned=known.learned,
        compactions=known.compactions,
        covered_bytes=base.covered_bytes if known.at >= 0 else covered,
        gaps=gaps_of(sight.holes),
        pins=known.pins,
        resumed=tuple(known.resumed),
        timers=known.timers,
        delivered=known.delivered,
        relatives=known.relatives,
        since_checkpoint=file.size - max(0, known.at),
        unread=unread,
        torn=torn,
        parent_session=header.parent_session,
        unsearched=unsearched,
    )
