"""What the engine keeps when not everything fits."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from perdure_keyword_engine import KeywordEngine
from perdure_keyword_engine.words import words

from perdure.errors import ConfigError
from perdure.records import Assistant, Item, Text, User
from perdure.testing.lending import FakeRuntime, engine_context


def sent(runtime: FakeRuntime, question: str, budget: int) -> str:
    said = ["the boat is of oak", *(f"about shelf {n}" for n in range(60)), question]
    view = tuple(
        item
        for n, text in enumerate(said)
        for item in (Item(f"u{n}", User((Text(text),))), Item(f"a{n}", Assistant((Text("noted"),))))
    )
    context = engine_context(runtime, budget=budget, prompt=question)
    answer = anyio.run(KeywordEngine(runtime).assemble, context, view)
    return " ".join(block.text for item in answer.messages for block in item.message.content)


def test_an_old_turn_stays_when_the_question_is_about_it(tmp_path: Path) -> None:
    kept = sent(FakeRuntime(tmp_path, {"newest": 2}), "which wood is the boat of?", 100)
    assert "oak" in kept
    assert "shelf 30" not in kept


def test_everything_stays_while_it_fits(tmp_path: Path) -> None:
    assert "shelf 30" in sent(FakeRuntime(tmp_path), "anything?", 100_000)


def test_a_wrong_setting_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"plugins\.config\.keyword\.newst: unknown key"):
        KeywordEngine(FakeRuntime(tmp_path, {"newst": 2}))


def test_japanese_is_cut_into_pairs() -> None:
    assert "水曜" in words("会議は水曜日です")
