"""Four bits for each number of a vector, so that 100,000 of them are compared in ten milliseconds.

The bits are signs after fixed rotations (random signs, then a Hadamard transform), which spread what a sparse
vector holds over all places. How many bits differ tells the angle between two vectors, roughly: who looks for
the nearest takes more candidates than it needs, and compares those exactly.
"""

from __future__ import annotations

import zlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from perdure.plugins.search.embedding import Vectors

ROTATIONS = 4
"""Measured on 20,000 vectors of 256 numbers, 64 candidates, the ten nearest: one rotation finds 35 % of them,
two 55 %, four 77 %, at 1.0, 1.1 and 1.3 times the time."""


def bits(dimensions: int) -> int:
    """How many bits a vector of so many numbers has."""
    return ROTATIONS * _width(dimensions)


def signs(rows: Vectors) -> NDArray[np.uint8]:
    """The bits of each row, packed."""
    width = _width(rows.shape[1])
    padded = np.zeros((len(rows), width), dtype=np.float32)
    padded[:, : rows.shape[1]] = rows
    turned = [_turned(padded * flips) for flips in _flips(width)]
    return np.packbits(np.concatenate(turned, axis=1) > 0, axis=1, bitorder="little")


def _turned(rows: Vectors) -> Vectors:
    count, width = rows.shape
    half = 1
    while half < width:
        pairs = rows.reshape(count, width // (2 * half), 2, half)
        low, high = pairs[:, :, 0, :].copy(), pairs[:, :, 1, :].copy()
        pairs[:, :, 0, :], pairs[:, :, 1, :] = low + high, low - high
        half *= 2
    return rows


def _width(dimensions: int) -> int:
    return max(8, 1 << (dimensions - 1).bit_length())


@cache
def _flips(width: int) -> Vectors:
    flips = [1 - 2 * (zlib.crc32(b"%d" % at) >> 7 & 1) for at in range(ROTATIONS * width)]
    return np.array(flips, dtype=np.float32).reshape(ROTATIONS, width)
