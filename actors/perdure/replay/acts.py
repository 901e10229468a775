"""A recording's events → acts: who asked, what was answered with which results, what stood beside it.

Results are put to their calls here (the nearest earlier call of that id that has none), because files
hold them late, twice, or without a call. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from perdure.records import Assistant, Bash, Custom, Image, Record, Text, ToolCall, ToolResult, User
from perdure.replay.recording import Change, Event

NO_PROVIDERS = frozenset({"openclaw"})  # OpenClaw's mirrors of delivered texts: no model said them


class Ask(Record):
    """Something a reply is due to."""

    time: int
    message: User | Custom


class Ran(Record):
    """A call and its result; `result` is None where the recording has none."""

    call: ToolCall
    time: int
    result: ToolResult | None


class Reply(Record):
    """One model call's outcome, with what its calls returned in the order they completed."""

    time: int
    message: Assistant
    ran: tuple[Ran, ...] = ()

    @property
    def failed(self) -> bool:
        """Nothing came of it: no call of it ran."""
        return self.message.stop in ("error", "aborted")


class Aside(Record):
    """A change of settings, or a command the user ran."""

    time: int
    what: Change | Bash


Act: TypeAlias = Ask | Reply | Aside


def acts(events: tuple[Event, ...], lost: Counter[str]) -> tuple[Act, ...]:
    """The acts in order; what can't be placed is counted in `lost`."""
    events = _rising(events, lost)
    results = _paired(events, lost)
    made = [act for n, event in enumerate(events) if (act := _act(event, results.get(n, {}), lost))]
    return tuple(_told(made, lost))


def _rising(events: tuple[Event, ...], lost: Counter[str]) -> tuple[Event, ...]:
    """Times never run backwards; a missing one is the one before."""
    latest, risen = 0, []
    for event in events:
        if event.time and event.time < latest:
            lost["times that ran backwards (moved forward)"] += 1
        latest = max(latest, event.time)
        risen.append(Event(latest, event.what))
    return tuple(risen)


def _paired(events: tuple[Event, ...], lost: Counter[str]) -> dict[int, dict[int, Event]]:
    """For each assistant event the results of its calls, by the call's place in it."""
    found: dict[int, dict[int, Event]] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}
    answered: set[str] = set()
    for n, event in enumerate(events):
        if isinstance(event.what, Assistant):
            for place, call in enumerate(_calls(event.what)):
                if event.what.stop not in ("error", "aborted"):
                    waiting.setdefault(call.id, []).append((n, place))
        elif isinstance(event.what, ToolResult):
            key = event.what.call_id
            if waiting.get(key):
                owner, place = waiting[key].pop()
                found.setdefault(owner, {})[place] = event
                answered.add(key)
            else:
                lost["repeated tool results" if key in answered else "tool results without a call"] += 1
    return found


def _calls(message: Assistant) -> list[ToolCall]:
    return [block for block in message.content if isinstance(block, ToolCall)]


def _act(event: Event, results: dict[int, Event], lost: Counter[str]) -> Act | None:
    match event.what:
        case User() | Custom() as message:
            if _speaks(message):
                return Ask(event.time, message)
            lost["empty user messages"] += 1
        case Assistant(provider=provider) if provider in NO_PROVIDERS:
            lost["mirrors of delivered messages"] += 1
        case Assistant() as message:
            return Reply(event.time, message, _ran(event, message, results))
        case Change() | Bash() as what:
            return Aside(event.time, what)
        case ToolResult():
            pass  # went to its call, or was counted there
        case _:
            lost["summaries (made anew by the replay)"] += 1
    return None


def _speaks(message: User | Custom) -> bool:
    return any(
        isinstance(block, Image) or (isinstance(block, Text) and bool(block.text.strip()))
        for block in message.content
    )


def _ran(event: Event, message: Assistant, results: dict[int, Event]) -> tuple[Ran, ...]:
    """In the order of completion; the unanswered ones last, in call order."""
    if message.stop in ("error", "aborted"):
        return ()
    calls = _calls(message)
    if message.stop == "length" and not results:
        return ()  # the limit cut the answer, so nothing ran
    order = sorted(
        range(len(calls)), key=lambda n: (n not in results, results[n].time if n in results else 0)
    )
    return tuple(_one(calls[n], results.get(n), event.time) for n in order)


def _one(call: ToolCall, found: Event | None, time: int) -> Ran:
    if found is None or not isinstance(found.what, ToolResult):
        return Ran(call, time, None)
    return Ran(call, found.time, found.what)


def _told(made: list[Act], lost: Counter[str]) -> list[Act]:
    """Without attempts that were retried at once (only the last is the reply), and without messages
    of extensions that nothing replied to.
    """
    told: list[Act] = []
    follower: Act | None = None
    for act in reversed(made):
        if isinstance(act, Reply) and act.failed and isinstance(follower, Reply):
            lost["failed attempts that were retried at once"] += 1
            continue
        if isinstance(act, Ask) and isinstance(act.message, Custom) and not isinstance(follower, Reply):
            lost["messages of extensions"] += 1
            continue
        told.append(act)
        if not isinstance(act, Aside):
            follower = act
    return told[::-1]
