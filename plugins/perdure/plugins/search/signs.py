"""One bit for each number of a vector, so that 100,000 of them are compared in milliseconds.

The bits are the signs after a fixed rotation (random signs, then a Hadamard transform), which spreads what
a sparse vector holds over all places. How many bits differ tells the angle between two vectors, roughly:
who looks for the nearest takes more candidates than it needs, and compares those exactly.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from perdure.plugins.search.embedding import Vectors


def bits(dimensions: int) -> int:
    """How many bits a vector of so many numbers has."""
    return max(8, 1 << (dimensions - 1).bit_length())


def signs(rows: Vectors) -> NDArray[np.uint8]:
    """The bits of each row, packed."""
    width = bits(rows.shape[1])
    turned = np.zeros((len(rows), width), dtype=np.float32)
    turned[:, : rows.shape[1]] = rows
    turned *= _flips(width)
    half = 1
    while half < width:
        pairs = turned.reshape(len(rows), width // (2 * half), 2, half)
        low, high = pairs[:, :, 0, :].copy(), pairs[:, :, 1, :].copy()
        pairs[:, :, 0, :], pairs[:, :, 1, :] = low + high, low - high
        half *= 2
    return np.packbits(turned > 0, axis=1, bitorder="little")


@cache
def _flips(width: int) -> Vectors:
    return np.array([1 - 2 * (zlib.crc32(b"%d" % at) >> 7 & 1) for at in range(width)], dtype=np.float32)
