"""The nine stages of a retrieval, in their order, each of which can be switched off.

| stage | what it does | off: |
| expansion | adds inflections and synonyms of the query's terms, at half weight | the terms alone |
| keyword | chunks by terms (BM25), and parts of the text for what is no word of the index | none |
| vector | chunks by the cosine of their vectors | none |
| fusion | one order from all lists: reciprocal ranks, weight / (k + rank) | the best single score |
| relevance | drops what bears too little on the query | all stay |
| decay | halves the score with each half-life, down to `floor`; what is superseded counts half | no clock |
| diversity | MMR: what says the same as a better one comes later, and equal texts once | all stay |
| rerank | orders the best by what the whole text says: coverage, neighbourhood, cosine | fused order |
| limit | so many results, so many characters | all candidates |

The stages after `vector` are pure functions of what was found. Equal scores are ordered by source and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.plugins.search.terms import terms
from perdure.records import Record

if TYPE_CHECKING:
    from perdure.plugins.search.lookup import Scored
    from perdure.plugins.search.store import Chunk


class Stages(Record):
    """Which stages run, and with which numbers (the retrieval stages and numbers are NullClaw's, fusion with
    k = 60, a half-life of 30 days, λ = 0.7; the smallest relevance and the weights were measured here).
    """

    expansion: bool = True
    keyword: bool = True
    vector: bool = True
    fusion: bool = True
    relevance: bool = True
    decay: bool = True
    diversity: bool = True
    rerank: bool = True
    limit: bool = True
    candidates: int = 32
    k: int = 60
    expanded: float = 0.5
    least: float = 0.15
    half_life_days: float = 30.0
    floor: float = 0.7
    superseded: float = 0.5
    balance: float = 0.7
    most: int = 6
    chars: int = 16_000


STANDS_FOR = 0.7
"""What another form of a term, or a synonym, counts for."""
NAMES = ("expansion", "keyword", "vector", "fusion", "relevance", "decay", "diversity", "rerank", "limit")


class Found(Record):
    """A candidate. `score` is what it is ordered by, 0 … 1; `bears`: how much it bears on the query, whatever
    its age; `why`: what each stage gave or took, in order.
    """

    chunk: Chunk
    score: float = 0.0
    bears: float = 0.0
    cosine: float = 0.0
    terms: frozenset[str] = frozenset()
    factor: float = 1.0
    why: tuple[tuple[str, str], ...] = ()

    def told(self, stage: str, what: str, **changes: object) -> Found:
        """The same with one more reason."""
        return replace(self, why=(*self.why, (stage, what)), **changes)


class Asked(Record):
    """A query, taken apart. `weights`: how much each term tells; `more`: what expansion added, each with the
    term that it stands for; `counts`: how many chunks hold each of the terms.
    """

    text: str
    terms: tuple[str, ...]
    weights: Mapping[str, float]
    counts: Mapping[str, int]
    more: Mapping[str, str] = {}


def fuse(lists: Mapping[str, tuple[float, Scored]], *, k: int, by_rank: bool) -> dict[int, tuple[float, str]]:
    """Ids with their fused score in 0 … 1 and what it is made of. `lists`: name → weight and what was found.

    Without ranks the best score counts, each list's own taken relative to its best.
    """
    whole = sum(weight for weight, _ in lists.values()) / (k + 1)
    parts: dict[int, list[tuple[str, float]]] = {}
    for name, (weight, scored) in lists.items():
        top = max((score for _, score in scored), default=0.0)
        for rank, (id, score) in enumerate(scored, 1):
            part = weight / (k + rank) / whole if by_rank else weight * score / (top or 1.0)
            parts.setdefault(id, []).append((f"{name} #{rank}", part))
    join: Callable[[Iterable[float]], float] = sum if by_rank else max
    return {
        id: (round(join(part for _, part in told), 6), ", ".join(place for place, _ in told))
        for id, told in parts.items()
    }


def covered(asked: Asked, held: frozenset[str]) -> float:
    """Which part of the query a text holds, by the weights of its terms; one that only another stands for
    counts less.
    """
    meant = {asked.more[term] for term in asked.more if term in held}
    whole = part = 0.0
    for term in asked.terms:
        weight = asked.weights[term]
        whole += weight
        part += weight if term in held else weight * STANDS_FOR if term in meant else 0.0
    return part / whole if whole else 0.0


def relevant(found: Sequence[Found], stages: Stages) -> tuple[Found, ...]:
    """Without what bears less on the query than `least`."""
    return tuple(each for each in found if each.bears >= stages.least)


def decayed(
    found: Sequence[Found], stages: Stages, now_ms: int, evergreen: Callable[[Chunk], bool]
) -> tuple[Found, ...]:
    """Scores by age. What is evergreen, or of unknown age, keeps its own."""
    return ordered(_aged(each, stages, now_ms, evergreen(each.chunk)) for each in found)


def _aged(found: Found, stages: Stages, now_ms: int, evergreen: bool) -> Found:
    days = max(0, now_ms - found.chunk.at) / 86_400_000 if found.chunk.at and not evergreen else 0.0
    factor = max(stages.floor, float(0.5 ** (days / stages.half_life_days)))
    told = f"{days:.0f} days" if days else "evergreen"
    if found.chunk.superseded:
        factor, told = factor * stages.superseded, f"{told}, superseded"
    factor = round(factor, 6)
    return found.told("decay", f"{told}: x {factor:.2f}", score=found.score * factor, factor=factor)


def diverse(found: Sequence[Found], stages: Stages, most: int) -> tuple[Found, ...]:
    """The best `most` by maximal marginal relevance: score against likeness (Jaccard of terms) to one chosen.

    What is like a better one keeps that much less of its score. Equal texts count once: the first of them.
    """
    first: dict[str, Found] = {}
    for each in found:
        first.setdefault(each.chunk.hash, each)
    left, chosen = list(first.values()), list[Found]()
    like = dict.fromkeys(first, 0.0)
    while left and len(chosen) < most:
        best = max(left, key=lambda each: _kept(like[each.chunk.hash], stages) * each.score)
        left.remove(best)
        chosen.append(_marked(best, like[best.chunk.hash], stages))
        for each in left:
            like[each.chunk.hash] = max(like[each.chunk.hash], _jaccard(each.terms, best.terms))
    return tuple(chosen)


def _kept(like: float, stages: Stages) -> float:
    """MMR in proportion, so that it means the same for every size of scores: at λ = 0.7 a text that says
    the same words as a better one keeps 0.57 of its score.
    """
    return 1 - (1 - stages.balance) / stages.balance * like


def _marked(found: Found, like: float, stages: Stages) -> Found:
    kept = round(_kept(like, stages), 6)
    told = f"likeness {like:.2f}: x {kept:.2f}"
    return found.told("diversity", told, score=found.score * kept, factor=found.factor * kept)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0


def reranked(found: Sequence[Found], asked: Asked, stages: Stages) -> tuple[Found, ...]:
    """By what the whole text says: how much it bears on the query, and how many neighbours in the query are
    neighbours in it.
    """
    return ordered(_reread(each, asked) for each in found)


def _reread(found: Found, asked: Asked) -> Found:
    near = _neighbours(asked.terms, found.chunk.searched())
    score = (0.85 * found.bears + 0.15 * near) * found.factor
    return found.told("rerank", f"bears {found.bears:.2f}, near {near:.2f}", score=round(score, 6))


def _neighbours(asked: Sequence[str], text: str) -> float:
    pairs = set(pairwise(asked))
    return len(pairs & _pairs_of(text)) / len(pairs) if pairs else 0.0


@lru_cache(maxsize=500)
def terms_of(text: str) -> frozenset[str]:
    """The different terms of a text; of those seen last they are kept."""
    return frozenset(terms(text))


@lru_cache(maxsize=500)
def _pairs_of(text: str) -> frozenset[tuple[str, str]]:
    return frozenset(pairwise(terms(text)))


def limited(found: Sequence[Found], *, most: int, chars: int) -> tuple[Found, ...]:
    """The first `most` of together at most `chars` characters; one that has no room is left out."""
    kept: list[Found] = []
    for each in found[:most]:
        if len(each.chunk.text) <= chars:
            kept.append(each)
            chars -= len(each.chunk.text)
    return tuple(kept)


def ordered(found: Iterable[Found]) -> tuple[Found, ...]:
    """Best first; equal ones by source and line."""
    return tuple(sorted(found, key=_place))


def _place(found: Found) -> tuple[float, str, int, int]:
    return (-found.score, found.chunk.source, found.chunk.start, found.chunk.id)
