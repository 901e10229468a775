"""What every table of `memory-vector` keeps to; LanceDB's where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_memories import Kept
from perdure.plugins.memories.vector.memory import VectorMemory
from perdure.plugins.memories.vector.sqlite_table import SqliteTable
from perdure.plugins.memories.vector.table import Row, VectorTable, id_of

BACKENDS = ["sqlite", "lancedb"]
HOSTILE = [
    "a'; drop table memories; --",
    '" or 1=1',
    "%",
    "*",
    "",
    "\ud800",
    "a\x00b",
    "main",
    "x" * 100_000,
    "mä in",
]


def opened(backend: str, folder: Path) -> VectorTable:
    if backend == "sqlite":
        return SqliteTable(folder / "vector.sqlite", sync=False)
    pytest.importorskip("lancedb", reason="the extra `lancedb` is not installed")
    from perdure.plugins.memories.vector.lance_table import LanceTable

    return LanceTable(folder / "lancedb")


@pytest.fixture(params=BACKENDS)
def open_table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], VectorTable]]:
    made: list[VectorTable] = []

    def open_() -> VectorTable:
        made.append(opened(request.param, tmp_path))
        return made[-1]

    yield open_
    for table in made:
        table.close()


def row(text: str, **more: object) -> Row:
    return Row(id_of(text), text, **more)  # type: ignore[arg-type]


def test_a_row_comes_back_as_it_was_put_after_reopening(open_table: Callable[[], VectorTable]) -> None:
    told = row("Ada's cat is grey", trust="owner", entries=("e1", "e2"), at=5)
    table = open_table()
    table.put("main", told)
    table.close()
    table = open_table()
    assert table.get("main", told.id) == told
    assert table.rows("main") == (told,)
    assert table.get("main", "m00") is None


def test_a_row_takes_the_place_of_its_id(open_table: Callable[[], VectorTable]) -> None:
    table = open_table()
    table.put("main", Row("m1", "green tea"))
    table.put("main", Row("m1", "black coffee", trust="owner"))
    assert [(one.text, one.trust) for one in table.rows("main")] == [("black coffee", "owner")]
    assert [hit.row.text for hit in table.nearest("main", "black coffee", 5)] == ["black coffee"]


def test_the_nearest_come_first_and_equal_ones_by_id(open_table: Callable[[], VectorTable]) -> None:
    table = open_table()
    for text in ("green tea in the morning", "green tea", "an old bicycle"):
        table.put("main", row(text))
    hits = table.nearest("main", "green tea", 2)
    assert [hit.row.text for hit in hits] == ["green tea", "green tea in the morning"]
    assert hits[0].score == pytest.approx(1.0, abs=1e-4)
    assert all(0 < hit.score <= 1 for hit in hits)
    assert table.nearest("main", "", 2) == ()
    [hit] = table.search("main", "green tea", 1, 0)
    assert "green tea" in hit.row.text


@pytest.mark.parametrize("agent", HOSTILE)
def test_any_agent_and_any_text_is_kept_apart(open_table: Callable[[], VectorTable], agent: str) -> None:
    table = open_table()
    table.put(agent, row("green tea"))
    table.put("other", row("green tea"))
    assert len(table.rows(agent)) == 1
    assert len(table.nearest(agent, "green tea", 9)) == 1
    assert table.remove(agent, (row("green tea").id, *HOSTILE)) == 1
    assert table.rows(agent) == ()
    assert len(table.rows("other")) == 1


@pytest.mark.parametrize("text", [text for text in HOSTILE if text])
def test_any_text_is_stored_and_asked_for(open_table: Callable[[], VectorTable], text: str) -> None:
    table = open_table()
    table.put("main", row(f"tea {text}"))
    [found] = table.rows("main")
    found.text.encode()
    table.nearest("main", text, 3)
    table.search("main", text, 3, 0)


def test_what_is_removed_is_in_no_byte(open_table: Callable[[], VectorTable], tmp_path: Path) -> None:
    table = open_table()
    told = row("Xanthippe likes olives")
    table.put("main", told)
    table.put("main", row("Ada likes tea"))
    assert table.remove("main", (told.id,)) == 1
    assert table.remove("main", (told.id,)) == 0
    assert not any(b"anthippe" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert len(table.rows("main")) == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["store", "recall", "forget", "replace"]), st.integers(0, 3)
    ),
    max_size=15,
)


@settings(max_examples=15)
@given(STEPS)
def test_no_agent_sees_or_changes_what_is_anothers(steps: list[tuple[str, str, int]]) -> None:
    with TemporaryDirectory() as folder:
        kept = Kept(VectorMemory, Path(folder), auto_recall=True)
        have: dict[str, set[str]] = {"a": set(), "b": set(), "c": set()}
        for agent, what, n in steps:
            session, text = f"agent:{agent}:cli:dm:x", f"canary{agent} likes number {n}"
            foreign = id_of(f"canary{'abc'[n % 3]} likes number {n}")
            if what == "store":
                told = kept.call("memory_store", session, text=text)
                have[agent].add(text)
            elif what == "recall":
                told = kept.call("memory_recall", session, query=f"canarya canaryb canaryc likes number {n}")
            elif what == "forget":
                told = kept.call("memory_forget", session, id=foreign)
                have[agent] = {one for one in have[agent] if id_of(one) != foreign}
            else:
                told = kept.call("memory_store", session, text=f"canary{agent} other", replaces=foreign)
                if not told.startswith("ERROR"):
                    have[agent] = {one for one in have[agent] if id_of(one) != foreign} | {
                        f"canary{agent} other"
                    }
            assert not any(f"canary{other}" in told for other in "abc" if other != agent)
        for agent, texts in have.items():
            session = f"agent:{agent}:cli:dm:x"
            for text in texts:
                found = kept.recall(text, session=session)
                assert text in {one.text for one in found}
                assert all(f"canary{agent}" in one.text for one in found)
        kept.close()
