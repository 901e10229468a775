import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.embedding import EmbeddingFailed, HashedNgrams
from perdure.plugins.search.expansion import expanded, forms, groups
from perdure.plugins.search.searcher import Searcher
from perdure.plugins.search.stages import (
    NAMES,
    Found,
    Stages,
    decayed,
    diverse,
    fuse,
    limited,
    ordered,
    relevant,
    terms_of,
)
from perdure.plugins.search.store import Chunk, Store

DAY = 86_400_000
NOW = 1_767_600_000_000


def found(id, score, text="text", *, at=0, superseded=False, bears=1.0):
    chunk = Chunk(id, "s", f"{id:03}.md", text, 1, 1, text, at=at, superseded=superseded)
    return Found(chunk, score, bears, terms=terms_of(text))


def ids(results):
    return [each.chunk.id for each in results]


def test_what_two_lists_find_stands_before_what_one_does():
    fused = fuse({"a": (1.0, [(1, 9.0), (2, 8.0)]), "b": (1.0, [(3, 0.9), (2, 0.8)])}, k=60, by_rank=True)
    assert max(fused, key=lambda id: fused[id][0]) == 2
    assert fused[2][1] == "a #2, b #2"
    assert all(0 < score <= 1 for score, _ in fused.values())


def test_the_best_in_every_list_has_the_whole_score():
    for by_rank in (True, False):
        assert fuse({"a": (1.0, [(1, 3.0)]), "b": (1.0, [(1, 0.2)])}, k=60, by_rank=by_rank)[1][0] == 1.0
    assert fuse({}, k=60, by_rank=True) == {}


def test_a_list_of_half_the_weight_counts_half():
    fused = fuse({"a": (1.0, [(1, 1.0)]), "b": (0.5, [(2, 1.0)])}, k=60, by_rank=True)
    assert fused[1][0] == pytest.approx(2 * fused[2][0], rel=1e-4)


def test_age_costs_half_each_half_life_down_to_a_floor():
    stages = Stages(half_life_days=10, floor=0.2)
    several = [found(n, 1.0, at=NOW - days * DAY) for n, days in enumerate((0, 10, 20, 100))]
    told = decayed([*several, found(9, 1.0)], stages, NOW, lambda chunk: False)
    assert {each.chunk.id: round(each.score, 3) for each in told} == {0: 1, 1: 0.5, 2: 0.25, 3: 0.2, 9: 1}
    assert decayed(several[3:], stages, NOW, lambda chunk: True)[0].score == 1


def test_what_is_superseded_stands_behind_what_is_not():
    told = decayed([found(1, 1.0, superseded=True), found(2, 0.6)], Stages(), NOW, lambda chunk: False)
    assert ids(told) == [2, 1]
    assert told[1].why == (("decay", "evergreen, superseded: x 0.50"),)


def test_what_says_the_same_comes_once_and_what_is_alike_comes_later():
    same, like, other = "the cat sat on the mat", "the cat sat on a mat today", "a dog ran"
    several = [found(1, 1.0, same), found(2, 0.99, same), found(3, 0.95, like), found(4, 0.8, other)]
    assert ids(diverse(several, Stages(), 10)) == [1, 4, 3]


def test_limits_hold_and_a_result_too_long_is_passed_over():
    several = [found(1, 1.0, "x" * 50), found(2, 0.9, "y" * 60), found(3, 0.8, "z" * 40)]
    assert ids(limited(several, most=3, chars=100)) == [1, 3]
    assert ids(limited(several, most=1, chars=1_000)) == [1]
    assert ids(relevant([found(1, 1, bears=0.1), found(2, 1, bears=0.2)], Stages())) == [2]


results = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["a b", "a b c", "d", "e f"]), st.integers(0, 90), st.booleans()
    ),
    max_size=12,
).map(
    lambda rows: ordered(
        found(n, s, t, at=NOW - d * DAY, superseded=p) for n, (s, t, d, p) in enumerate(rows)
    )
)


@given(results)
def test_no_stage_adds_or_doubles_a_result_or_leaves_the_range(several):
    told = decayed(several, Stages(), NOW, lambda chunk: False)
    assert sorted(ids(told)) == sorted(ids(several))
    assert all(
        0 <= each.score <= before.score
        for each, before in zip(
            sorted(told, key=lambda f: f.chunk.id), sorted(several, key=lambda f: f.chunk.id), strict=True
        )
    )
    kept = diverse(told, Stages(), 5)
    assert len(set(ids(kept))) == len(kept) <= 5
    assert set(ids(kept)) <= set(ids(several))
    assert all(each.score >= 0 for each in kept)


def test_expansion_knows_forms_misspellings_and_synonyms():
    known = ["deploy", "deployment", "deputy", "memory", "mem", "thumbnailer"]
    assert forms("deployments", known)[0] == "deployment"
    assert forms("memroy", known) == ["memory"]
    assert "deputy" not in forms("deploying", known)
    assert expanded(["phon"], groups(["phone mobile"]), {}) == {"mobil": "phon"}


@pytest.fixture
def searcher(tmp_path):
    store = Store(tmp_path / "store.sqlite", sync=False)
    store.put("s", "a.md", [Piece("The database port is 5432.", 1, 1), Piece("My cat likes tuna.", 2, 2)])
    store.put("other", "a.md", [Piece("The database port of another scope.", 1, 1)])
    yield Searcher(store)
    store.close()


def test_each_result_tells_what_each_stage_gave(searcher):
    (best,) = searcher.search("s", "Which port has the database?", Stages(), NOW).found
    assert [stage for stage, _ in best.why] == ["fusion", "decay", "diversity", "rerank"]
    assert best.why[0] == ("fusion", "keyword #1, vector #1")


@pytest.mark.parametrize("off", [(name,) for name in NAMES] + [NAMES, ("keyword", "vector")])
def test_with_any_stage_off_a_search_still_works(searcher, off):
    from msgspec.structs import replace

    answer = searcher.search("s", "database port", replace(Stages(), **dict.fromkeys(off, False)), NOW)
    assert {each.chunk.scope for each in answer.found} == (
        set() if {"keyword", "vector"} <= {*off} else {"s"}
    )


def test_an_embedder_that_fails_costs_its_stage_only(searcher):
    class Failing(HashedNgrams):
        def embed(self, texts):
            raise EmbeddingFailed("no model here")

    searcher.store.embedder = Failing()
    answer = searcher.search("s", "database port", Stages(), NOW)
    assert answer.trouble == "no model here"
    assert answer.found[0].chunk.text == "The database port is 5432."
