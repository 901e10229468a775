"""What a summary must not lose and a program can compare: progress counts, open to-dos, the last request.

Found by shape, in any language, in what is covered and in the earlier summary; the newest word counts, and
what the kept tail says again needs no carrying. What a summary's text lost stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.context.compaction.redact import redact
from perdure.context.numbers import TAIL_SHARE
from perdure.context.results.parts import text_of
from perdure.context.text.graphemes import cut_after, cut_before
from perdure.context.tokens.estimator import Estimator
from perdure.records import Assistant, Item, Items, Record, Text, ToolCall, ToolResult, User

REQUEST_HEADING = "## Last request, as it was said"
TODO_HEADING = "## Still open"
PROGRESS_HEADING = "## Progress as last reported"

_REQUEST_CHARS, _TODO_CHARS, _LINE_CHARS = 1_600, 240, 160
_TODOS, _COUNTS = 20, 6
_SCANNED = 8_000
"""Characters of one text that are searched, half at each end."""

_DONE, _ALL = "第|完成了?|处理了?|處理了?|做完了?", "共计?|总共|總共|一共|全部|合计"
_COUNT = re.compile(
    r"(?<![\w/.,:+-])(\d{1,6})(?: ?[/／] ?| (?:out )?(?:of|von|sur|de|di|van|av|z|ze|dari|trong|из|од)"
    r"(?: the| insgesamt| os| los)? )(\d{1,6})(?![\w/-]|[.,:]\d)"
)
_COUNT_EAST = re.compile(rf"(?:{_DONE})[ ]?(\d{{1,6}})[^\d\n。]{{0,6}}?(?:{_ALL})[ ]?(\d{{1,6}})")
_TURNED = re.compile(  # the whole first, then the part
    rf"(?:{_ALL})[ ]?(\d{{1,6}})[^\d\n。]{{0,10}}?(?:{_DONE})[ ]?(\d{{1,6}})"
    r"|(\d{1,6})[ ]?(?:件|個|个|项|項|本|台|份|ファイル)?(?:中の?|のうち)"
    r"(?:の|、|，)?[^\d\n。]{0,8}?(\d{1,6})"
    r"|(\d{1,6})[ ]?(?:개|건|명)?[ ]?중(?:에서)?[ ]?(\d{1,6})"
)
_PATTERNS = ((_COUNT, False), (_COUNT_EAST, False), (_TURNED, True))
_BOX = re.compile(
    r"^[ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+\[([ xX✓✔~-]?)\]|([☐□])|([☑☒✅]))[ \t]+(\S.*)$", re.MULTILINE
)
_LISTS = re.compile(r"todo|plan|task|checklist", re.IGNORECASE)
_SAYS = ("content", "text", "title", "step", "task", "description", "subject", "name")
_STATES = ("status", "state", "done", "completed", "checked")
_CLOSED = {
    "done",
    "completed",
    "complete",
    "finished",
    "closed",
    "cancelled",
    "canceled",
    "true",
    "x",
    "完成",
    "已完成",
}


class Facts(Record):
    """What was found, newest and most telling first."""

    request: str = ""
    todos: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many there are."""
        return bool(self.request) + len(self.todos) + len(self.progress)


def collect(
    covered: Items,
    kept: Items,
    previous: str,
    *,
    budget: int,
    estimator: Estimator,
    pinned: Iterable[str] = (),
) -> Facts:
    """The facts of a range that so many tokens can carry. `pinned` texts are carried already."""
    counts, boxes = _Counts(), _Boxes()
    counts.read(previous, 0)
    boxes.read(previous, kept=False)
    for place, items in enumerate((covered, kept)):
        for item in items:
            for text, rank in _texts(item):
                counts.read(text, rank, kept=place == 1)
            boxes.take(item, kept=place == 1)
    request = _request(covered, kept, previous)
    if any(request in text for text in pinned):
        request = ""
    return _within(Facts(_bounded(request), boxes.open(), counts.lines()), budget, estimator)


def lost(summary: str, facts: Facts) -> Facts:
    """Those that don't stand in a text: requests and to-dos by their words, counts by their two numbers."""
    flat, told = _flat(summary), set(_counts(summary))
    return Facts(
        "" if _flat(facts.request) in flat else facts.request,
        tuple(todo for todo in facts.todos if _flat(todo) not in flat),
        tuple(line for line in facts.progress if not told.issuperset(_counts(line)[-1:])),
    )


def blocks(facts: Facts) -> list[str]:
    """The sections that carry them."""
    made = []
    if facts.request:
        made.append(f"{REQUEST_HEADING}\n{facts.request}")
    if facts.todos:
        made.append(f"{TODO_HEADING}\n" + "\n".join(f"- [ ] {todo}" for todo in facts.todos))
    if facts.progress:
        made.append(f"{PROGRESS_HEADING}\n" + "\n".join(f"- {line}" for line in facts.progress))
    return made


def _within(facts: Facts, budget: int, estimator: Estimator) -> Facts:
    room = budget - estimator.text(facts.request)
    request = facts.request if room >= 0 else ""
    room = room if request else budget
    taken: dict[str, list[str]] = {"todos": [], "progress": []}
    for kind, names in (("todos", facts.todos), ("progress", facts.progress)):
        for name in names:
            cost = estimator.text(f"- [ ] {name}\n") + 1
            if cost <= room:
                taken[kind].append(name)
                room -= cost
    return Facts(request, tuple(taken["todos"]), tuple(taken["progress"]))


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


def _clipped(text: str) -> str:
    return text if len(text) <= _SCANNED else f"{text[: _SCANNED // 2]}\n{text[-_SCANNED // 2 :]}"


def _texts(item: Item) -> Iterator[tuple[str, int]]:
    """Texts of a message that may count something, and their rank: words before a tool's output."""
    message = item.message
    if isinstance(message, (User, Assistant)):
        yield from ((block.text, 1) for block in message.content if isinstance(block, Text))
    elif isinstance(message, ToolResult):
        yield text_of(message), 0


# --- counts ---------------------------------------------------------------------------------------


def _counts(text: str) -> list[tuple[int, int]]:
    """Pairs (part, whole) in the order in which a text names them."""
    return [pair for _, pair in _found(text)]


def _found(text: str) -> list[tuple[int, tuple[int, int]]]:
    pairs = []
    patterns = _PATTERNS[:1] if text.isascii() else _PATTERNS
    for pattern, turned in patterns:
        for match in pattern.finditer(text):
            one, two = (int(number) for number in match.groups() if number is not None)
            part, whole = (two, one) if turned else (one, two)
            if part <= whole and whole >= 3:
                pairs.append((match.start(), (part, whole)))
    return sorted(pairs)


class _Counts:
    """The newest count of each whole, and the line that tells it."""

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, int, str]] = {}  # whole → (rank, part, line)

    def read(self, text: str, rank: int, *, kept: bool = False) -> None:
        text = _clipped(text)
        for at, (part, whole) in _found(text):
            self._newest.pop(whole, None)
            self._newest[whole] = (rank, part, "" if kept else _line(text, at))

    def lines(self) -> tuple[str, ...]:
        """Unfinished before finished, words before outputs, newest first."""
        told = [
            (part < whole, rank, line) for whole, (rank, part, line) in reversed(self._newest.items()) if line
        ]
        ranked = sorted(told, key=lambda one: one[:2], reverse=True)
        return tuple(line for _, _, line in ranked[:_COUNTS])


def _line(text: str, at: int) -> str:
    """The line around a place, shortened at both ends, so that the count is its last."""
    begin = max(text.rfind("\n", 0, at) + 1, at - _LINE_CHARS // 2)
    stop = text.find("\n", at)
    end = min(len(text) if stop < 0 else stop, at + _LINE_CHARS // 2)
    line = redact(" ".join(text[begin:end].split()).removeprefix("- "))
    return line if _counts(line) else " ".join(text[at : at + 24].split())


# --- to-dos ---------------------------------------------------------------------------------------


class _Boxes:
    """Every box that was drawn, ticked or not; a tool that keeps a list replaces it with each call."""

    def __init__(self) -> None:
        self._boxes: dict[str, tuple[str, bool, bool]] = {}  # flat text → (text, open, in the kept tail)
        self._lists: dict[str, list[tuple[str, bool, bool]]] = {}

    def take(self, item: Item, *, kept: bool) -> None:
        message = item.message
        if not isinstance(message, (User, Assistant)):
            return
        for block in message.content:
            if isinstance(block, Text):
                self.read(block.text, kept=kept)
            elif isinstance(block, ToolCall):
                self._call(block, kept)

    def read(self, text: str, *, kept: bool) -> None:
        if "[" not in text and not any(mark in text for mark in "☐□☑☒✅"):
            return
        for box, empty, ticked, said in _BOX.findall(text):
            self._put(said.strip(), bool(empty) or (not ticked and box in ("", " ")), kept)

    def _put(self, said: str, open_: bool, kept: bool) -> None:
        self._boxes.pop(_flat(said), None)
        self._boxes[_flat(said)] = (said, open_, kept)

    def _call(self, call: ToolCall, kept: bool) -> None:
        try:
            given = msgspec.json.decode(call.arguments)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if not isinstance(given, dict):
            return
        for value in given.values():
            if isinstance(value, str) and "[" in value:
                self.read(value, kept=kept)
            elif isinstance(value, list) and _LISTS.search(call.name):
                made = [(said, open_, kept) for said, open_ in map(_task, value) if said]
                self._lists[call.name] = made or self._lists.get(call.name, [])

    def open(self) -> tuple[str, ...]:
        every = [*(task for made in self._lists.values() for task in made), *reversed(self._boxes.values())]
        told = (said for said, open_, kept in every if open_ and not kept)
        return tuple(dict.fromkeys(redact(said)[:_TODO_CHARS].strip() for said in told))[:_TODOS]


def _task(value: Any) -> tuple[str, bool]:
    """What one row of a tool's list says, and whether it is still to be done."""
    if not isinstance(value, dict):
        return "", False
    said = next((value[key] for key in _SAYS if isinstance(value.get(key), str)), "")
    states = [str(value[key]).lower() for key in _STATES if key in value]
    return " ".join(said.split()), bool(states) and not any(state in _CLOSED for state in states)


# --- the last request -----------------------------------------------------------------------------


def _request(covered: Items, kept: Items, previous: str) -> str:
    """The newest words of the user, where the kept tail has none."""
    if any(_said(item) for item in kept):
        return ""
    told = next(filter(None, map(_said, reversed(covered))), "")
    if told:
        return told
    _, heading, rest = previous.partition(f"{REQUEST_HEADING}\n")
    return rest.partition("\n\n## ")[0].strip() if heading else ""


def _said(item: Item) -> str:
    if not isinstance(item.message, User):
        return ""
    return "\n".join(block.text for block in item.message.content if isinstance(block, Text)).strip()


def _bounded(text: str) -> str:
    """Word for word up to a bound, else head and tail."""
    text = redact(text)
    if len(text) <= _REQUEST_CHARS:
        return text
    tail = int(_REQUEST_CHARS * TAIL_SHARE)
    end = text[cut_after(text, len(text) - tail) :]
    return f"{text[: cut_before(text, _REQUEST_CHARS - tail)]}\n[…]\n{end}"
