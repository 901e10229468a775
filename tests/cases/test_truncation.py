"""Reported faults of truncation, each with the right outcome."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import blown_up, case
from helpers_files import FakeGrant
from helpers_host import KEY, Play, ask, entries, hosted, session_path, virtual
from helpers_sessions import line
from perdure.edges import segments
from perdure.edges.models.reply import say
from perdure.edges.session import branching, rewrite
from perdure.edges.session.files import Held, SessionFiles
from perdure.edges.session.load import load
from perdure.edges.session.rewrite import Truncated
from perdure.edges.session.tail import open_session
from perdure.errors import SegmentGone
from perdure.kernel.virtual import VirtualClock
from perdure.records import Item, Summary

NOW = 1_790_000_000_000
_ids = itertools.count()


def given(tmp_path: Path, rows: list[dict[str, Any]]) -> Held:
    """The case's session, in our hands."""
    files = SessionFiles(tmp_path, FakeGrant(), sync=False)
    path = files.path(KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line(blown_up(row)) + b"\n" for row in rows))
    return files.open(KEY, NOW)


def truncated(held: Held) -> Truncated:
    done = rewrite.truncate(held.file, lambda: f"new{next(_ids)}", NOW, sync=False)
    held.opened = open_session(held.file.path)
    return done


def texts(items: tuple[Item, ...]) -> list[str]:
    found = []
    for item in items:
        message = item.message
        content = () if isinstance(message, Summary) else getattr(message, "content", ())
        found.append(message.summary if isinstance(message, Summary) else "".join(b.text for b in content))
    return found


def test_tr01_what_a_sibling_branch_shows_stays_and_its_label_can_be_switched_to(tmp_path: Path) -> None:
    held = given(tmp_path, case("TR01")["input"]["entries"])
    path = held.file.path
    before = path.read_bytes()
    views = load(path).opened("e6").items, load(path).opened("b2").items
    assert truncated(held).reason.startswith("all that is covered is needed still")
    assert path.read_bytes() == before
    assert (load(path).opened("e6").items, load(path).opened("b2").items) == views
    assert branching.switch(held, "keep-me", NOW).leaf == "b2"
    assert open_session(path).items == views[1]
    assert texts(views[1]) == ["u1", "a1", "side try", "side answer"]


def test_tr02_rewinding_to_between_two_compactions_shows_the_older_summary_and_all_it_kept(
    tmp_path: Path,
) -> None:
    held = given(tmp_path, case("TR02")["input"]["entries"])
    path = held.file.path
    before = load(path).opened("e7").items
    assert truncated(held).done
    assert load(path).opened("e7").items == before
    assert branching.switch(held, "e7", NOW).done
    assert open_session(path).items == before
    assert texts(before) == ["S1 facts", "c", "d", "e", "f"]


def test_tr02_only_a_discarded_segment_refuses_the_rewind_and_says_so(tmp_path: Path) -> None:
    held = given(tmp_path, case("TR02")["input"]["entries"])
    truncated(held)
    for segment in segments.segments_of(held.file.path):
        segments.discard(held.file.path, segment.name)
    with pytest.raises(SegmentGone, match="segment"):
        branching.switch(held, "e7", NOW)


def test_tr05_a_heartbeat_that_said_nothing_is_left_out_of_requests_and_stays_in_the_file(
    tmp_path: Path,
) -> None:
    assert case("TR05")["input"]["events"][-1] == "prune to s0"

    async def main(clock: VirtualClock) -> None:
        play = Play(say("hello"), say("HEARTBEAT_OK"))
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "hi")
            await ask(host, "If nothing is due, reply HEARTBEAT_OK.", kind="internal_system")
            size = session_path(tmp_path).stat().st_size
            await ask(host, "u9")
            assert session_path(tmp_path).stat().st_size > size  # no shrinking in place
            assert "HEARTBEAT_OK" not in play.bodies[KEY][-1].decode()

    virtual(main)
    rows = [row for row in entries(session_path(tmp_path)) if row["type"] == "message"]
    by_id = {row["id"] for row in rows}
    assert all(row["parentId"] in by_id for row in rows[1:])  # nothing dangles
    assert [row["message"]["role"] for row in rows] == ["user", "assistant"] * 3


def test_tr06_a_call_moves_with_its_result_and_what_follows_is_linked_to_what_stays(tmp_path: Path) -> None:
    held = given(tmp_path, case("TR06")["input"]["entries"])
    path = held.file.path
    before = {id: load(path).opened(id).items for id in ("e1", "m0", "e2", "e3", "e4", "e5", "e6", "e7")}
    assert truncated(held).moved == 3
    found = load(path)
    parents = {node.id: node.parent for node in found.nodes}
    assert (parents["m0"], parents["e4"]) == (None, "m0")
    assert texts(found.opened().items) == ["S1", "b", "c", "d"]
    assert [segments.find_entry(path, id) is not None for id in ("e1", "e2", "e3")] == [True] * 3
    assert {id: found.opened(id).items for id in before} == before


def test_tr07_a_view_is_the_same_after_one_truncation_and_after_two(tmp_path: Path) -> None:
    rows = case("TR07")["input"]["entries"]
    held = given(tmp_path, [row for row in rows if row["id"] not in ("b1", "b2", "lb")])
    path = held.file.path
    first = open_session(path).items
    assert truncated(held).moved == 2
    second = open_session(path).items
    after = path.read_bytes()
    assert not truncated(held).done
    assert first == second == open_session(path).items
    assert path.read_bytes() == after
    assert after.startswith(line(rows[0]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows[:8], "no compaction entry found"),
        (lambda rows: [*rows[:8], rows[8] | {"firstKeptEntryId": "lost"}, *rows[9:]], "not before it"),
    ],
)
def test_tr07_without_a_compaction_or_its_anchor_nothing_is_touched(
    tmp_path: Path, change: Any, reason: str
) -> None:
    rows = case("TR07")["input"]["entries"]
    assert rows[8]["type"] == "compaction"
    held = given(tmp_path, change(rows))
    before, shown = held.file.path.read_bytes(), open_session(held.file.path).items
    assert reason in truncated(held).reason
    assert held.file.path.read_bytes() == before
    assert open_session(held.file.path).items == shown != ()


def test_tr07_a_compaction_as_the_last_entry_keeps_its_view(tmp_path: Path) -> None:
    rows = case("TR07")["input"]["entries"]
    held = given(tmp_path, [row for row in rows[:9] if row["id"] not in ("b1", "b2", "lb")])
    shown = open_session(held.file.path).items
    assert truncated(held).done
    assert open_session(held.file.path).items == shown
    assert texts(shown) == ["S1", "u2", "a2"]


@pytest.mark.parametrize("name", ["RP01", "CP03", "CP17"])
def test_interior_views_of_other_reported_histories_survive_a_truncation(tmp_path: Path, name: str) -> None:
    rows = case(name)["input"]["entries"]
    held = given(tmp_path, rows)
    path = held.file.path
    before = {row["id"]: load(path).opened(row["id"]).items for row in rows[1:]}
    assert truncated(held).done
    assert {id: load(path).opened(id).items for id in before} == before
