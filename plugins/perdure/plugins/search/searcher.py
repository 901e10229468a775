"""`Searcher`: runs the nine stages over one scope of a store, and tells what each gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perdure.plugins.search import expansion
from perdure.plugins.search.embedding import EmbeddingFailed
from perdure.plugins.search.lookup import Scored
from perdure.plugins.search.stages import (
    Asked,
    Found,
    Stages,
    covered,
    decayed,
    diverse,
    fuse,
    limited,
    ordered,
    relevant,
    reranked,
    terms_of,
)
from perdure.plugins.search.store import Chunk, Store
from perdure.plugins.search.terms import asked
from perdure.records import Record

LONGEST = 2_000
"""Characters of a query that count; what follows a question so long is material, not the question."""
_SPECIAL = re.compile(r"[^\s\"'`,;()\[\]{}<>]*[_./:@#\\-][^\s\"'`,;()\[\]{}<>]*")


class Answer(Record):
    """`found`, best first; `candidates`: how many there were before the first stage that drops some;
    `dropped`: how many each stage took away; `trouble`: why a stage could not run ("": all did).
    """

    found: tuple[Found, ...]
    candidates: int = 0
    dropped: tuple[tuple[str, int], ...] = ()
    trouble: str = ""


def never(_: Chunk) -> bool:
    """No chunk is evergreen."""
    return False


class Searcher:
    """Searches `store`. `alike`: synonyms by term (`expansion.groups`)."""

    def __init__(self, store: Store, alike: Mapping[str, frozenset[str]] | None = None) -> None:
        self.store = store
        self._alike = alike if alike is not None else expansion.groups()

    def search(
        self,
        scope: str,
        query: str,
        stages: Stages,
        now_ms: int,
        evergreen: Callable[[Chunk], bool] = never,
    ) -> Answer:
        """What bears on `query`. Blocks; raises `StorageFailed`, `DamagedStore`.

        A vector that can't be made (the embedder failed) costs its stage only.
        """
        question = self._asked(query, stages)
        lists, trouble = self._lists(scope, question, stages)
        fused = fuse(lists, k=stages.k, by_rank=stages.fusion)
        cosines = dict(lists["vector"][1]) if "vector" in lists else {}
        best = sorted(fused, key=lambda id: (-fused[id][0], id))[: stages.candidates]
        found = ordered(
            self._found(chunk, question, fused[chunk.id], cosines.get(chunk.id, 0.0), stages)
            for chunk in self.store.chunks(scope, best)
        )
        return self._narrowed(found, question, stages, now_ms, evergreen, trouble)

    def _asked(self, query: str, stages: Stages) -> Asked:
        text = query[:LONGEST]
        own = tuple(asked(text))
        counts = self.store.counts(own)
        more: Mapping[str, str] = {}
        if stages.expansion:
            more = expansion.expanded(own, self._alike, self._forms(own, counts))
        return Asked(text, own, self.store.weights(own, counts), counts, more)

    def _forms(self, own: tuple[str, ...], counts: Mapping[str, int]) -> dict[str, list[str]]:
        lacking = [term for term in own if term not in counts and expansion.has_forms(term)][:16]
        return {
            term: expansion.forms(term, self.store.beginning(term[: expansion.PREFIX])) for term in lacking
        }

    def _lists(
        self, scope: str, question: Asked, stages: Stages
    ) -> tuple[dict[str, tuple[float, Scored]], str]:
        lists: dict[str, tuple[float, Scored]] = {}
        trouble = ""
        if stages.keyword:
            lists["keyword"] = (
                1.0,
                self.store.keyword(scope, question.terms, stages.candidates, question.counts),
            )
            if parts := _parts(question.text):
                lists["part"] = (1.0, self.store.containing(scope, parts, stages.candidates))
            if question.more:
                scored = self.store.keyword(scope, tuple(question.more), stages.candidates)
                lists["expansion"] = (stages.expanded, scored)
        if stages.vector:
            try:
                lists["vector"] = (1.0, self.store.nearest(scope, question.text, stages.candidates))
            except EmbeddingFailed as error:
                trouble = str(error)
        return lists, trouble

    def _found(
        self, chunk: Chunk, question: Asked, fused: tuple[float, str], cosine: float, stages: Stages
    ) -> Found:
        held = terms_of(chunk.searched())
        share = covered(question, held)
        bears = share
        if stages.vector:
            alike = max(0.0, cosine)
            bears = max(0.6 * alike, 0.6 * share + 0.4 * alike) if stages.keyword else alike
        score, told = fused
        return Found(chunk, score, round(bears, 6), cosine, held, why=(("fusion", told),))

    def _narrowed(
        self,
        found: tuple[Found, ...],
        question: Asked,
        stages: Stages,
        now_ms: int,
        evergreen: Callable[[Chunk], bool],
        trouble: str,
    ) -> Answer:
        dropped: list[tuple[str, int]] = []
        candidates = len(found)

        def note(stage: str, kept: tuple[Found, ...]) -> tuple[Found, ...]:
            dropped.append((stage, len(found) - len(kept)))
            return kept

        if stages.relevance:
            found = note("relevance", relevant(found, stages))
        if stages.decay:
            found = decayed(found, stages, now_ms, evergreen)
        if stages.diversity:
            found = note("diversity", diverse(found, stages, max(2 * stages.most, 10)))
        if stages.rerank:
            found = reranked(found, question, stages)
        if stages.limit:
            found = note("limit", limited(found, most=stages.most, chars=stages.chars))
        return Answer(found, candidates, tuple(dropped), trouble)


def _parts(text: str) -> list[str]:
    """What a query names as it is spelt: paths, identifiers, addresses; a quoted text."""
    quoted = re.findall(r"[\"“「『`]([^\"”」』`\n]{2,80})[\"”」』`]", text)
    special = [part.strip("-.:/#\\") for part in _SPECIAL.findall(text)]
    return list(dict.fromkeys(part for part in (*quoted, *special) if len(part) >= 3))[:8]
