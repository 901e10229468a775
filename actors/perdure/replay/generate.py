"""Texts made from (kind, size, seed), so that a scenario with megabytes of tool output stays small.

Rule: the same bytes on every machine and Python version. So no `random` module, no hash(), no locale:
numbers come from a splitmix64 stream that is seeded by a digest of the kind and the seed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import blake2b

from perdure.replay.words import CJK_ENDS, CJK_WORDS, LEVELS, NAMES, SERVICES, VERBS, WORDS

Line = Callable[["Numbers", int], str]
_MASK = (1 << 64) - 1


class Numbers:
    """A splitmix64 stream. Integer arithmetic only."""

    def __init__(self, kind: str, seed: int) -> None:
        digest = blake2b(f"{kind}:{seed}".encode(), digest_size=8).digest()
        self._state = int.from_bytes(digest, "big")

    def next(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """A number in 0 … n-1 (the modulo bias doesn't matter here)."""
        return self.next() % n

    def pick(self, words: tuple[str, ...]) -> str:
        """One of the words."""
        return words[self.next() % len(words)]

    def words(self, words: tuple[str, ...], least: int, most: int) -> list[str]:
        """Between `least` and `most` of the words."""
        return [self.pick(words) for _ in range(least + self.below(most - least + 1))]


def _log(n: Numbers, row: int) -> str:
    hour, rest = divmod(row // 7 % 86_400, 3600)
    stamp = f"{hour:02}:{rest // 60:02}:{rest % 60:02}.{n.below(1000):03}"
    what = " ".join(n.words(WORDS, 3, 9))
    return f"{stamp} {n.pick(LEVELS):5} [{n.pick(SERVICES)}-{n.below(16)}] {what} id={n.next():016x}"


def _json(n: Numbers, row: int) -> str:
    opening = "[" if row == 0 else " "
    name, note = n.pick(NAMES), " ".join(n.words(WORDS, 2, 6))
    return (
        f'{opening}{{"id": {1000 + row}, "name": "{name}", "ok": {"true" if n.below(4) else "false"}, '
        f'"ms": {n.below(9000)}, "note": "{note}"}},'
    )


def _code(n: Numbers, row: int) -> str:
    step = row % 6
    if step == 0:
        return f"def {n.pick(VERBS)}_{n.pick(NAMES)}({n.pick(NAMES)}: int, {n.pick(NAMES)}: str) -> None:"
    if step == 5:
        return ""
    left, right = n.pick(NAMES), n.pick(VERBS)
    return f"    {left} = {right}({n.pick(NAMES)}, {n.below(1000)})  # {' '.join(n.words(WORDS, 1, 4))}"


def _prose(n: Numbers, row: int) -> str:
    def sentence() -> str:
        said = " ".join(n.words(WORDS, 6, 14))
        return said[0].upper() + said[1:] + "."

    return " ".join(sentence() for _ in range(2 + n.below(4)))


def _cjk(n: Numbers, row: int) -> str:
    def sentence() -> str:
        return "".join(n.words(CJK_WORDS, 4, 11)) + n.pick(CJK_ENDS)

    return "".join(sentence() for _ in range(2 + n.below(4)))


def _base64(n: Numbers, row: int) -> str:
    return b64encode(b"".join(n.next().to_bytes(8, "big") for _ in range(7)))[:74].decode()


_LINES: dict[str, Line] = {
    "log": _log,
    "json": _json,
    "code": _code,
    "prose": _prose,
    "cjk": _cjk,
    "base64": _base64,
}
KINDS = tuple(_LINES)


def _lines(kind: str, seed: int, size: int) -> Iterator[str]:
    numbers, line, row = Numbers(kind, seed), _LINES[kind], 0
    while size > 0:
        made = line(numbers, row)
        yield made
        size -= len(made) + 1
        row += 1


def text(kind: str, chars: int, seed: int = 0, head: str = "", tail: str = "") -> str:
    """Exactly `chars` characters of that kind, beginning with `head` and ending with `tail`, each on
    lines of their own. `head` and `tail` must fit (a scenario's parser checks it).
    """
    before = head + "\n" if head else ""
    after = "\n" + tail if tail else ""
    room = chars - len(before) - len(after)
    if room < 0:
        raise ValueError(f"head and tail take {len(before) + len(after)} characters, only {chars} are asked")
    return before + "\n".join(_lines(kind, seed, room))[:room].ljust(room) + after
