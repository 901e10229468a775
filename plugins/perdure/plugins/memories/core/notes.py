"""A Markdown note as pieces: each paragraph and each item of a list by itself, with the headings above it.

Comments say what a reader of the note need not see, and are no part of a piece:
`<!-- from: SESSION ENTRY… trust: agent -->` above a text: where it comes from, up to the next such comment;
`<!-- supersedes: memory/2026-01-05.md#L3 -->` or `<!-- supersedes: some words -->` in an item or paragraph:
what stands there, or older texts with all these words, are past. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from perdure.contracts import Trust
from perdure.plugins.memories.core.facts import facts
from perdure.plugins.search.chunks import Piece, cut
from perdure.records import Record

SUPERSEDES = "supersedes"
"""The subject under which a piece states what it takes the place of."""
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FROM = re.compile(r"<!--\s*from:\s*(\S+)((?:\s+(?!trust:)\S+)*)(?:\s+trust:\s*(\w+))?\s*-->")
_SUPERSEDES = re.compile(r"<!--\s*supersedes:\s*(.+?)\s*-->")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_RULE = re.compile(r"\s{0,3}(?:[-*_]\s*){3,}$")


class Origin(Record):
    """Where a part of a note comes from."""

    session: str = ""
    entries: tuple[str, ...] = ()
    trust: Trust = "agent"


class Block(Record):
    """Lines that belong together, from line `start` on."""

    lines: tuple[str, ...]
    start: int
    headings: tuple[str, ...] = ()
    origin: Origin = Origin()


def pieces(text: str) -> tuple[Piece, ...]:
    """The pieces of a note, in order. What they state goes with them; their times are left to the caller."""
    return tuple(piece for block in blocks(text) for piece in _cut(block))


def blocks(text: str) -> Iterator[Block]:
    """The paragraphs, list items, tables and fenced parts of a note; a heading with nothing below it, too."""
    lines = text.replace("\r\n", "\n").split("\n")
    headings: list[tuple[int, str]] = []
    origin, bare, at = Origin(), False, 0
    while at < len(lines):
        line = lines[at]
        if (found := _FROM.search(line)) is not None:
            origin = _origin(found)
        if not _COMMENT.sub("", line).strip() or _RULE.match(line):
            at += 1
            continue
        if (heading := _HEADING.match(line)) is not None:
            level = len(heading[1])
            if bare and level <= headings[-1][0]:
                yield _heading(headings, at, lines, origin)
            headings = [*(each for each in headings if each[0] < level), (level, heading[2])]
            bare, at = True, at + 1
            continue
        end = _end(lines, at)
        yield Block(tuple(lines[at:end]), at + 1, tuple(title for _, title in headings), origin)
        bare, at = False, end
    if bare:
        yield _heading(headings, at, lines, origin)


def _heading(headings: list[tuple[int, str]], at: int, lines: Sequence[str], origin: Origin) -> Block:
    line = max(n for n in range(at) if _HEADING.match(lines[n]))
    return Block((lines[line],), line + 1, tuple(title for _, title in headings[:-1]), origin)


def _end(lines: Sequence[str], at: int) -> int:
    """Behind the last line of the block that begins at `at`."""
    if _FENCE.match(lines[at]):
        for n in range(at + 1, len(lines)):
            if _FROM.search(lines[n]):  # what is of another is never inside, whether it was closed or not
                return n
            if _FENCE.match(lines[n]):
                return n + 1
        return len(lines)
    item = _ITEM.match(lines[at])
    for end in range(at + 1, len(lines)):
        if not lines[end].strip() or _FROM.search(lines[end]) or _ends(lines[end], item):
            return end
    return len(lines)


def _ends(line: str, item: re.Match[str] | None) -> bool:
    if _HEADING.match(line) or _FENCE.match(line):
        return True
    following = _ITEM.match(line)
    if item is None or following is None:
        return following is not None
    return len(following[1]) <= len(item[1])  # what is deeper belongs to it


def _origin(found: re.Match[str]) -> Origin:
    """A comment can lower the trust of what stands below it, never raise it above the agent's own: whoever
    can write a note can write a comment.
    """
    trust: Trust = "agent" if found[3] in (None, "agent", "owner", "system") else "untrusted"
    return Origin(found[1], tuple(found[2].split()), trust)


def _cut(block: Block) -> Iterator[Piece]:
    text = "\n".join(block.lines)
    marks = tuple((SUPERSEDES, target) for target in _SUPERSEDES.findall(text))
    context = " > ".join(block.headings)
    under = block.headings[-1] if block.headings else ""
    for piece in cut(_COMMENT.sub("", text)):
        told = () if _FENCE.match(block.lines[0]) else facts(piece.text, under)
        stated = tuple((fact.subject, msgspec.json.encode(fact).decode()) for fact in told)
        yield replace(
            piece,
            start=piece.start + block.start - 1,
            end=piece.end + block.start - 1,
            trust=block.origin.trust,
            entries=block.origin.entries,
            context=context,
            states=(*stated, *marks),
        )
