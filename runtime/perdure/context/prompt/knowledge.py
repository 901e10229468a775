"""The knowledge layer: MEMORY.md and daily notes, ranked by relevance and cut by rank.

Notes are split into passages (paragraphs with their headings); passages are ranked by how many of the
query's rarer words they hold, MEMORY.md before notes and newer notes before older where that is equal.
The query is what the session was asked for; what fits the budget is shown in the order of the files, so
that a small change of rank moves nothing.
Words are letters and digits in lower case; CJK text, which has no spaces, counts by pairs of characters.
The score is BM25 in whole numbers, so that it is the same on every machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import isqrt

from perdure.records import Item, Record, Summary, Text, User

MEMORY_FILE = "MEMORY.md"
PASSAGE_CHARS = 1_200
MAX_PASSAGES = 5_000
QUERY_CHARS = 20_000  # of a request: what is asked stands in less
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORDS = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
_IS_CJK = re.compile(f"[{_CJK}]")
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})")


class Note(Record):
    """One file of knowledge; daily notes have their day in the path (`memory/2026-01-05.md`)."""

    path: str
    text: str


class Passage(Record):
    """A part of a note, and where it stands."""

    path: str
    at: int
    text: str


class Knowledge(Record):
    """The text for the prompt, and how many passages it holds of how many there are."""

    text: str
    kept: int = 0
    total: int = 0


def query_of(items: Sequence[Item]) -> str:
    """What the knowledge of a session is ranked by: the request at hand when its view began.

    That is the newest user message at the latest compaction, else the session's first one. Told by stored
    entries alone, and the same until the next compaction: waking or restarting moves no byte of a prompt
    that a cache may hold.
    """
    head = items[0].message if items else None
    users = ((item.entry, item.message) for item in items if type(item.message) is User)
    if type(head) is not Summary:
        return next((_said(user) for _, user in users), "")
    then = head.timestamp, items[0].entry  # in one millisecond our ids are in the order they were made
    asked = [user for entry, user in users if (user.timestamp, entry) <= then]
    return _said(asked[-1]) if asked else head.summary


def _said(user: User) -> str:
    return "\n".join(block.text for block in user.content if isinstance(block, Text))[:QUERY_CHARS]


def select(notes: tuple[Note, ...], query: str, max_chars: int) -> Knowledge:
    """The most relevant passages that fit `max_chars`, under headings that name their files."""
    passages = [passage for note in in_order(notes) for passage in split(note)][:MAX_PASSAGES]
    chosen: list[int] = []
    room = max_chars
    opened: set[str] = set()
    for n in rank(passages, query):
        passage = passages[n]
        cost = len(passage.text) + 2 + (0 if passage.path in opened else len(passage.path) + 5)
        if cost <= room:
            chosen.append(n)
            opened.add(passage.path)
            room -= cost
    return Knowledge(_text([passages[n] for n in sorted(chosen)]), len(chosen), len(passages))


def in_order(notes: tuple[Note, ...]) -> tuple[Note, ...]:
    """MEMORY.md first, then daily notes from new to old, then others by path."""
    dated = sorted((n for n in notes if day(n.path)), key=lambda n: (day(n.path), n.path), reverse=True)
    memory = sorted((n for n in notes if _is_memory(n.path)), key=lambda n: n.path)
    others = sorted((n for n in notes if not day(n.path) and not _is_memory(n.path)), key=lambda n: n.path)
    return (*memory, *dated, *others)


def day(path: str) -> str:
    """The day in a note's file name, else ``""``."""
    found = _DAY.search(path.rpartition("/")[2])
    return found[1] if found else ""


def _is_memory(path: str) -> bool:
    return path.rpartition("/")[2].lower() == MEMORY_FILE.lower()


def split(note: Note) -> list[Passage]:
    """Passages of a note: paragraphs with the headings right above them, about 1,200 characters at most."""
    passages: list[Passage] = []
    current = ""
    text = note.text.replace("\r\n", "\n").replace("\r", "\n")
    for paragraph in re.split(r"\n[ \t]*\n|\n(?=#{1,6} )", text):
        for piece in _pieces(paragraph.strip("\n").rstrip()):
            if current and (not _is_heading(current.rpartition("\n")[2]) or len(current) > PASSAGE_CHARS):
                passages.append(Passage(note.path, len(passages), current))
                current = ""
            current = f"{current}\n{piece}" if current else piece
    if current:
        passages.append(Passage(note.path, len(passages), current))
    return passages


def _is_heading(row: str) -> bool:
    return row.startswith("#") and len(row) <= 200


def _pieces(paragraph: str) -> list[str]:
    """A paragraph cut at line ends, and lines cut hard, so that no piece is over the limit."""
    pieces: list[str] = []
    for row in paragraph.split("\n") if len(paragraph) > PASSAGE_CHARS else [paragraph]:
        pieces += [row[at : at + PASSAGE_CHARS] for at in range(0, len(row), PASSAGE_CHARS)]
    return [piece for piece in pieces if piece.strip()]


def rank(passages: list[Passage], query: str) -> list[int]:
    """Indexes of passages, the most relevant first; equal ones stay in file order."""
    wanted = sorted(set(words(query)))
    counts = [Counter(words(passage.text)) for passage in passages]
    average = max(1, sum(map(len, counts)) // max(1, len(counts)))
    rarity = {word: _rarity(word, counts) for word in wanted}

    def score(n: int) -> int:
        length = 3 + 9 * len(counts[n]) // average  # longer passages hold words by chance
        hits = ((rarity[word], counts[n][word]) for word in wanted if word in counts[n])
        return sum(weight * 22_000 * count // (10 * count + length) for weight, count in hits)

    scores = [score(n) for n in range(len(passages))]
    return sorted(range(len(passages)), key=lambda n: (-scores[n], n))


def _rarity(word: str, counts: list[Counter[str]]) -> int:
    """Rare words weigh more, but not as much more as they are rarer."""
    return isqrt(1_000_000 * (len(counts) + 1) // (sum(word in count for count in counts) + 1))


def words(text: str) -> list[str]:
    """Lower-case words; a run of CJK characters gives each pair (a single one itself)."""
    found: list[str] = []
    for run in _WORDS.findall(text.lower()):
        if _IS_CJK.match(run) and len(run) > 1:
            found += [run[n : n + 2] for n in range(len(run) - 1)]
        else:
            found.append(run)
    return found


def _text(passages: list[Passage]) -> str:
    lines: list[str] = []
    path = ""
    for passage in passages:
        if passage.path != path:
            path = passage.path
            lines.append(f"## {path}")
        lines.append(passage.text)
    return "\n\n".join(lines)
