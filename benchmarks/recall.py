"""What is found of a corpus of our own (`tests/data/retrieval`), with every retrieval stage on and off.

The corpus becomes the notes of a workspace: documents as paragraphs of the day they are from, each version
of a fact that changes as an item of its own day. `memory-core` indexes them and is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from perdure.plugins.memories.core.index import Index
from perdure.plugins.search.stages import NAMES, Found, Stages

CORPUS = Path(__file__).parents[1] / "tests" / "data" / "retrieval"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
MOST = 5
ALL = Stages(most=MOST)
APART = 7
"""Days between two versions of a fact."""
LANGUAGES = ("en", "zh", "ja", "code")


@dataclass(frozen=True, slots=True)
class Question:
    """`answers`: ids of documents that answer it; `past`: those that did once."""

    language: str
    text: str
    answers: frozenset[str]
    past: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Score:
    """Shares in percent. `wrong`: results per question that answer nothing; `newest`: questions about facts
    that change whose newest version stands before all older ones; `labelled`: older versions that were found
    and are told as past; `mislabelled`: newest versions that are.
    """

    recall: float
    by_language: dict[str, float]
    first: float
    wrong: float
    newest: float
    labelled: float
    mislabelled: float


@dataclass(slots=True)
class Corpus:
    """Notes as they are written, questions, and which document stands where."""

    questions: list[Question] = field(default_factory=list)
    days: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    places: dict[tuple[str, int], str] = field(default_factory=dict)

    def say(self, id: str, days_ago: int, text: str) -> None:
        day = (NOW - timedelta(days=days_ago)).strftime("%Y-%m-%d")
        self.days.setdefault(day, []).append((id, text))

    def write(self, workspace: Path) -> None:
        """The notes, a file a day."""
        (workspace / "memory").mkdir(parents=True)
        for day, said in sorted(self.days.items()):
            lines: list[str] = []
            for id, text in said:
                self.places[f"memory/{day}.md", len(lines) + 1] = id
                lines += [*text.split("\n"), ""]
            (workspace / "memory" / f"{day}.md").write_text("\n".join(lines), "utf-8")

    def ids(self, found: Iterable[Found]) -> list[str]:
        """The documents of results, best first."""
        return [self.places.get((each.chunk.source, each.chunk.start), "") for each in found]


def corpus(folder: Path = CORPUS) -> Corpus:
    """Read it."""
    made = Corpus()
    for line in _lines(folder / "documents.jsonl"):
        text = f"```\n{line['text']}\n```" if line["lang"] == "code" else line["text"]
        made.say(line["id"], line["days_ago"], text)
    for line in _lines(folder / "questions.jsonl"):
        made.questions.append(Question(line["lang"], line["query"], frozenset(line["answers"])))
    for number, line in enumerate(_lines(folder / "changing.jsonl")):
        ids = [f"f{number:02}.{at}" for at in range(len(line["versions"]))]
        for at, (id, text) in enumerate(zip(reversed(ids), reversed(line["versions"]), strict=True)):
            made.say(id, 1 + at * APART, f"- {text}")
        made.questions.append(Question(line["lang"], line["query"], frozenset(ids[-1:]), frozenset(ids[:-1])))
    return made


def _lines(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def score(made: Corpus, index: Index, workspace: Path, stages: Stages) -> Score:
    """Ask every question."""
    ranked = []
    for each in made.questions:
        found = index.found(workspace, each.text, stages, NOW_MS).found
        ranked.append((each, made.ids(found), found))
    hits: dict[str, list[float]] = {language: [] for language in LANGUAGES}
    for each, ids, _ in ranked:
        hits[each.language].append(len(each.answers.intersection(ids[:MOST])) / len(each.answers))
    changing = [one for one in ranked if one[0].past]
    past = [
        one.chunk.superseded
        for each, ids, found in changing
        for id, one in zip(ids, found, strict=True)
        if id in each.past
    ]
    new = [
        one.chunk.superseded
        for each, ids, found in changing
        for id, one in zip(ids, found, strict=True)
        if id in each.answers
    ]
    return Score(
        _share(hit for each in hits.values() for hit in each),
        {language: _share(each) for language, each in hits.items()},
        _share(bool(ids) and ids[0] in each.answers for each, ids, _ in ranked),
        fmean(sum(id not in each.answers | each.past for id in ids[:MOST]) for each, ids, _ in ranked),
        _share(_newest_first(each, ids[:MOST]) for each, ids, _ in changing),
        _share(past) if past else 100.0,
        _share(new),
    )


def _newest_first(each: Question, ids: list[str]) -> bool:
    return next((id in each.answers for id in ids if id in each.answers | each.past), False)


def _share(hits: Iterable[float]) -> float:
    values = [100.0 * hit for hit in hits]
    return fmean(values) if values else 0.0


def variants() -> Iterator[tuple[str, Stages]]:
    """All stages, all but one, and what is left if several are off."""
    yield "all stages", ALL
    for name in NAMES:
        yield f"without {name}", replace(ALL, **{name: False})
    later = dict.fromkeys(("fusion", "relevance", "decay", "diversity", "rerank"), False)
    yield "keyword alone", replace(ALL, expansion=False, vector=False, **later)
    yield "vector alone", replace(ALL, expansion=False, keyword=False, **later)


def ablation(folder: Path) -> list[tuple[str, Score]]:
    """The score of each variant, on one index that is made in `folder`."""
    made, workspace = corpus(), folder / "workspace"
    made.write(workspace)
    index = Index(folder / "index.sqlite", vectors="bit", virtual=True)
    try:
        index.sync(workspace, NOW_MS)
        return [(name, score(made, index, workspace, stages)) for name, stages in variants()]
    finally:
        index.close()
