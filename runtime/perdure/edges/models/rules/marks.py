"""Cache marks: at most four, and none that lives an hour behind one that lives five minutes."""

from __future__ import annotations

from perdure.edges.models.rules.refusal import Json, invalid
from perdure.edges.models.rules.schema import Found

MAX_MARKS = 4


def check_marks(body: Json, found: Found) -> None:
    """Number and order. The automatic mark of the top level takes a place too."""
    count = len(found.marks) + bool(body.get("cache_control"))
    if count > MAX_MARKS:
        invalid(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {count}.")
    short = False
    for path, mark in found.marks:
        if mark.get("ttl", "5m") == "5m":
            short = True
        elif short:
            invalid(
                f"{path}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: "
                "`tools`, `system`, `messages`."
            )
