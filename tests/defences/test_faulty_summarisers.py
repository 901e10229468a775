"""Ten thousand compactions with summarisers that fail in every known way lose nothing.

The short form runs with the suite; `make defences` (PERDURE_DEFENCES=full) runs the whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers_faulty import FAULTS, NEVER, World
from helpers_summaries import BAD
from perdure.edges.session.doctor import examine
from perdure.edges.session.history import History
from perdure.edges.session.load import load
from perdure.records import Text, User

FULL = os.environ.get("PERDURE_DEFENCES") == "full"
KINDS = [*FAULTS, "mixed"]
EACH = 25  # compactions of one session
SESSIONS = 10_000 // (EACH * len(KINDS)) if FULL else 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_entry_is_lost_whatever_the_summariser_does(kind: str, tmp_path: Path) -> None:
    attempts = commits = 0
    for seed in range(SESSIONS):
        world = World(seed, kind, (4_000, 8_000)[seed % 2])
        world.run(EACH)
        attempts, commits = attempts + world.attempts, commits + len(world.commits)
        assert world.unaccounted() == []
        assert not world.unproven
        assert all(proof.tokens_after < proof.tokens_before for _, _, proof, _, _ in world.commits)
        assert world.most_in_a_row <= 3
        assert world.repeated() == 0
        assert world.fits > 0
        assert not world.floors or kind != "good"
        _nothing_bad_stands(kind, world)
        if seed % 10 == 0:
            _everything_can_be_read(world, tmp_path / f"{seed}.jsonl")
    assert commits
    print(f"{kind}: {attempts} compactions, {commits} committed")  # noqa: T201


def _nothing_bad_stands(kind: str, world: World) -> None:
    """No answer of a kind that is never a summary is in one."""
    if kind not in NEVER:
        return
    for _, _, proof, summary, _ in world.commits:
        assert proof.rung == "digest" or kind == "mixed"
        assert not any(len(text) > 20 and text in summary for texts in BAD.values() for text in texts)


def _everything_can_be_read(world: World, path: Path) -> None:
    world.write(path)
    loaded, past = load(path), History(path)
    for entry, message in world.log.items():
        assert loaded.entry(entry)
        if isinstance(message, User) and int(entry[1:]) % 40 == 0:
            assert all(block.text in past.text(entry) for block in message.content if isinstance(block, Text))
    assert not [problem for problem in examine(path).problems if problem.kind == "broken_proof"]
