"""Model calls with the real size of their prompt: from recorded sessions, and from a corpus of our own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from helpers_histories import png
from helpers_messages import SONNET, call, says, user
from perdure.context import pipeline
from perdure.context.environment import resolve
from perdure.context.numbers import limits
from perdure.context.tokens.estimator import Estimator, Measure, measure
from perdure.contracts import Assembled
from perdure.edges.models.accounting import Accounting
from perdure.edges.session.load import load
from perdure.edges.session.view import message_of
from perdure.records import Assistant, Image, Item, Items, Message, Summary, Text, ToolResult
from perdure.replay import generate
from perdure.replay.formats import claude_code
from perdure.replay.generate import Numbers

SESSIONS = os.environ.get("PERDURE_SESSIONS", "")
VERBATIM = ("pi-before-compaction.jsonl", "cc-spotter-e.jsonl")
"""Recordings whose texts are as they were: only there do text and usage belong together."""

recorded = pytest.mark.skipif(not SESSIONS, reason="PERDURE_SESSIONS names no folder of recorded sessions")

Call: TypeAlias = tuple[Measure, int]
"""The measured messages of one request, and the real tokens of its whole prompt."""


class Errors:
    """What an estimator that learns from each call says of the next one."""

    def __init__(self, spared: int = 5) -> None:
        self._spared = spared
        self.errors: list[float] = []
        self.broken: list[str] = []
        self.margins: list[float] = []

    def add(self, n: int, estimator: Estimator, size: Measure, fixed: int, real: int) -> None:
        if n < self._spared:
            return
        self.errors.append(abs(estimator.forecast(size, fixed) / real - 1))
        whole = estimator.whole(size, fixed)
        self.margins.append(whole / real - 1)
        if whole < real:
            self.broken.append(f"call {n}: {real:,} of at most {whole:,}")

    def at(self, share: float) -> float:
        """The error that so large a share of the calls doesn't pass."""
        found = sorted(self.errors)
        return found[min(len(found) - 1, int(share * len(found)))]

    def line(self) -> str:
        return (
            f"{len(self.errors)} calls: median {self.at(0.5):.2%}, p99 {self.at(0.99):.2%}, "
            f"largest {self.at(1):.2%}; bound passed {len(self.broken)} times, "
            f"median margin {sorted(self.margins)[len(self.margins) // 2]:.1%}"
        )


# --- recorded sessions ----------------------------------------------------------------------------


def recorded_calls(name: str) -> Iterator[Call]:
    """The calls of a recording that carry usage. The foreign system prompt is in none of them."""
    path = Path(SESSIONS) / name
    return _claude_code(path) if name.startswith("cc-") else _sessions(path)


def _prompt(message: Message) -> int:
    """The prompt's real tokens where this is a whole answer that tells them."""
    whole = isinstance(message, Assistant) and message.stop not in ("error", "aborted")
    return message.usage.prompt if whole and message.usage is not None else 0


def _sessions(path: Path) -> Iterator[Call]:
    loaded, size = load(path), Measure()
    with loaded.reading():
        for node in loaded.branch():
            if node.type == "compaction":
                size = sum((measure(item.message) for item in loaded.opened(node.id).items), Measure())
                continue
            message = message_of(node, loaded.raw)
            if message is None:
                continue
            if real := _prompt(message):
                yield size, real
            size += measure(message)


def _claude_code(path: Path) -> Iterator[Call]:
    """One line for each block of an answer; a compaction leaves nothing but what follows it."""
    view: list[Message] = []
    names: dict[str, str] = {}
    places: dict[str, int] = {}
    for row in map(json.loads, path.read_bytes().splitlines()):
        if row.get("subtype") == "compact_boundary":
            view, places = [], {}
        elif row.get("isSidechain") is True or row.get("type") not in ("user", "assistant"):
            continue
        elif row["type"] == "user":
            view += [event.what for event in claude_code._user(row, names) if not isinstance(event.what, str)]
        else:
            made: list[Any] = []
            claude_code._assistant(row, made, {}, names)
            answer, ident = made[0].what, row["message"]["id"]
            if ident in places:
                earlier = view[places[ident]]
                view[places[ident]] = Assistant(earlier.content + answer.content)
                continue
            found = row["message"]["usage"]
            if real := sum(n for key, n in found.items() if key in _INPUTS):
                yield sum(map(measure, view), Measure()), real
            places[ident] = len(view)
            view.append(answer)


_INPUTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

# --- a corpus of our own --------------------------------------------------------------------------

_JAPANESE = (
    "在庫を",
    "確認して",
    "ください",
    "倉庫の",
    "担当者に",
    "連絡しました",
    "明日",
    "注文が",
    "届く",
    "予定です",
)
_KOREAN = (
    "창고의",
    "재고를",
    "확인하고",
    "담당자에게",
    "연락해",
    "주세요",
    "내일",
    "주문이",
    "도착할",
    "예정입니다",
)
_RUSSIAN = ("проверьте", "остатки", "на", "складе", "и", "сообщите", "завтра", "придёт", "новый", "заказ")


def passage(kind: str, chars: int, seed: int) -> str:
    """A text of that kind, original and always the same."""
    n = Numbers(kind, seed)
    if kind == "any":
        return passage(n.pick(KINDS[:-1]), chars, seed)
    if kind in generate.KINDS:
        return generate.text(kind, chars, seed)
    if kind == "japanese":
        return "".join(n.pick(_JAPANESE) + ("。" if n.below(4) == 0 else "") for _ in range(chars // 4))[
            :chars
        ]
    if kind in ("korean", "russian"):
        words = _KOREAN if kind == "korean" else _RUSSIAN
        return " ".join(n.pick(words) for _ in range(chars // 5))[:chars]
    if kind == "hex":
        return " ".join(f"{n.below(256):02x}" for _ in range(chars // 3))
    if kind == "typescript":
        rows = (f"export const {n.pick(generate.NAMES)}{i} = async (id: number): Promise<void> => {{\n"
                f"  await db.{n.pick(generate.VERBS)}(`${{id}}`, {{ retries: {n.below(9)} }});\n}};\n"
                for i in range(chars // 90 + 1))  # fmt: skip
        return "".join(rows)[:chars]
    return "\n".join(passage(each, max(80, chars // len(MIXED)), seed) for each in MIXED)


MIXED = ("prose", "json", "code", "cjk", "log")
KINDS = (*generate.KINDS, "japanese", "korean", "russian", "hex", "typescript", "mixed", "any")


def talk(kind: str, steps: int) -> Iterator[Items]:
    """The view before each call of a growing talk in one kind of text; pictures and compactions too."""
    n, view = Numbers(f"talk-{kind}", 7), [Item("u0", user(passage(kind, 2_000, 1)))]
    for step in range(1, steps + 1):
        yield tuple(view)
        said = passage(kind if n.below(2) else "prose", 200 + n.below(900), 1_000 + step)
        if n.below(3):
            view.append(Item(f"a{step}", says(said, call(f"c{step}"), stop="toolUse")))
            output = passage(kind, 300 + n.below(6_000), 2_000 + step)
            shot = (Image(png(64 * (1 + n.below(12)), 480), "image/png"),) if n.below(9) == 0 else ()
            view.append(Item(f"r{step}", ToolResult(f"c{step}", "read", (Text(output), *shot))))
        else:
            view.append(Item(f"a{step}", says(said)))
            view.append(Item(f"u{step}", user(passage(kind, 100 + n.below(1_500), 3_000 + step))))
        if step % 40 == 0:
            kept = next(at for at in range(len(view) - 8, len(view)) if view[at].entry.startswith("a"))
            view = [Item(f"s{step}", Summary(passage(kind, 3_000, step))), *view[kept:]]


def played(views: Iterator[Items], errors: Errors, *, window: int = 200_000) -> Estimator:
    """Prepare and count every request as a host does, learning from each; what was learned."""
    system = passage("prose", 6_000, 5)
    env = resolve("agent:a:x", SONNET, system, (), limits(window))
    estimator, books, scratch = Estimator(SONNET.ref), Accounting(), pipeline.Scratch()
    for n, view in enumerate(views):
        stage = pipeline.history(view, env, {}, scratch=scratch)
        prepared = pipeline.request(
            stage, Assembled(stage.items), env, decided={}, unseen=frozenset(), hooks=pipeline.HOOKS,
            estimator=estimator, scratch=scratch,
        )  # fmt: skip
        real = books.count(json.loads(prepared.body))
        errors.add(n, estimator, prepared.size, prepared.fixed_tokens, real)
        estimator = estimator.learn(prepared.size, prepared.fixed_tokens, real)
    return estimator
