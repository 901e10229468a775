import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.plugins.search.chunks import Piece
from perdure.plugins.search.embedding import HashedNgrams
from perdure.plugins.search.store import Store
from perdure.plugins.search.terms import asked, terms

TEXTS = (
    "The database listens on port 5432 in Frankfurt.",
    "My cat likes tuna.",
    "数据库的端口是5432，在法兰克福。",
    "東京の天気は晴れです。",
    "def parse_header(line: bytes) -> Header: ...",
    "서울의 날씨는 맑습니다.",
)


@pytest.fixture(params=["bit", "float"])
def store(tmp_path, request):
    made = Store(tmp_path / "store.sqlite", vectors=request.param, sync=False)
    yield made
    made.close()


def fill(store, scope="a", texts=TEXTS):
    for number, text in enumerate(texts):
        store.put(scope, "notes.md", [Piece(text, number + 1, number + 1)])


def found(store, scored, scope="a"):
    texts = {chunk.id: chunk.text for chunk in store.chunks(scope)}
    return [texts[id] for id, _ in scored]


@pytest.mark.parametrize(
    ("query", "at"),
    [
        ("which port has the database?", 0),
        ("CATS", 1),
        ("数据库", 2),
        ("端口", 2),
        ("福", 2),
        ("天気はどうですか", 3),
        ("天", 3),
        ("parse_header", 4),
        ("날씨", 5),
    ],
)
def test_words_of_every_script_are_found(store, query, at):
    fill(store)
    assert found(store, store.keyword("a", asked(query), 3))[0] == TEXTS[at]


@pytest.mark.parametrize(
    ("query", "at"),
    [("databases and ports", 0), ("数据库端口", 2), ("東京の天気", 3), ("parsing headers", 4)],
)
def test_vectors_find_what_is_spelt_alike(store, query, at):
    fill(store)
    assert found(store, store.nearest("a", query, 3))[0] == TEXTS[at]


@pytest.mark.parametrize(
    ("part", "at"), [("ATABAS", 0), ("法兰克福", 2), ("se_head", 4), ("気は", 3), ("猫", None)]
)
def test_parts_are_found_as_they_stand(store, part, at):
    fill(store)
    assert found(store, store.containing("a", [part], 3)) == ([] if at is None else [TEXTS[at]])


def test_a_chunk_comes_back_as_it_was_put(store):
    piece = Piece("text \ud800\0 日本", 3, 9, "untrusted", ("e1", "e 2"), 1_767_600_000_000)
    assert store.put("a", "web.md", [piece]) == 1
    (chunk,) = store.chunks("a")
    assert (chunk.text, chunk.start, chunk.end) == ("text \ufffd\0 日本", 3, 9)
    assert (chunk.trust, chunk.entries, chunk.at) == ("untrusted", ("e1", "e 2"), 1_767_600_000_000)
    assert (chunk.source, chunk.scope, chunk.superseded) == ("web.md", "a", False)


def test_putting_twice_changes_nothing(store):
    fill(store)
    before = store.chunks("a")
    fill(store)
    assert store.chunks("a") == before


def test_a_source_is_replaced_whole_with_its_stamp(store):
    fill(store)
    assert store.replace("a", "notes.md", [Piece("only this")], stamp="2") == 1
    assert [chunk.text for chunk in store.chunks("a")] == ["only this"]
    assert store.stamps("a") == {"notes.md": "2"}
    assert store.keyword("a", ["port"], 5) == store.containing("a", ["tuna"], 5) == []
    assert found(store, store.nearest("a", "this database", 5)) == ["only this"]


def test_no_scope_answers_for_another(store):
    fill(store, "a")
    fill(store, "b", ["The database of b has port 9."])
    for scored in (
        store.keyword("b", asked("database port cat"), 50),
        store.nearest("b", "database port cat", 50),
        store.containing("b", ["database", "tuna"], 50),
    ):
        assert found(store, scored, "b") == ["The database of b has port 9."]
    ids = [chunk.id for chunk in store.chunks("a")]
    assert store.remove("b", ids) == 0
    assert store.chunks("b", ids) == ()
    assert store.drop("a") == len(TEXTS)
    assert len(store.chunks("b")) == 1


def test_superseded_is_exactly_what_was_told_last(store):
    fill(store)
    first, second, *_ = (chunk.id for chunk in store.chunks("a"))
    for told in ([first], [second], [first, second], []):
        store.supersede("a", told)
        assert [chunk.id for chunk in store.chunks("a") if chunk.superseded] == told


class Counting(HashedNgrams):
    def __init__(self, id="hashed-ngrams-1", dimensions=256):
        self.id, self.dimensions, self.texts = id, dimensions, []

    def embed(self, texts):
        self.texts += texts
        return super().embed(texts)


def test_the_same_text_is_embedded_once(tmp_path):
    embedder = Counting()
    store = Store(tmp_path / "store.sqlite", embedder, sync=False)
    fill(store)
    fill(store, "b")
    store.replace("a", "other.md", [Piece(TEXTS[0])])
    assert sorted(embedder.texts) == sorted(TEXTS)
    store.close()


def test_another_embedder_makes_its_own_vectors_when_they_are_asked_for(tmp_path):
    path = tmp_path / "store.sqlite"
    store = Store(path, Counting(), sync=False)
    fill(store)
    store.close()
    other = Counting("other", 64)
    store = Store(path, other, sync=False)
    assert (other.texts, store.pending()) == ([], len(TEXTS))
    assert found(store, store.nearest("a", "parsing headers", 1)) == [TEXTS[4]]
    assert store.pending() == 0
    assert sorted(other.texts) == sorted((*TEXTS, "parsing headers"))
    store.close()
    back = Counting()
    store = Store(path, back, sync=False)
    assert found(store, store.nearest("a", "parsing headers", 1)) == [TEXTS[4]]
    assert back.texts == ["parsing headers"]  # the cache still had the others
    store.close()


def test_what_was_deleted_leaves_no_byte(store, tmp_path):
    fill(store, texts=[*TEXTS, "the codeword is zebracorn"])
    (id,) = (chunk.id for chunk in store.chunks("a") if "zebra" in chunk.text)
    vector = store.vectors([id])[id].tobytes()
    store.remove("a", [id])
    store.scrub()
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"atabas" in left
    assert not any(part in left for part in (b"zebracorn", b"zeb", b"codeword", vector))


def test_queries_of_any_kind_are_answered(store):
    fill(store)
    for query in (
        "",
        '"',
        "a OR b NEAR(c) *",
        "'; drop table chunk; --",
        "\0",
        "\ud800",
        "x" * 100_000,
        "猫犬" * 50_000,
    ):
        store.keyword("a", asked(query), 5)
        store.nearest("a", query, 5)
        store.containing("a", [query], 5)
    assert len(store.chunks("a")) == len(TEXTS)


words = st.sampled_from(["port", "cat", "数据库", "東京", "header", "5432"])
moves = st.lists(
    st.tuples(
        st.sampled_from(["replace", "put", "delete", "remove"]),
        st.sampled_from("pq"),
        st.lists(words, max_size=3),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(moves=moves)
def test_after_any_moves_the_indexes_hold_what_the_chunks_say(tmp_path_factory, moves):
    store = Store(tmp_path_factory.mktemp("s") / "store.sqlite", sync=False)
    try:
        for kind, source, said in moves:
            pieces = [Piece(text, line + 1, line + 1) for line, text in enumerate(said)]
            if kind == "delete":
                store.delete("a", source)
            elif kind == "remove":
                store.remove("a", [chunk.id for chunk in store.of_source("a", source)[:1]])
            else:
                getattr(store, kind)("a", source, pieces)
        chunks = store.chunks("a")
        for word in ("port", "cat", "数据库", "東京", "header", "5432"):
            right = {chunk.id for chunk in chunks if chunk.text == word}
            assert {id for id, _ in store.keyword("a", asked(word), 99)} == right
            assert {id for id, _ in store.containing("a", [word], 99)} == right
            assert {id for id, score in store.nearest("a", word, 99) if score > 0.9} == right
        assert set(store.vectors(chunk.id for chunk in chunks)) == {chunk.id for chunk in chunks}
    finally:
        store.close()


def test_the_default_vectors_are_the_same_everywhere():
    rows = HashedNgrams().embed(["The database listens on port 5432.", "数据库的端口", ""])
    assert np.allclose(np.linalg.norm(rows, axis=1), [1, 1, 0])
    assert hashlib.sha256(rows.tobytes()).hexdigest()[:16] == "7958c4acc72b83ed"


@given(st.text(alphabet="abAB12 _-.'\n", max_size=40))
def test_plain_text_has_the_terms_that_any_text_has(text):
    assert terms(f"{text} é")[:-1] == terms(text)
