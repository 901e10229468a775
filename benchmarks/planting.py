"""Facts planted early in a session, and the questions for them at its end: what can still be answered?

A fact counts as shown where its exact words are in the request that asks for it, and as kept where the tool
`recall` can still read them. No question holds its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from perdure.replay.steps import (
    DEFAULT_SESSION,
    Call,
    ExpectStep,
    Generate,
    Header,
    ModelStep,
    Scenario,
    Step,
    ToolStep,
    UserStep,
)


class Fact(NamedTuple):
    """What is said, what is asked, and the words that would answer it."""

    said: str
    asked: str
    answer: str


FACTS = (
    Fact(
        "The vault code of the archive is KESTREL-4711.",
        "What is the vault code of the archive?",
        "KESTREL-47",
    ),
    Fact("My sister Ilse is allergic to cashews.", "Which nuts is my sister Ilse allergic to?", "cashews"),
    Fact("The staging database listens on port 54329.", "Which port has the staging database?", "54329"),
    Fact("仓库的门禁密码是八六二零。", "仓库的门禁密码是多少？", "八六二零"),
    Fact("会議室の鍵は青い箱の中にあります。", "会議室の鍵はどこにありますか？", "青い箱"),
    Fact("We ship release Quokka on the 14th of March.", "When do we ship release Quokka?", "14th of March"),
    Fact("창고 열쇠는 김민수 씨가 가지고 있습니다.", "창고 열쇠는 누가 가지고 있습니까?", "김민수"),
    Fact("Invoices are rounded by half_even_cents().", "Which function rounds invoices?", "half_even_cents"),
    Fact(
        "The printer on floor three is named Bartleby.",
        "How is the printer on floor three named?",
        "Bartleby",
    ),
    Fact("我们决定用蓝色作为产品的主色。", "产品的主色是什么？", "蓝色"),
)
ELSEWHERE = (
    Fact("Remember that Okonkwo services the boiler.", "Who serviced the boiler last?", "Okonkwo"),
    Fact("From now on reports are due on Tuesdays.", "On which day are reports due?", "Tuesdays"),
    Fact("请记住，备用钥匙放在花盆下面。", "备用钥匙放在哪里？", "花盆"),
)
OTHER = "agent:main:cli:dm:other"
"""Another session of the same agent."""


def planted(scenario: Scenario) -> Scenario:
    """The scenario with facts told before its first step and asked behind its last."""
    end = max((step.at for step in scenario.steps if getattr(step, "at", None)), default=0.0)
    steps = (
        *(step for fact in ELSEWHERE for step in _told(fact, OTHER)),
        *(step for fact in FACTS for step in _told(fact, DEFAULT_SESSION)),
        *scenario.steps,
        *(step for fact in (*FACTS, *ELSEWHERE) for step in _asked(fact, end)),
    )
    return replace(scenario, steps=steps)


def _told(fact: Fact, session: str) -> Iterator[Step]:
    yield UserStep(text=fact.said, when="rest", session=session)
    yield ModelStep(text="Noted.", session=session)


def _asked(fact: Fact, at: float) -> Iterator[Step]:
    yield UserStep(text=fact.asked, when="rest", at=at)
    yield ModelStep(text="Let me see.")
    yield ExpectStep(session=DEFAULT_SESSION, visible=fact.answer)
    yield ExpectStep(session=DEFAULT_SESSION, findable=fact.answer)


class Answers(NamedTuple):
    """Of the facts told in the session: shown, kept; of those told in another one: shown."""

    shown: int
    kept: int
    elsewhere: int


def answers(failures: list[str]) -> Answers:
    """Read from what a replay's expectations missed."""
    lost = {(fact, what) for fact in (*FACTS, *ELSEWHERE) for line in failures if (what := _what(line, fact))}
    shown = sum((fact, "shown") not in lost for fact in FACTS)
    kept = sum((fact, "kept") not in lost for fact in FACTS)
    return Answers(shown, kept, sum((fact, "shown") not in lost for fact in ELSEWHERE))


def _what(line: str, fact: Fact) -> str:
    if repr(fact.answer) not in line:
        return ""
    return "kept" if "by recall" in line else "shown"


def synthetic(turns: int, window: int, result: int = 6_000) -> Scenario:
    """A session of many windows: each turn reads something long and tells of it."""
    kinds: tuple[Any, ...] = ("log", "code", "prose", "json", "cjk")
    steps: list[Step] = []
    for n in range(turns):
        kind = kinds[n % len(kinds)]
        steps += [
            UserStep(text=f"Read part {n} of the {kind} and tell me about it.", at=60.0 * n, when="rest"),
            ModelStep(calls=(Call(name="look", id=f"call_{n}"),)),
            ToolStep(id=f"call_{n}", generate=Generate(kind=kind, chars=result, seed=n)),
            ModelStep(generate=Generate(kind="prose", chars=600, seed=n)),
        ]
    return Scenario(
        Header(name="synthetic", window=window, model="anthropic/claude-sonnet-4-5"), tuple(steps)
    )
