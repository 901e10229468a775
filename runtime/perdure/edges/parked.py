"""Letters that broke their session before they were acknowledged, in `<state>/parked/`, one file each.

Their senders were told that nothing was accepted; what stands here is for the operator, who may have it
delivered again or dropped, by this host or the next.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Raw

from perdure.contracts import Letter, LetterKind
from perdure.edges.session.decode import decode_content
from perdure.edges.session.encode import encode_content
from perdure.errors import StorageFailed
from perdure.records import Record


class ParkedLetter(Record):
    """A letter, what it broke on, and when (wall ms)."""

    letter: Letter
    error: str
    at: int


class _Stored(Record):
    key: str
    sender: str
    mid: str
    content: list[Raw]
    arrived: int
    kind: LetterKind
    evidence: tuple[str, ...]
    error: str
    at: int


class ParkedLetters:
    """The folder. It is made with the first letter; what can't be read in it is left alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, number: int, parked: ParkedLetter) -> None:
        """Whole or not at all. Raises `StorageFailed`."""
        letter = parked.letter
        content = msgspec.json.decode(encode_content(letter.content), type=list[Raw])
        who = (letter.key, letter.sender, letter.mid)
        stored = _Stored(*who, content, letter.arrived, letter.kind, letter.evidence, parked.error, parked.at)
        path = self._path(number)
        new = path.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            new.write_bytes(msgspec.json.encode(stored))
            new.chmod(0o600)
            new.replace(path)
        except OSError as error:
            raise StorageFailed(f"{path}: {error.strerror}: make room and send the message again") from None

    def forget(self, number: int) -> bool:
        """Delivered or dropped. False: it isn't there."""
        try:
            self._path(number).unlink()
        except OSError:
            return False
        return True

    def all(self) -> list[tuple[int, ParkedLetter]]:
        """By number."""
        paths = [path for path in self._folder.glob("*.json") if path.stem.isdigit()]
        found = [(int(path.stem), parked) for path in paths if (parked := _read(path)) is not None]
        return sorted(found, key=lambda one: one[0])

    def forget_session(self, key: str) -> int:
        """Those of a session that is deleted; how many."""
        return sum(self.forget(number) for number, parked in self.all() if parked.letter.key == key)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.json"


def _read(path: Path) -> ParkedLetter | None:
    try:
        s = msgspec.json.decode(path.read_bytes(), type=_Stored)
    except (OSError, msgspec.DecodeError):
        return None
    letter = Letter(s.key, s.sender, s.mid, decode_content(s.content), s.arrived, s.kind, s.evidence)
    return ParkedLetter(letter, s.error, s.at)
