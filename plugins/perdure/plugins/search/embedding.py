"""Vectors for texts. The default needs no model and no download: hashed words and runs of characters."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perdure.errors import PerdureError
from perdure.plugins.search.terms import STOP, plain, terms

Vectors: TypeAlias = NDArray[np.float32]
Whole: TypeAlias = NDArray[np.uint64]


class Embedder(Protocol):
    """Turns texts into vectors of length 1. It blocks; it is asked for many texts at once."""

    @property
    def id(self) -> str:
        """Name and version: vectors of another id are never compared with these."""
        ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for a text; a text that says nothing is a row of zeros."""
        ...


class EmbeddingFailed(PerdureError):
    """Texts could not be turned into vectors: they are found by their words; it is tried again later."""


class HashedNgrams:
    """Feature hashing of terms and of runs of three and four characters to 256 numbers.

    Near in spelling is near in the vector, in any script; synonyms are not. All sums are of whole numbers,
    so that the same text has the same bytes on every machine.
    """

    id = "hashed-ngrams-1"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = _vector(text, self.dimensions)
        return rows


_MOST = 20_000
"""Characters of a text that are looked at: a chunk is much shorter."""
_TERM, _RUN = 6, 2
"""How much a term weighs, and a run of characters."""
_TIMES = np.rint(16 * np.sqrt(np.arange(65))).astype(np.int64)
"""What being there so many times counts for: its root."""
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], "u8")


def _vector(text: str, dimensions: int) -> Vectors:
    found = terms(text[:_MOST])
    words = np.array([_hashed(term) for term in found if term not in STOP], dtype=np.uint64)
    sums = _sums(words, _TERM, dimensions)
    chars = np.frombuffer(_spelt(text[:_MOST]).encode("utf-32-le", "replace"), dtype="<u4").astype(np.uint64)
    for size in (3, 4):
        sums += _sums(_runs(chars, size), _RUN, dimensions)
    length = np.sqrt(np.float64(int((sums * sums).sum())))
    return (sums / length if length else sums).astype(np.float32)


def _spelt(text: str) -> str:
    words = plain(unicodedata.normalize("NFKC", text)).split()
    return f" {' '.join(words)} "


def _runs(chars: Whole, size: int) -> Whole:
    """A hash for each run of `size` characters."""
    if len(chars) < size:
        return np.zeros(0, dtype=np.uint64)
    mixed = np.full(len(chars) - size + 1, size, dtype=np.uint64)
    for at in range(size):
        mixed = (mixed ^ chars[at : len(mixed) + at]) * _PRIMES[at]
    return mixed ^ (mixed >> np.uint64(29))


def _sums(features: Whole, weight: int, dimensions: int) -> NDArray[np.int64]:
    """Each feature goes to the place that its hash names, with the sign that it names."""
    kinds, counts = np.unique(features, return_counts=True)
    sizes = _TIMES[np.minimum(counts, 64)] * weight
    signs = 1 - 2 * ((kinds >> np.uint64(40)) & np.uint64(1)).astype(np.int64)
    places = ((kinds >> np.uint64(8)) % np.uint64(dimensions)).astype(np.int64)
    whole = np.bincount(places, weights=signs * sizes, minlength=dimensions)  # exact: far below 2**53
    return whole.astype(np.int64)


@lru_cache(maxsize=50_000)
def _hashed(term: str) -> int:
    data = term.encode("utf-8", "replace")
    return zlib.crc32(data) << 32 | zlib.crc32(data, 0x5BD1E995)
