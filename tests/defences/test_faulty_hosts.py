"""The same faults under a whole host: coordinator, turns, truncation, sleep and the strict door."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers_faulty import ANSWERS, FAULTS
from helpers_host import KEY, Play, accepted, entries, hosted, session_path, text_of, virtual
from perdure.actors import coordinator
from perdure.actors.services import Timing
from perdure.context.compaction.fold import Failed
from perdure.edges.models.reply import ScriptedReply, fail, say
from perdure.edges.session.history import History
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

FULL = os.environ.get("PERDURE_DEFENCES") == "full"
KINDS = [*FAULTS, "mixed"] if FULL else ["mixed", "slow"]
SESSIONS = 4 if FULL else 1
SMALL = ModelInfo("scripted", "test", window=16_000, cache_minimum=16)
WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "


def faulty(kind: str, rng: random.Random, clock: VirtualClock) -> Callable[[dict[str, Any], Any], Any]:
    """The faults as a model's: slow ones go silent, raising ones raise."""

    async def answer(body: dict[str, Any], request: Any) -> ScriptedReply:
        made = ANSWERS[rng.choice(list(ANSWERS)) if kind == "mixed" else kind](rng)
        if not isinstance(made, Failed):
            return say(made.text, stop=made.stop)
        if made.kind == "timeout":
            await clock.sleep(300)
        if made.kind == "unknown":
            raise ZeroDivisionError("a bug of the model's")
        return fail({"timeout": "stall", "cut": "cut"}.get(made.kind, made.kind))  # type: ignore[arg-type]

    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_every_turn_ends_in_an_answer_or_the_typed_floor_and_nothing_is_lost(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = [0, 0, 0]  # compactions in a row without an accepted call, the most of these, all

    def counted(
        state: coordinator.Coordinator, reason: coordinator.Reason, **more: bool
    ) -> coordinator.Coordinator:
        row[0] = 1 if reason == "manual" else row[0] + 1
        row[1], row[2] = max(row[1], row[0]), row[2] + 1
        return begin(state, reason, **more)

    def forgiven(state: coordinator.Coordinator) -> coordinator.Coordinator:
        row[0] = 0
        return ended(state)

    begin, ended = coordinator.begin, coordinator.accepted
    monkeypatch.setattr(coordinator, "begin", counted)
    monkeypatch.setattr(coordinator, "accepted", forgiven)
    for seed in range(SESSIONS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        _lives(kind, seed, folder, row)
    assert row[1] <= 3
    assert row[2] > 10
    print(f"{kind}: {row[2]} compactions under a host")  # noqa: T201


def _lives(kind: str, seed: int, folder: Path, row: list[int]) -> None:
    rng = random.Random(seed)
    replies = [say(f"Answer {n}. " + WORDS * rng.randrange(20, 60)) for n in range(60)]
    said: list[str] = []

    async def main(clock: VirtualClock) -> Play:
        play = Play(*replies, summary=faulty(kind, rng, clock))
        timing = Timing(model_idle=20, summary=120)
        for part in range(3):
            row[0] = 0  # a host that starts counts anew
            async with hosted(folder, play, clock, info=SMALL, truncate_after=8_192, timing=timing) as host:
                for n in range(20):
                    said.append(f"question {part}-{n}: {WORDS * rng.randrange(1, 4)}")
                    sent = await host.send(KEY, said[-1])
                    reply = await sent.reply(100_000)
                    assert reply.stop in ("stop", "overflow")
                    assert reply.stop == "stop" or "\n" not in reply.errors[-1]
                    await clock.sleep(rng.choice([1, 400]))
        assert play.refused == 0
        return play

    play = virtual(main)
    accepted(play.bodies[KEY], SMALL)
    path = session_path(folder)
    past = History(path)
    records = dict(past.records())
    stored = [e for e in map(_decoded, records.values()) if e["type"] == "message"]
    users = [text_of(e["message"]) for e in stored if e["message"]["role"] == "user"]
    assert sorted(users) == sorted(said)
    for entry in stored[:: max(1, len(stored) // 20)]:
        assert text_of(entry["message"]) in past.text(entry["id"])
    done = [e for e in map(_decoded, records.values()) if e["type"] == "compaction"]
    assert done
    for entry in done:
        proof = entry["details"]["perdure"]["proof"]
        assert proof["tokens_after"] < proof["tokens_before"]
        assert sum(span["count"] for span in proof["spans"]) == proof["entries"]
        assert proof["first"] in records
        assert proof["last"] in records
    equal = [(e["summary"], e["firstKeptEntryId"]) for e in done]
    assert all(a != b for a, b in pairwise(equal))
    assert entries(path)


def _decoded(raw: bytes) -> dict[str, Any]:
    import json

    found = json.loads(raw)
    assert isinstance(found, dict)
    return found
