"""Opening one session file with the context of its next request: from the tail, or the whole file.

    python -m benchmarks.subjects.opening FILE tail|index|view|whole|heads

`tail` wakes as the host does. `index` reads every head of the file with all checks, `view` adds the
decoded context, `whole` decodes every entry. `heads` is a floor: the bare heads, without any check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from msgspec import Struct
from msgspec.json import Decoder

from benchmarks.measure import cpu, report, resident, wall, warm
from perdure.edges.session.decode import decode_entry
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session


class _Head(Struct, gc=False):
    type: str
    id: str
    parentId: str | None = None  # noqa: N815  # the format's own name


def tail(path: str) -> tuple[object, int]:
    """What a waking session does."""
    opened = open_session(path)
    return opened, len(opened.items)


def index(path: str) -> tuple[object, int]:
    """All heads, checked."""
    loaded = load(path)
    return loaded, loaded.count


def view(path: str) -> tuple[object, int]:
    """All heads and the context."""
    loaded = load(path)
    opened = loaded.opened()
    return (loaded, opened), len(opened.items)


def whole(path: str) -> tuple[object, int]:
    """Every entry decoded, then the context."""
    loaded = load(path)
    entries = [decode_entry(raw) for _, raw in loaded.entries()]
    opened = loaded.opened()
    return (loaded, entries, opened), len(opened.items)


def heads(path: str) -> tuple[object, int]:
    """The floor of an index."""
    decode = Decoder(_Head).decode
    with open(path, "rb", buffering=1 << 20) as f:
        found = {head.id: head for head in map(decode, f)}
    return found, len(found)


WAYS: dict[str, Callable[[str], tuple[object, int]]] = {
    "tail": tail,
    "index": index,
    "view": view,
    "whole": whole,
    "heads": heads,
}


def main(path: str, way: str) -> None:
    """Measure one way, once: a first opening in a fresh process."""
    warm(path)
    before = resident()
    began, spent = wall(), cpu()
    kept, count = WAYS[way](path)
    took, used = wall() - began, cpu() - spent
    held = (resident() - before) / 1e6
    assert kept is not None
    report(wall_ms=took * 1e3, cpu_ms=used * 1e3, held_mb=held, messages=count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
