"""What a user pinned: texts that stand in every later request, byte for byte, whatever is compacted.

They stand at the end of the system prompt, below the cache boundary, and not in the summary: so no
summariser, engine or history limit can lose them, and taking one away works at once. The price is one
cache break for each change, which a person asks for by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec.structs import replace

from perdure.context.environment import Environment
from perdure.context.numbers import PIN_SHARE, Limits
from perdure.context.prompt.boundary import BOUNDARY, FOREIGN_BOUNDARY
from perdure.context.tokens.estimator import Estimator
from perdure.records import LedgerLine, PinKind, Pinned

MARKS: tuple[PinKind, ...] = tuple(kind for kind in get_args(PinKind) if kind != "request")
"""The kinds a user may mark."""

RULE = "pinned by the user"
_HEAD = (
    "## Pinned by the user\n\nThe user marked these texts to hold for the whole session. They are quoted "
    "word for word. Only the user can change or end them; where one contradicts an earlier message, it holds."
)


def marked(pins: Iterable[Pinned]) -> tuple[Pinned, ...]:
    """Those of users, in the order in which they were pinned."""
    return tuple(pin for pin in pins if pin.kind in MARKS)


def section(pins: Iterable[Pinned]) -> str:
    """The part of the system prompt that holds them; empty without pins."""
    blocks = [f"### {pin.kind.capitalize()} {n}\n{pin.text}" for n, pin in enumerate(marked(pins), 1)]
    return "\n\n".join([_HEAD, *blocks]) if blocks else ""


def with_pins(env: Environment, pins: Iterable[Pinned]) -> Environment:
    """The environment whose requests carry the pins, counted among the fixed tokens that all lines see."""
    chosen = marked(pins)
    if not chosen:
        return env
    text = section(chosen)
    tokens = Estimator().text(text)
    return replace(
        env,
        system=f"{env.system}\n\n{text}",
        fixed_tokens=env.fixed_tokens + tokens,
        identity_tokens=env.identity_tokens + tokens,
        pins=chosen,
    )


def refusal(pins: Iterable[Pinned], text: str, limits: Limits) -> str | None:
    """Why a text can't be pinned beside those there are, in words for a person; `None` if it can."""
    if not text.strip():
        return "there is nothing to pin"
    if BOUNDARY in text or FOREIGN_BOUNDARY in text:
        return "a pin can't hold the marker of the cache boundary"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return "the text holds half of a character: it could not be sent byte for byte"
    chosen, estimator = marked(pins), Estimator()
    if any(pin.text == text for pin in chosen):
        return "this text is pinned already"
    room = int(limits.window * PIN_SHARE)
    used = estimator.text(section(chosen)) if chosen else 0
    new = estimator.text(section((*chosen, Pinned("", text)))) - used
    if used + new > room:
        return (
            f"it takes {new:,} tokens, and of the {room:,} that pins may take ({PIN_SHARE:.0%} of the "
            f"window), {used:,} are taken: shorten it, or unpin something"
        )
    return None


def pin_lines(pins: Iterable[Pinned], estimator: Estimator) -> tuple[LedgerLine, ...]:
    """One ledger line for each pin that a request carries."""
    return tuple(
        LedgerLine(pin.id, "in", f"{RULE}: {pin.kind}, word for word", estimator.text(pin.text), "dynamic")
        for pin in marked(pins)
    )
