"""One thing by its id: a summary with its facts, a message, a large payload; long ones in pages."""

from __future__ import annotations

import re

import apsw

from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.access import Reader, Refused, fitting
from perdure.plugins.engines.lossless.pieces import Node
from perdure.plugins.engines.lossless.reading import facts, headed, readable

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{8,64})")
_SHOWN = 60  # sources that are listed
_NOTE = 60  # tokens that the frame of a page takes


def described(reader: Reader, id: str, start: int, tokens: int) -> str:
    """Its text from character `start` on, as far as the cap. Raises `Refused`."""
    with reader.store.looking.reading() as db:
        head, text = _found(db, reader.no, id)
    page = fitting(
        text[start:], max(1, min(tokens, reader.tokens) - _NOTE - (0 if start else len(head) // 3))
    )
    end = start + len(page)
    rest = f'\n[{len(text) - end:,} more characters: history_describe id="{id}" start={end}]'
    top = f"{head}\n" if head and not start else ""
    return f"{top}{page}{rest if end < len(text) else ''}" or "[nothing at this position]"


def _found(db: apsw.Connection, no: int, id: str) -> tuple[str, str]:
    """(head, text)."""
    node = rows.node(db, no, id)
    if node is not None:
        return _summary(node), node.text
    item = rows.items(db, no, (id,), whole=True).get(id)
    if item is not None:
        return headed(id, item.message), readable(item.message)
    digest = _DIGEST.fullmatch(id)
    known = rows.digests(db, no, digest[1]) if digest else []
    if len(known) > 1:
        raise Refused(f"more than one payload begins with {id}: give more of its hash")
    if known:
        return "", rows.payload(db, no, known[0])
    raise Refused(f"nothing of this conversation is named {id}; history_grep finds ids")


def _summary(node: Node) -> str:
    names = [key.partition(":")[2] for key in node.sources]
    more = f" … {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    made = "a program, without a model" if node.rung == "digest" else f"a model ({node.rung})"
    return f"{facts(node)}, written by {made}\nsources: {' '.join(names[:_SHOWN])}{more}"
