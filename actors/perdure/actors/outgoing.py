"""What becomes of an answer that goes out: the pure half of the outbox. Time and attempts come in.

    waiting ──attempt n begun──► begun ──receiver has it──► sent
       ▲                          │ │
       └──── surely not taken ────┘ ├─ refused ──► failed        (listed until retried or dropped)
                                    └─ no end on record: the same id again where the channel can
                                       de-duplicate by it, else ──► unknown

What is older than the channel's age is `expired`, never sent late. Each state is on record before the next
effect, as openclaw does it since its recovery sent replies twice (RT12).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

from msgspec.structs import replace

from perdure.context.safety.heartbeat import is_ack
from perdure.contracts import Delivery, Letter, Outbound
from perdure.edges.session.facts import Mark, Outgoing
from perdure.errors import DeliveryFailed, UsageError
from perdure.kernel.intensity import Backoff
from perdure.records import Assistant, Item, Message, Record, Text, ToolCall

BACKOFF = Backoff(5.0, 4.0, 3_600.0)  # seconds between attempts: 5, 20, 80 … at most an hour
JITTER = 0.25  # of a pause, at most, is added: what failed together doesn't come back together
MOST_OUTGOING = 256  # answers of one session that wait; checkpoints carry them, so there is a bound
MOST_ENDED = 32  # failed, unknown and expired ones of one session that are listed
LATE = 86_400.0  # seconds a receiver can ask to be left alone, at most
WHY = 200  # characters of a reason that are kept

Step: TypeAlias = Literal["attempt", "unknown", "expired"]


class Ended(Record):
    """How an attempt ended: the receiver has it (`error` None), or what is known instead."""

    error: DeliveryFailed | None = None
    ref: str = ""


# --- what goes out --------------------------------------------------------------------------------


def owes_of(letter: Letter) -> str:
    """As what the answer to a letter goes out: `reply`, `scheduled`, or "" (who sent it can wait for it)."""
    goes = letter.kind != "external_user" if letter.deliver is None else letter.deliver
    return "" if not goes else "scheduled" if letter.kind == "internal_system" else "reply"


def mark_of(message: Message, channel: str, owes: str, now: int, session: str) -> Mark | None:
    """The mark of a message that ends a turn whose answer is owed; `None` where it ends none.

    What says nothing (an abort, a heartbeat's acknowledgement, no text) goes nowhere, and nothing is owed
    any more.
    """
    if not isinstance(message, Assistant) or not ends_turn(message):
        return None
    failed = message.stop == "error"
    silent = message.stop == "aborted" or not (failed or text_of(message).strip())
    if silent or not channel or is_ack(Item("", message)):
        return Mark(session=session)
    return Mark(channel, "failed" if failed else owes, now, session)


def ends_turn(message: Assistant) -> bool:
    """Whether the agent rests behind it."""
    return message.stop in ("error", "aborted") or not any(isinstance(b, ToolCall) for b in message.content)


def text_of(message: Assistant) -> str:
    """What the model said."""
    return "".join(block.text for block in message.content if isinstance(block, Text))


def id_of(session: str, entry: str) -> str:
    """The idempotency id: the same for the same answer, whoever sends it and whenever."""
    return "msg_" + hashlib.sha256(f"{session}/{entry}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def delivery(key: str, session: str, outgoing: Outgoing, message: Assistant) -> Delivery:
    """What a channel is given. An error's text is the host's own, not the model's."""
    return Delivery(
        id=id_of(session, outgoing.entry),
        key=key,
        channel=outgoing.to,
        event=cast(Outbound, outgoing.event),
        text=text_of(message),
        entry=outgoing.entry,
        at=outgoing.at,
        attempt=outgoing.tries,
        stop=message.stop,
        error=message.error or "",
    )


# --- what is done about it ------------------------------------------------------------------------


def step(outgoing: Outgoing, now_ms: int, *, idempotent: bool, max_age: float) -> Step:
    """What is next for an answer that is under way and of which no attempt runs. `max_age` in seconds.

    An attempt without an end on record comes first: what may have arrived didn't expire.
    """
    if outgoing.state == "begun" and not idempotent:
        return "unknown"
    return "expired" if now_ms - outgoing.at > max_age * 1000 else "attempt"


def begun(outgoing: Outgoing) -> Outgoing:
    """The record before an attempt."""
    return replace(outgoing, state="begun", tries=outgoing.tries + 1, why="")


def ended(outgoing: Outgoing, end: Ended, *, idempotent: bool) -> Outgoing:
    """The record of an attempt's end."""
    if end.error is None:
        return replace(outgoing, state="sent", why="")
    why = str(end.error)[:WHY]
    if end.error.kind in ("permanent", "gone"):
        return replace(outgoing, state="failed", why=why)
    if end.error.kind == "ambiguous" and not idempotent:
        return replace(outgoing, state="unknown", why=why)
    return replace(outgoing, state="waiting", why=why)


def pause(outgoing: Outgoing, end: Ended, id: str) -> float:
    """Seconds until the next attempt: by its number, what the receiver asks for, and a jitter of its own."""
    told = end.error.retry_after if end.error is not None else None
    wait = max(BACKOFF.delay(max(1, outgoing.tries)), min(told or 0.0, LATE))
    share = int(hashlib.sha256(f"{id}/{outgoing.tries}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
    return wait * (1 + JITTER * share)


def moved(
    found: Sequence[Outgoing], what: str, entry: str, now_ms: int, *, busy: bool = False
) -> tuple[Outgoing, ...]:
    """What an operator's `retry` or `drop` of an answer ("": of all) makes of them; only those it changes.

    `busy`: an attempt runs, whose end is awaited. Raises `UsageError` for an entry that is not among them.
    """
    chosen = [each for each in found if entry in ("", each.entry)]
    if entry and not chosen:
        raise UsageError(f"no answer {entry} is on its way out of this session: list the outbox")
    if what == "drop":
        return tuple(replace(e, state="dropped") for e in chosen if not (busy and e.state == "begun"))
    return tuple(replace(e, state="waiting", why="", at=now_ms) for e in chosen if not e.under_way)


def line_of(each: Outgoing) -> str:
    """One answer, for a person."""
    why = f": {each.why}" if each.why else ""
    return f"{each.entry} {each.event} by {each.to}, {each.state}, {each.tries} attempts{why}"


def too_many(outgoing: list[Outgoing]) -> list[tuple[Outgoing, Outgoing]]:
    """Bounds: the oldest that wait beyond `MOST_OUTGOING` fail; the oldest ends are dropped from the list."""
    waiting = [each for each in outgoing if each.state == "waiting"]
    over = [each for each in outgoing if not each.under_way]
    full = f"more than {MOST_OUTGOING} answers wait for the channel"
    lost = [(each, replace(each, state="failed", why=full)) for each in waiting[:-MOST_OUTGOING]]
    return lost + [(each, replace(each, state="dropped")) for each in over[:-MOST_ENDED]]
