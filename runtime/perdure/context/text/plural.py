"""Counts as a person says them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 message`, `2,000 messages`, `0 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
