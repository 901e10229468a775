"""Who lives through the soak and what each says. Everything follows from numbers, so runs are repeatable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

from perdure.records import Record

DAY = 86_400.0
SAID = (
    "the pump in row seven leaks again and the invoice for chapter nine is open until friday while the "
    "team ships release four to the second site where tickets stay with the night crew"
)
WORDS = tuple(SAID.split())
OTHER = ("zwölf Kästen für Jürgen", "水泵在第七排又漏水了", "la réunion à Orléans est décalée")


class Kind(Record):
    """One sort of session: its share of a hundred, turns a day, tools and characters by call."""

    name: str
    share: int
    turns: int
    tools: tuple[int, int]  # of so many turns, one calls so many tools at once: (every, calls)
    chars: tuple[int, int]  # of a tool's output, least and most


KINDS = (
    Kind("chatter", 55, 11, (8, 1), (200, 500)),
    Kind("assistant", 31, 15, (4, 1), (300, 1_200)),
    Kind("coder", 13, 25, (2, 2), (400, 1_600)),
    Kind("heavy", 1, 40, (1, 2), (4_000, 10_000)),
)


class Turn(Record):
    """What is said: texts (two where the second comes while the first is answered), and a pause before."""

    texts: tuple[str, ...]
    pause: float


def kind_of(n: int) -> Kind:
    """The n-th session's sort."""
    at = (n * 37) % 100
    for kind in KINDS:
        if at < kind.share:
            return kind
        at -= kind.share
    raise AssertionError("shares are parts of a hundred")


def key_of(n: int) -> str:
    """The n-th session's key; agents share workspaces."""
    return f"agent:{kind_of(n).name}:soak:dm:u{n:05d}"


def bursts(sessions: int, days: int) -> Iterator[tuple[float, int, int]]:
    """When each session speaks, in order: (seconds since the start, session, day)."""
    for day in range(days):
        told = []
        for n in range(sessions):
            phase = 3600 + number(n, 1) % 64_800  # nobody speaks again before the last burst is over
            told.append((day * DAY + phase + number(n, day, 2) % 3600, n, day))
        yield from sorted(told)


def burst(n: int, day: int) -> Iterator[Turn]:
    """What the n-th session says on a day."""
    kind = kind_of(n)
    for k in range(kind.turns):
        seed = number(n, day, k)
        every, calls = kind.tools
        tools = calls if seed % every == 0 else 0
        least, most = kind.chars
        head = f"look {tools} {least + seed % (most - least)} " if tools else ""
        text = f"{head}{sentence(seed, 4 + seed % 20)} ({n}.{day}.{k})"
        also = (f"and also {sentence(seed + 1, 6)}",) if seed % 50 == 0 else ()
        yield Turn((text, *also), 30.0 + seed % 90)


def sentence(seed: int, words: int) -> str:
    """Some words, now and then of another script."""
    said = " ".join(WORDS[(seed + k * (1 + seed % 7)) % len(WORDS)] for k in range(words))
    return f"{said} {OTHER[seed % len(OTHER)]}" if seed % 11 == 0 else said


def mix(sessions: int) -> dict[str, int]:
    """How many of each kind."""
    return dict(Counter(kind_of(n).name for n in range(sessions)))


def number(*parts: int) -> int:
    """A number that looks random and follows from `parts`."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big")
