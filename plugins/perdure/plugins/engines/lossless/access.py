"""Whose past a tool call may read: its own session's, or by a grant its parent's; nobody else's, ever."""

from __future__ import annotations

from functools import partial
from typing import Any

from perdure.context.tokens.estimator import Estimator
from perdure.contracts import ToolContext, ToolOutput
from perdure.plugins.engines.lossless import grants, rows
from perdure.plugins.engines.lossless.sessions import Sessions
from perdure.plugins.engines.lossless.settings import Settings
from perdure.plugins.engines.lossless.store import Store
from perdure.records import Record, Text

OF = {
    "type": "string",
    "enum": ["own", "parent"],
    "description": "Whose conversation: your own (default), or that of the agent that started you",
}
_TOKENS = Estimator()


class Refused(Exception):
    """The call is refused; the text is for the model."""


class Reader(Record, gc=True):
    """`no`: the session's number; `tokens`: how much may be shown; `depth`: of an expansion, at most."""

    store: Store
    no: int
    tokens: int
    depth: int
    child: str = ""


async def reader(sessions: Sessions, settings: Settings, arguments: Any, context: ToolContext) -> Reader:
    """Raises `Refused`."""
    store = await sessions.store()
    now = sessions.lent.wall_ms()
    work = partial(_reader, store, settings, arguments.get("of", "own") == "parent", context, now)
    found = await context.run_blocking(work)
    assert isinstance(found, Reader)
    return found


def _reader(store: Store, settings: Settings, parent: bool, context: ToolContext, now: int) -> Reader:
    id, tokens, depth, child = getattr(context, "session_id", ""), settings.expand_tokens, 32, ""
    if parent:
        child = context.session
        grant = grants.held(store, child, now)
        if grant is None:
            raise Refused("there is no grant for the parent's conversation, or it has run out")
        id, tokens, depth = grant.parent, min(tokens, grant.tokens), grant.depth
    elif not id:
        id = next(iter(store.of_key(context.session)), "")
    with store.db.reading() as db:
        session = rows.session(db, id)
    if session is None:
        raise Refused("nothing of this conversation is stored yet")
    return Reader(store, session.no, tokens, depth, child)


def size(text: str) -> int:
    """Tokens of a text."""
    return _TOKENS.text(text)


def fitting(text: str, tokens: int) -> str:
    """The beginning of a text that takes at most so many tokens."""
    while text and (now := size(text)) > tokens:
        text = text[: min(len(text) - 1, len(text) * max(tokens, 0) // now)]
    return text


async def answer(reader: Reader, text: str, context: ToolContext) -> ToolOutput:
    """What the model gets; reading by a grant is counted."""
    if reader.child:
        spent = partial(grants.spend, reader.store, reader.child, size(text))
        await context.run_blocking(spent)
    return ToolOutput((Text(text),))


def refusal(error: Refused) -> ToolOutput:
    """An answer that says why there is none."""
    return ToolOutput((Text(f"Refused: {error}."),), is_error=True)
