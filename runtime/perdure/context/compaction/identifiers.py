"""Opaque identifiers: found by shape in any language, checked in a summary by string comparison.

A summary may lose details but not what the work must be continued with: UUIDs, hashes, ticket numbers,
hosts, ports, addresses, URLs, paths. What a summary lost is carried verbatim beside it, up to a share
of the window, ranked: the user's words, call arguments, newest results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from perdure.context.compaction.redact import has_secret, redact
from perdure.context.results.parts import text_of
from perdure.context.safety.calls import spelled
from perdure.context.tokens.estimator import Estimator
from perdure.records import (
    Assistant,
    Bash,
    Custom,
    Items,
    Message,
    Record,
    Text,
    ToolCall,
    ToolResult,
    User,
)

_A = r"(?<![A-Za-z0-9_])"
_Z = r"(?![A-Za-z0-9_])"
_STOP = r"\s\"'`<>|\u3000-\u303f\uff00-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\u2018-\u201f"
_HEX = r"[0-9a-fA-F]"
_SHAPES = re.compile(
    rf"(?P<url>{_A}[a-z][a-z0-9+.-]{{1,15}}://[^{_STOP}]+)"
    rf"|(?P<arn>{_A}arn:[a-z0-9-]+:[a-z0-9-]*:[a-z0-9-]*:\d*:[^{_STOP},]+)"
    rf"|(?P<uuid>{_A}{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}{_Z})"
    rf"|(?P<remote>{_A}[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[A-Za-z0-9_~./-]*[A-Za-z][A-Za-z0-9_./-]*)"
    rf"|(?P<mail>{_A}[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"
    rf"|(?P<windows>{_A}[A-Za-z]:\\[^{_STOP}]+|\\\\[A-Za-z0-9._-]+\\[^{_STOP}]+)"
    rf"|(?P<network>{_A}\d{{1,3}}(?:\.\d{{1,3}}){{3}}/\d{{1,2}}{_Z})"
    rf"|(?P<path>(?<![A-Za-z0-9_/:.~-])(?:(?:~|\.{{1,2}})?/[\w.@+-]+|[A-Za-z0-9_.@+-]+)(?:/[\w.@+-]+)+/?"
    rf"(?::(?:latest|v?\d+(?:\.\d+)+[\w.-]*))?|~/[\w.@+-]+)"
    rf"|(?P<ip>{_A}\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d{{1,5}})?{_Z})"
    rf"|(?P<ip6>(?<![A-Za-z0-9_:])(?:(?:{_HEX}{{1,4}}:){{3,7}}{_HEX}{{1,4}}(?![A-Za-z0-9_:])"
    rf"|(?=[0-9a-fA-F:]*\d)(?:{_HEX}{{1,4}}:){{0,6}}(?<!::):(?::{_HEX}{{1,4}}){{1,7}}|(?:{_HEX}{{1,4}}:){{1,6}}"
    rf"(?::{_HEX}{{1,4}}){{1,6}}(?:%[a-z0-9]+)?)(?![A-Za-z0-9_:]))"
    rf"|(?P<version>{_A}v?\d{{1,4}}\.\d{{1,5}}\.\d{{1,6}}"
    rf"(?:[-+][0-9A-Za-z.+-]*[0-9A-Za-z])?(?![A-Za-z0-9_]|\.\d)"
    rf"|{_A}v\d+\.\d+{_Z})"
    rf"|(?P<host>{_A}(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{{2,24}}(?::\d{{1,5}})?{_Z})"
    rf"|(?P<dotfile>(?<![A-Za-z0-9_./)\]])\.[a-z][a-z0-9_-]{{2,}}(?:\.[A-Za-z0-9_-]+)*{_Z})"
    rf"|(?P<named>[\w-]*[^\x00-\x7f\W][\w-]*\.(?:docx?|xlsx?|pptx?|od[tsp]|pdf|txt|md|csv|tsv|json|ya?ml|toml|xml|html?|"
    rf"py|js|ts|go|rs|java|c|cpp|h|sh|sql|log|png|jpe?g|gif|svg|webp|mp[34]|wav|zip|gz|tar|7z|psd|ai|key|numbers|pages){_Z})"
    rf"|(?P<port>{_A}[A-Za-z][A-Za-z0-9-]*:\d{{2,5}}{_Z}|(?:^|(?<=[\u2e80-\ufeff])):\d{{2,5}}(?=$|[.;!?)\u2e80-\uffff]))"
    rf"|(?P<number>[#!]\d{{1,9}}{_Z})"
    rf"|(?P<ticket>{_A}[A-Za-z][A-Za-z0-9]{{0,9}}(?:[-_][A-Za-z0-9]+)*[-_]\d{{1,12}}{_Z})"
    rf"|(?P<hex>{_A}(?:0x{_HEX}{{3,128}}|(?={_HEX}*\d){_HEX}{{7,128}}){_Z})"
    rf"|(?P<opaque>{_A}(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[A-Za-z0-9][A-Za-z0-9_-]{{9,127}}{_Z})"
    rf"|(?P<digits>{_A}\d{{6,20}}{_Z})"
)
_QUOTED = re.compile(
    r"[\"'`「『“‘《]((?=[^\n]{0,200}?[ \u2e80-\uffff])(?:[A-Za-z]:[\\/]|~?/|\.{1,2}/|\\\\)?"
    r"[^\"'`「」『』“”‘’《》<>|*?\n:]{1,200}\.[A-Za-z0-9]{1,8})[\"'`」』”’》]"
)
"""File names that hold blanks or other scripts end where their quotes end."""

_CALLED = re.compile(
    r"(?:\b(?:ports?|p?id|uid|ticket|issue|order|case|code|pin|build|invoice|room|job|no\.|pr|mr|puerto|porta|"
    r"bestellung|auftrag|rechnung|vorgang|commande|pedido|заказ|тикет|номер|порт)"
    r"|端口|工单|工單|订单|訂單|单号|單號|编号|編號|代码|号码|ポート|チケット|注文|番号|포트|티켓|주문|번호)"
    r"(?:[ ]?(?:id|no\.?|nr\.?|number|nummer|号|號))?[\"']?[ ]?[:：=#＃№]?[ ]?[\"']?"
    r"(\d{2,12})(?![A-Za-z0-9_]|\.\d)"
    r"|\b(?:commit|sha1?|sha256|hash|rev(?:ision)?)[\"']?[ :=]{1,3}[\"']?([0-9a-f]{6,64})(?![A-Za-z0-9_])"
    r"|\b(?:branch|ref)[\"']?[ :=]{1,3}[\"']?([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)"
    r"|(＃\d{1,12})",
    re.IGNORECASE,
)
"""Numbers and names that are ordinary by themselves, called what they are."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:T|$)")
_EXTENSION = re.compile(r"(.*\.[A-Za-z][A-Za-z0-9]{0,7})[^\x00-\x7f][^/]*$")
_TRAIL = ".,;:!?)]}'\"*"
_LONGEST = 512
_BLANKS = 5  # more of them between quotes are a sentence that ends in a file name
_SCANNED = 60_000
"""Characters of one text that are scanned, half at each end: a 10 MB log isn't read for every port."""

_PIECE = re.compile(rf"[^{_STOP}]+")
_TELLING = re.compile(r"[0-9/.:#@\\]")
"""Every identifier holds one of these: words without are prose and never looked at."""

_ENOUGH = 4
"""Once the sources gave so many times more names than fit, older results aren't read any more."""


class Found(Record):
    """Identifiers of a range, best first. `left` (at least so many) could not be carried.

    The first `asked` of them are the user's own.
    """

    carried: tuple[str, ...]
    left: int = 0
    asked: int = 0


def extract(text: str) -> tuple[str, ...]:
    """All identifiers in a text, in order, each once; nothing that looks like a secret."""
    if len(text) > _SCANNED:
        text = f"{text[: _SCANNED // 2]}\n{text[-_SCANNED // 2 :]}"
    seen: dict[str, None] = {}
    whole, text = text, _QUOTED.sub(_unquote(seen), text)
    for piece in dict.fromkeys(_PIECE.findall(text)):
        if len(piece) > 1 and _TELLING.search(piece):
            for found in _SHAPES.finditer(piece):
                name = _bare(found[0], found.lastgroup)
                if 1 < len(name) <= _LONGEST and not _ordinary(found.lastgroup, name):
                    seen.setdefault(name)
    for called in _CALLED.finditer(text):
        name = next(filter(None, called.groups())).rstrip(_TRAIL)
        if f"#{name}" not in seen:
            seen.setdefault(name)
    return _open(whole, seen) if seen and has_secret(whole) else tuple(seen)


def _unquote(seen: dict[str, None]) -> Callable[[re.Match[str]], str]:
    """Takes quoted file names out of a text, so that their pieces aren't found too."""

    def take(found: re.Match[str]) -> str:
        if found[1].count(" ") > _BLANKS:
            return found[0]
        seen.setdefault(found[1].strip())
        return " "

    return take


def _bare(name: str, kind: str | None) -> str:
    """Without the punctuation behind it, nor prose that is written against it without a blank."""
    bare = name.rstrip(_TRAIL)
    while len(bare) < len(name) and name[len(bare)] == ")" and bare.count("(") > bare.count(")"):
        bare = name[: len(bare) + 1]
    if kind in ("path", "url") and not bare.isascii():
        cut = _EXTENSION.match(bare)
        return cut[1] if cut else bare
    return bare


def _open(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Of names in a text that holds secrets, those that still stand there once these are left out."""
    clean = redact(text)
    return tuple(name for name in names if not has_secret(name) and contains(clean, name))


def _ordinary(kind: str | None, name: str) -> bool:
    """Shapes that plain prose has too: `and/or`, `e.g.`, `json.dumps` costs little, `3/4` nothing."""
    if kind == "path":
        return (
            not (name.startswith(("/", "~", ".")) or "." in name or ":" in name or name.count("/") > 1)
            or name.isdigit()
        )
    if kind == "host":
        return len(name) < 6
    if kind == "opaque":
        return _TIME.match(name) is not None
    return kind == "ticket" and len(name) < 4


def missing(summary: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those names that don't stand in the summary, compared byte for byte."""
    return tuple(name for name in names if not contains(summary, name))


def contains(summary: str, name: str) -> bool:
    """Whether a name stands whole in a text: `#45` isn't in `#451`."""
    at = summary.find(name)
    while at != -1:
        end = at + len(name)
        whole_left = at == 0 or not (_word(summary[at - 1]) and _word(name[0]))
        whole_right = end == len(summary) or not (_word(summary[end]) and _word(name[-1]))
        if whole_left and whole_right:
            return True
        at = summary.find(name, at + 1)
    return False


def _word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def collect(covered: Items, previous: str, *, budget: int, estimator: Estimator) -> Found:
    """The identifiers of a range that a share of the window can carry, ranked; newest first within.

    The user's, then those that earlier summaries carried as the user's or told of in their text; call
    arguments, as far as half of the room; the others of earlier summaries; more arguments; results; the
    agent's own words.
    """
    sources = [_texts(item.message) for item in reversed(covered)]
    room = _Room(budget, estimator)
    room.take(_names(sources, 0))
    room.take(listed_as_users(previous))
    asked = len(room.carried)
    room.take(extract(_LAST.sub("", previous)))
    arguments = list(_names(sources, 1))
    room.take(arguments, most=room.left // 2)
    room.take(extract(previous))
    room.take(arguments)
    for rank in (2, 3):
        room.take(_names(sources, rank, enough=_ENOUGH * budget // 4))
    return Found(tuple(room.carried), len(room.seen) - len(room.carried), asked)


def _names(sources: list[dict[int, list[str]]], rank: int, enough: int | None = None) -> Iterator[str]:
    """Names of one rank, newest message first; `enough` of them and the older ones aren't read."""
    told = 0
    for source in sources:
        for text in source.get(rank, ()):
            for name in extract(text):
                told += 1
                yield name
        if enough is not None and told > enough:
            return


class _Room:
    """What is carried so far, and the tokens that are left."""

    def __init__(self, budget: int, estimator: Estimator) -> None:
        self.left, self._estimator = budget, estimator
        self.seen: set[str] = set()
        self.carried: dict[str, None] = {}

    def take(self, names: Iterable[str], most: int | None = None) -> None:
        """As many as fit, of at most so many tokens."""
        room = self.left if most is None else min(most, self.left)
        for name in names:
            self.seen.add(name)
            if name in self.carried or room < 2:
                continue
            cost = self._estimator.text(f"- {name}\n") + 1
            if cost <= room:
                self.carried[name] = None
                room -= cost
                self.left -= cost


# --- as they stand in a summary -------------------------------------------------------------------

HEADING = "## Exact identifiers"
_USERS, _OTHERS = "The user's:", "Others:"
_LAST = re.compile(rf"^{re.escape(_OTHERS)}\n(?:- .*(?:\n|\Z))+", re.MULTILINE)
_BLOCK = re.compile(rf"^{re.escape(HEADING)}\n{re.escape(_USERS)}\n((?:- .*\n?)+)", re.MULTILINE)


def listing(text: str, found: Found) -> str:
    """The section with those names that a text lost; empty if there are none.

    The user's are listed though the text has them: only the list says whose they are, and the next summary
    may drop what this one told.
    """
    users, others = found.carried[: found.asked], missing(text, found.carried[found.asked :])
    rows = [_USERS, *(f"- {name}" for name in users)] if users else []
    rows += [_OTHERS, *(f"- {name}" for name in others)] if others else []
    return "\n".join([HEADING, *rows]) if rows else ""


def listed_as_users(summary: str) -> list[str]:
    """The names that a summary's section calls the user's."""
    return [row[2:] for block in _BLOCK.findall(summary) for row in block.splitlines()]


def _texts(message: Message) -> dict[int, list[str]]:
    """Texts of a message by rank: 0 the user, 1 call arguments, 2 results, 3 the assistant's own words."""
    if isinstance(message, (User, Custom)):
        return {0: [block.text for block in message.content if isinstance(block, Text)]}
    if isinstance(message, Assistant):
        calls = [text for b in message.content if isinstance(b, ToolCall) for text in spelled(b)]
        return {1: calls, 3: [block.text for block in message.content if isinstance(block, Text)]}
    if isinstance(message, ToolResult):
        return {2: [text_of(message)]}
    if isinstance(message, Bash):
        return {0: [message.command], 2: [message.output]}
    return {1: [message.summary]}
