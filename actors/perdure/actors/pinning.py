"""`/pin`, `/pins`, `/unpin`: what a user marks so that it stands in every request, word for word."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perdure.context.prompt.pins import MARKS, marked, refusal, section
from perdure.context.tokens.estimator import Estimator
from perdure.errors import UsageError
from perdure.records import Item, PinKind, Pinned, Text, User

if TYPE_CHECKING:
    from perdure.actors.session import Session

SHOWN = 160  # characters of a pin in a list
_MARK = re.compile(rf"({'|'.join(MARKS)})\s*[:：]\s*", re.IGNORECASE)


def pin(session: Session, argument: str) -> str:
    """Pin a text, or the user's newest message where none is given; `task: …` says what it is."""
    kind, text = _split(argument)
    source = ""
    if not text:
        newest = _newest(session.transcript.items)
        source, text = newest if newest is not None else ("", "")
    limits = session.environment.limits
    if (why := refusal(session.transcript.pins, text, limits)) is not None:
        raise UsageError(f"not pinned: {why}")
    made = session.transcript.pin(text, kind, source)
    session.surroundings.carry_pins()
    number = len(marked(session.transcript.pins))
    return f"Pinned as number {number}, {kind} ({_tokens([made]):,} tokens): {_short(text)}"


def unpin(session: Session, argument: str) -> str:
    """Take away the pin of that number in `/pins`, or all."""
    pins = marked(session.transcript.pins)
    if argument.strip().lower() == "all":
        gone = pins
    elif argument.strip().isdecimal() and 1 <= int(argument) <= len(pins):
        gone = (pins[int(argument) - 1],)
    else:
        there = f"a number from 1 to {len(pins)}, or all" if pins else "nothing is pinned"
        raise UsageError(f"/unpin {argument.strip()}: {there}")
    if gone:
        session.transcript.unpin(tuple(each.id for each in gone))
        session.surroundings.carry_pins()
    return f"Unpinned {len(gone)}; {len(pins) - len(gone)} stay."


def listed(session: Session) -> str:
    """A line for each pin, and what they take."""
    pins = marked(session.transcript.pins)
    if not pins:
        return "Nothing is pinned: /pin TEXT pins a text, /pin alone your last message."
    rows = [f"{n}. {each.kind}: {_short(each.text)}" for n, each in enumerate(pins, 1)]
    return "\n".join([*rows, f"{_tokens(pins):,} tokens of every request"])


def _split(argument: str) -> tuple[PinKind, str]:
    found = _MARK.match(argument.strip())
    if found is None:
        return "instruction", argument.strip()
    kind = next(kind for kind in MARKS if kind == found[1].lower())
    return kind, argument.strip()[found.end() :].strip()


def _newest(items: list[Item]) -> tuple[str, str] | None:
    for item in reversed(items):
        if isinstance(item.message, User):
            text = "\n".join(block.text for block in item.message.content if isinstance(block, Text)).strip()
            if text:
                return item.entry, text
    return None


def _tokens(pins: list[Pinned] | tuple[Pinned, ...]) -> int:
    return Estimator().text(section(pins))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"
