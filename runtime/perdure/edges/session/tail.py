"""Waking in O(tail): the exact view of a session from the end of its file backwards, heads only.

Reads to the older of the view's start and the newest checkpoint. What the tail can't decide (damage that
needs the whole file, older versions) goes to the full load, so `open_session` always answers.
"""

from __future__ import annotations

from os import PathLike
from typing import Final

from msgspec.structs import replace

from perdure.edges.session.facts import Opened
from perdure.edges.session.header import File, Header, read_header, reading
from perdure.edges.session.load import load
from perdure.edges.session.opened import on_branch, opened
from perdure.edges.session.scan import LARGEST_BLOCK, read
from perdure.edges.session.view import settings_of
from perdure.edges.session.walk import Walk

_HIDDEN: Final = (
    b'"perdure',
    b'"thinking_level_change"',
    b'"model_change"',
    b'"session_info"',
    b'"compaction"',
)
_OVERLAP: Final = max(map(len, _HIDDEN)) - 1


def open_session(
    path: str | PathLike[str], *, window_bytes: int | None = None, search: bool = True
) -> Opened:
    """Wake a session. Blocking; changes nothing. Raises `UnreadableFile`.

    `window_bytes`: of a view larger than this only about so many bytes are read (`Opened.unread`).
    `search`: look once through the part before the view for what a file without a checkpoint of ours may
    hold there (about a second for 400 MB); without it `Opened.searched` may be false.
    """
    found = open_tail(path, window_bytes=window_bytes)
    return found if found.searched or not search else search_older(found)


def open_tail(path: str | PathLike[str], *, window_bytes: int | None = None) -> Opened:
    """The view and the facts as far as the tail tells them; the full load where it can't."""
    with reading(path) as file:
        found = _from_tail(file, window_bytes)
    return load(path).opened() if found is None else found


def _from_tail(file: File, window_bytes: int | None) -> Opened | None:
    header = read_header(file.fd, file.size)
    if header is None or header.version < 2:
        return None
    walk = Walk(file, header.end, hints=True, window_bytes=window_bytes)
    if walk.run():
        return _opened(file, header, walk)
    if walk.jumped:
        walk = Walk(file, header.end, hints=False, window_bytes=window_bytes)
        if walk.run():
            return _opened(file, header, walk)
    return None


def _opened(file: File, header: Header, walk: Walk) -> Opened:
    sight, known = walk.sight(), walk.known(header.id)
    found = settings_of(walk.path, walk.body)
    speaks = known.at >= 0 and on_branch(known.checkpoint, known.at, sight.branch)
    searched = walk.start_reached or (known.at >= 0 and (speaks or found.complete))
    return opened(
        file,
        header,
        sight,
        known,
        found,
        walk.body,
        torn=walk.torn,
        unread=walk.unread,
        searched=searched,
    )


# --- what stands before the tail ------------------------------------------------------------------


def search_older(found: Opened) -> Opened:
    """Complete a waking that was not `searched`: a byte search, and all heads if it finds something.

    The view stays as it is. Raises `UnreadableFile` if the file became something else meanwhile.
    """
    with reading(found.path) as file:
        if file.inode != found.inode or file.size < found.size:
            return load(found.path).opened()
        begin = found.entries[0].start if found.entries else found.size
        if not _hides(file.fd, begin):
            return replace(found, searched=True)
    whole = load(found.path)
    branch = whole.branch()
    known = whole.known()
    settings = settings_of(reversed(branch), whole.raw)
    speaks = on_branch(known.checkpoint, known.at, branch)
    return replace(
        found,
        settings=settings.over(known.checkpoint.settings if speaks else found.settings),
        name=known.name,
        epoch=known.epoch,
        pending=known.pending,
        recent=known.recent,
        decisions=known.decisions,
        compactions=known.compactions,
        resumed=tuple(known.resumed),
        searched=True,
    )


def _hides(fd: int, end: int) -> bool:
    """Whether the bytes before `end` may hold a fact that the tail doesn't know."""
    for at in range(0, end, LARGEST_BLOCK):
        block = read(fd, min(LARGEST_BLOCK + _OVERLAP, end - at), at)
        if any(pattern in block for pattern in _HIDDEN):
            return True
    return False
