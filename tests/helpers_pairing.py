"""What pairing must come to, told apart from the code that does it, and where the reference differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.context.safety.repair import SYNTHETIC, calls_of
from perdure.records import Assistant, Items, Message, Summary, Text, ToolResult


def turns(items: Items) -> list[tuple[Assistant | None, list[Message]]]:
    found: list[tuple[Assistant | None, list[Message]]] = [(None, [])]
    for item in items:
        if isinstance(item.message, Assistant):
            found.append((item.message, []))
        else:
            found[-1][1].append(item.message)
    return found


def ids(message: Assistant | None) -> list[str]:
    return [call.id for call in calls_of(message)] if message else []


def broken_turn(items: Items) -> bool:
    return any(m and (m.stop == "error" or (m.stop == "aborted" and m.content)) for m, _ in turns(items))


def reused_id(items: Items) -> bool:
    called = [call for message, _ in turns(items) for call in ids(message)]
    return len(called) != len(set(called))


def out_of_order(items: Items) -> bool:
    for message, rest in turns(items):
        got = [m.call_id for m in rest if isinstance(m, ToolResult) and m.call_id in ids(message)]
        places = [ids(message).index(each) for each in got]
        if places != sorted(places):
            return True
    return False


def twice_in_one_turn(items: Items) -> bool:
    for message, rest in turns(items):
        got = [m.call_id for m in rest if isinstance(m, ToolResult) and m.call_id in ids(message)]
        if len(got) != len(set(got)):
            return True
    return False


def late_answer(items: Items) -> bool:
    open_: set[str] = set()
    for message, rest in turns(items):
        got = {m.call_id for m in rest if isinstance(m, ToolResult)}
        if got & open_:
            return True
        real = {m.call_id for m in rest if isinstance(m, ToolResult) and not m.is_error}
        open_ |= set(ids(message)) - real
    return False


def blank_id(items: Items) -> bool:
    return any("" in ids(message) for message, _ in turns(items))


def nameless(items: Items) -> bool:
    return any(isinstance(i.message, ToolResult) and not i.message.tool.strip() for i in items)


def covered_result(items: Items) -> bool:
    """A result stands between a leading summary and the first assistant message."""
    if not items or not isinstance(items[0].message, Summary):
        return False
    return any(isinstance(m, ToolResult) for m in turns(items)[0][1])


DEPARTURES: dict[str, Callable[[Items], bool]] = {
    "of a turn that failed nothing is sent, of an aborted one its text": broken_turn,
    "ids are unique within a turn only: a reused id keeps its own result": reused_id,
    "results are shown in call order, even if nothing else is wrong": out_of_order,
    "a second result of one call is always taken out": twice_in_one_turn,
    "a real result that comes after the model went on is sent as a note": late_answer,
    "a call without an id must not stay unanswered": blank_id,
    "a result whose call is covered by the summary is sent as a note": covered_result,
    "a result without a name gets one, whatever else changed": nameless,
}


def by_our_rules(items: Items) -> list[Any]:
    """What must be sent, told independently: calls with their answers, all else in order."""
    out: list[Any] = []
    answers: dict[str, str] = {}
    head = bool(items) and isinstance(items[0].message, Summary)
    for n, (message, rest) in enumerate(turns(items)):
        whole = message is not None and message.stop not in ("error", "aborted")
        out += [("says", m) for m in [sent_of(message)] if m is not None]
        left = list(rest)
        for call in ids(message) if whole else []:
            mine = [m for m in left if isinstance(m, ToolResult) and m.call_id == call]
            real = [m for m in mine if not m.is_error]
            twins = ids(message).count(call) > 1
            best = (mine if twins else real or mine)[:1]
            answers[call] = "none" if not best else "failed" if best[0].is_error else "real"
            out.append(("result", call, best[0].content if best else (Text(SYNTHETIC),)))
            left = [m for m in left if not (best and m is best[0])]
        for other in left:
            dead = ids(message) if message and not whole else []
            out += after_the_batch(other, answers, dead, covered=head and n == 0)
    return out


def after_the_batch(other: Message, answers: dict[str, str], dead: list[str], *, covered: bool) -> list[Any]:
    if not isinstance(other, ToolResult):
        return [("other", other)]
    if other.call_id in dead or other.is_error:
        return []
    if not covered and answers.get(other.call_id, "real") == "real":
        return []
    if not covered:
        answers[other.call_id] = "real"
    return [("note", other.content)] if other.content else []


def sent_of(message: Assistant | None) -> Assistant | None:
    if message is None or message.stop == "error":
        return None
    if message.stop == "aborted":
        text = tuple(block for block in message.content if isinstance(block, Text))
        return Assistant(text, "aborted") if text or not message.content else None
    return message


def shown(items: Items, source: Items) -> list[Any]:
    """An outcome in the words of `by_our_rules`."""
    kinds = {item.entry: item.message for item in source}
    out: list[Any] = []
    for item in items:
        message = item.message
        if isinstance(message, Assistant):
            aborted = message.stop == "aborted"
            out.append(("says", Assistant(message.content, "aborted") if aborted else message))
        elif isinstance(message, ToolResult):
            out.append(("result", message.call_id, message.content))
        elif isinstance(kinds.get(item.entry), ToolResult):
            out.append(("note", message.content[1:]))
        else:
            out.append(("other", message))
    return out
