"""Ids of entries and sessions: unique by construction, ordered by time, never looked up.

An id holds (time, epoch, counter), each readable again, so two ids are equal only where all three are:
the epoch rises with every ownership of the state folder and the counter with every id under it. No set
of existing ids is needed; eight random digits, as the reference makes them, would collide about five
times in 200,000 entries.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeAlias

from msgspec import Meta

MOST = 2**53
Epoch: TypeAlias = Annotated[int, Meta(le=MOST)]
"""An epoch as it stands in a file. A larger one is damage: believed, it would become the counter of the
whole state folder, and leave no room to count on."""

_TIME = 12  # hex digits of a 48-bit count of milliseconds: enough until the year 10889


def entry_id(wall_ms: int, epoch: int, counter: int) -> str:
    """16 hex digits or more: time, then epoch and counter, each led by its number of digits.

    The lengths make it decodable (hence unique) and keep text order equal to (time, epoch, counter).
    """
    if wall_ms < 0 or wall_ms >= 1 << 48:
        raise ValueError(f"{wall_ms}: milliseconds since 1970 must lie between 0 and 2**48")
    return f"{wall_ms:0{_TIME}x}{_led(epoch)}{_led(counter)}"


def session_id(wall_ms: int, epoch: int, counter: int, key: str) -> str:
    """An entry id and eight digits of the key: two state folders may count alike, their keys tell."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{entry_id(wall_ms, epoch, counter)}-{digest}"


class Ids:
    """Ids of one ownership. A clock that steps back does not disturb their order."""

    __slots__ = ("_counter", "_latest", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch, self._latest, self._counter = epoch, 0, 0

    def entry(self, wall_ms: int) -> str:
        """The next entry id."""
        return entry_id(*self._next(wall_ms))

    def session(self, wall_ms: int, key: str) -> str:
        """The next session id."""
        return session_id(*self._next(wall_ms), key)

    def _next(self, wall_ms: int) -> tuple[int, int, int]:
        self._latest = max(self._latest, wall_ms)
        self._counter += 1
        return self._latest, self.epoch, self._counter


def _led(number: int) -> str:
    digits = f"{number:x}"
    if number < 0 or len(digits) > 15:
        raise ValueError(f"{number}: an epoch or counter must lie between 0 and 2**60")
    return f"{len(digits):x}{digits}"
