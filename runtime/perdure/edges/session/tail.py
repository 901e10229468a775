"""Waking in O(tail): the exact view of a session from the end of its file backwards, heads only.

Reads to the older of the view's start and the newest checkpoint. What the tail can't decide (damage that
needs the whole file, older versions) goes to the full load, so `open_session` always answers.
"""

from __future__ import annotations

from os import PathLike
from typing import Final

from msgspec.structs import replace

from perdure.context.truncation.dag import COMPACTION
from perdure.edges.session.facts import Opened
from perdure.edges.session.header import File, Header, read_header, reading
from perdure.edges.session.heads import heads
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.opened import on_branch, opened
from perdure.edges.session.scan import LARGEST_BLOCK, backward, forward, read
from perdure.edges.session.view import settings_of
from perdure.edges.session.walk import Walk

_COMPACTION: Final = b'"compaction"'
_OVERLAP: Final = 32  # longer than any pattern that is searched for


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
    settled = found.complete or speaks or walk.rooted
    read_all = walk.start_reached or known.at >= 0
    return opened(
        file,
        header,
        sight,
        known,
        found,
        walk.body,
        torn=walk.torn,
        unread=walk.unread,
        unsearched=0 if settled and read_all else file.size if read_all else walk.read_to,
    )


def descends(opened: Opened, entry: str) -> bool:
    """Whether the file's leaf descends from an entry; a foreign compaction may have covered that."""
    if any(each.id == entry for each in opened.entries):
        return True
    return opened.compaction is not None and any(node.id == entry for node in load(opened.path).branch())


# --- what stands before the tail ------------------------------------------------------------------


def search_older(found: Opened) -> Opened:
    """Complete a waking that was not `searched`: a byte search, and all heads if it finds something.

    The view stays as it is. Raises `UnreadableFile` if the file became something else meanwhile.
    """
    with reading(found.path) as file:
        if file.inode != found.inode or file.size < found.size:
            return load(found.path).opened()
        if found.unsearched >= found.size:  # only the branch before the view can tell the settings
            return _with_facts_of(found, load(found.path))
        hidden, compactions = _before(file.fd, found.unsearched, _facts_wanted(found))
    if not hidden:
        return replace(found, compactions=found.compactions + compactions, unsearched=0)
    return _with_facts_of(found, load(found.path))


def _facts_wanted(found: Opened) -> tuple[bytes, ...]:
    """What lines hold that could say something the tail doesn't: ours always, settings if unknown."""
    wanted = [b'"perdure']
    if not any(entry.type == "thinking_level_change" for entry in found.entries):
        wanted.append(b'"thinking_level_change"')
    if found.settings.provider is None:
        wanted += [b'"model_change"', b'"assistant"']
    if found.name is None:
        wanted.append(b'"session_info"')
    return tuple(wanted)


def _with_facts_of(found: Opened, whole: Loaded) -> Opened:
    """All facts of the whole file; the view as it was found (`unread`: its older part stays away)."""
    facts = whole.opened(decode=False)
    return replace(facts, items=found.items, entries=found.entries, unread=found.unread)


def _before(fd: int, end: int, wanted: tuple[bytes, ...]) -> tuple[bool, int]:
    """Whether the lines before `end` hold a wanted pattern, and how many compactions stand there."""
    compactions = 0
    for at in range(0, end, LARGEST_BLOCK):
        block = read(fd, min(LARGEST_BLOCK + _OVERLAP, end - at), at)
        if any(pattern in block for pattern in wanted):
            return True, 0
        place = block.find(_COMPACTION, 0)
        while 0 <= place < LARGEST_BLOCK:
            compactions += _is_compaction(fd, at + place, end)
            place = block.find(_COMPACTION, place + 1)
    return False, compactions


def _is_compaction(fd: int, at: int, end: int) -> bool:
    """Whether the line around an offset is a compaction (another entry may hold the same text)."""
    line = next(backward(fd, at), None)
    begin = at if line is None else line.start
    row = next(forward(fd, begin, end))
    return any(node.type == COMPACTION for node in heads(row)[0])
