"""Reported faults of memory and its flush, each with the right outcome."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import blown_up, case, covers, opened, request, told
from helpers_host import KEY, Gate, ask, entries, hosted, messages, session_path, virtual
from helpers_kernel import each_loop
from helpers_memory import (
    FLUSHING,
    SMALL,
    Noting,
    appends,
    first_text,
    flushes,
    logged,
    long,
    note_path,
)
from helpers_messages import SONNET
from perdure.actors.messages import Sleep
from perdure.actors.services import Timing
from perdure.context.environment import resolve
from perdure.context.flush import parts
from perdure.context.numbers import limits
from perdure.context.pipeline import history
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.settings import CompactionSettings, MemorySettings, Settings
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

OTHER = "agent:main:cli:dm:other"
MANUAL = Settings(compaction=CompactionSettings(trigger="manual"), memory=MemorySettings(flush=True))


def compactions(folder: Path, key: str = KEY) -> list[dict[str, Any]]:
    path = session_path(folder, key)
    return [e for e in entries(path) if e["type"] == "compaction"] if path.exists() else []


@each_loop
@covers("ME01")
def test_me01_each_compaction_cycle_has_its_flush_and_never_two(loop: Backend, tmp_path: Path) -> None:
    """Four times over the soft line, flushed, compacted; with a sleep in each cycle, and a restart."""
    play = Noting(*[long(n, 300) for n in range(200)], notes=lambda _b, _r: appends(f"- {len(play.asked)}"))

    async def main(clock: VirtualClock) -> None:
        for cycles in (2, 4):
            async with hosted(tmp_path, play, clock, info=SMALL, settings=FLUSHING, accounting=False) as host:
                while len(compactions(tmp_path)) < cycles:
                    before = len(flushes(tmp_path))
                    await ask(host, "more")
                    await clock.sleep(1)
                    if len(flushes(tmp_path)) > before:
                        done = clock.waiter("sleep")
                        host.directory.ref(KEY).post(Sleep(done))
                        await clock.wait(done, 10)

    virtual(main, loop)
    made = [line for line in flushes(tmp_path) if line["calls"]]
    cycles = ["", *[c["id"] for c in compactions(tmp_path)]]
    assert [line["cycle"] for line in made] == cycles[:4]  # the cycle that was flushed, not the latest
    assert all(line["reason"] == "soft" for line in made)


@covers("ME02")
def test_me02_a_flush_that_wants_to_write_the_note_anew_can_only_add_to_it(tmp_path: Path) -> None:
    given = case("ME02")["input"]
    name, _, text = given["file"].partition(" = ")
    assert "write(" in given["fake_model"]["script"]
    note = tmp_path / "workspace" / name
    note.parent.mkdir(parents=True)
    note.write_text(text.strip("'").replace("\\n", "\n"))

    def notes(body: dict[str, Any], request: Request) -> ScriptedReply:
        if len(body["messages"]) == 1:
            return ScriptedReply((call("write", "w", path=name, content="evening: B"),))
        return appends("evening: B")

    play = Noting(*[long(n) for n in range(16)], notes=notes)

    async def main(clock: VirtualClock) -> None:
        for turns in (8, 2):  # before and after a restart
            async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
                for n in range(turns):
                    await ask(host, f"question {n}")
                assert (await host.command(KEY, "/compact")).startswith("Compacted")

    virtual(main)
    rows = note.read_text().splitlines()
    assert rows[0] == "morning: A"
    assert rows.count("evening: B") == 1
    refused = [b for body in play.asked[1::2] for b in body["messages"][-1]["content"]]
    assert all(b["is_error"] for b in refused)
    assert sorted(p.name for p in (tmp_path / "workspace").rglob("*")) == [note.name, "memory"]


@each_loop
@covers("ME03")
def test_me03_two_flushes_that_begin_together_are_both_in_the_note(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gates = {key: Gate(clock, appends(f"- learned in {key}")) for key in (KEY, OTHER)}

        async def notes(body: dict[str, Any], request: Request) -> ScriptedReply:
            return await gates[request.session.removesuffix("#flush")](body, request)

        play = Noting(*[long(n) for n in range(8)], notes=notes)
        play.then(*[long(n) for n in range(8)], key=OTHER)
        async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
            for key in gates:
                for n in range(8):
                    await ask(host, f"question {n}", key)
                host.kernel.start("asker", host.command, key, "/compact")
            for gate in gates.values():
                await gate.arrived()  # both have read whatever they read
            for gate in gates.values():
                gate.open()
            await clock.sleep(60)
            assert host.status()["memory"]["flushes"]["done"] == 2
        text = note_path(tmp_path).read_text()
        assert [text.count(f"- learned in {key}\n") for key in gates] == [1, 1]

    virtual(main, loop)


@covers("ME04")
@pytest.mark.parametrize("key", [KEY, "agent:main:cron:nightly", "agent:main:heartbeat:x"])
def test_me04_a_late_flush_adds_and_never_decides_what_others_wrote(key: str, tmp_path: Path) -> None:
    memory = tmp_path / "workspace" / "MEMORY.md"
    memory.parent.mkdir()
    memory.write_text("v1\n")
    replace = ScriptedReply((call("replace", "r", path="MEMORY.md", text="v1, as X knew it"),))

    def notes(body: dict[str, Any], request: Request) -> ScriptedReply:
        return replace if len(body["messages"]) == 1 else appends("- what X has to add")

    play = Noting(notes=notes)
    play.then(*[long(n) for n in range(8)], key=key)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
            for n in range(8):
                await ask(host, f"question {n}", key)
            memory.write_bytes(b"v2\n")  # another session's
            assert (await host.command(key, "/compact")).startswith("Compacted")

    virtual(main)
    assert memory.read_bytes() == b"v2\n"
    assert note_path(tmp_path).exists() is (key == KEY)
    assert not any("v1, as X" in path.read_text() for path in memory.parent.rglob("*.md"))
    if key == KEY:
        assert "- what X has to add\n" in note_path(tmp_path).read_text()
    else:
        assert [line["how"] for line in flushes(tmp_path)] == ["skipped"]


@covers("ME05")
def test_me05_heartbeats_that_said_nothing_are_in_no_request_summary_or_note(tmp_path: Path) -> None:
    rows = case("ME05")["input"]["entries"]
    last = rows[-1]["id"]
    real = [
        ("x0", "assistant", "Next it is."),
        ("x1", "user", "[heartbeat] anything?"),
        ("x2", "assistant", "The build is red."),
    ]
    for id, role, text in real:
        message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
        message |= {"stopReason": "stop"} if role == "assistant" else {}
        rows = [*rows, {"type": "message", "message": message, "id": id, "parentId": last}]
        last = id
    found = opened("ME05", tmp_path, rows)
    prompt = "[heartbeat] anything?"
    env = resolve(KEY, SONNET, "s", (), limits(200_000), heartbeat=prompt)
    kept = history(found.items, env, {}).items
    assert [item.entry for item in kept] == ["e1", "e2", "e403", "x0", "x1", "x2"]
    body = request(kept)
    roles = [message["role"] for message in body["messages"]]
    assert all(a != b for a, b in pairwise(roles))
    assert told(body)[:6] == ["real question", "answer", "next", "Next it is.", prompt, "The build is red."]
    shown, left_out = parts(found.items, 200_000, Estimator(), prompt)
    (part,) = shown
    assert left_out == 0
    assert "HEARTBEAT_OK" not in part.text
    assert "The build is red." in part.text


@covers("ME05")
def test_me05_the_summariser_is_shown_none_of_them_either(tmp_path: Path) -> None:
    rows = case("ME05")["input"]["entries"]
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in _with_words(rows)))
    before = path.read_bytes()
    play = Noting()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=MANUAL) as host:
            assert (await host.command(KEY, "/compact")).startswith("Compacted")

    virtual(main)
    assert path.read_bytes().startswith(before)
    assert b"HEARTBEAT_OK" not in b"".join(play.summaries)
    assert "HEARTBEAT_OK" not in play.shown
    assert "real question" in play.shown


def _with_words(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The case's prompts as a heartbeat's tell what to answer, and an answer that is worth a summary."""
    for row in deepcopy(rows):
        for block in row.get("message", {}).get("content", ()):
            block["text"] = block["text"].replace(
                "[heartbeat] anything?", "[heartbeat] anything? If not, reply HEARTBEAT_OK."
            )
            if block["text"] == "answer":
                block["text"] = "A long answer. " * 800
        yield row


def _case_me08(path: Path) -> None:
    rows = blown_up(case("ME08")["input"]["entries"])
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@covers("ME08")
@pytest.mark.parametrize("way", ["command", "overflow", "next message", "failed"])
def test_me08_the_flush_precedes_every_compaction_and_is_shown_what_goes(way: str, tmp_path: Path) -> None:
    """No usage is on record: flush and compaction are decided by the same estimate of the same view."""
    window = case("ME08")["input"]["window"]
    info = ModelInfo("scripted", "test", window=window, cache_minimum=16)
    _case_me08(session_path(tmp_path))
    notes = fail("auth") if way == "failed" else appends("- dock 4 closes at 18:00")
    play = Noting(notes=notes)
    if way == "overflow":
        play.then(fail("overflow"), say("noted"))

    async def main(clock: VirtualClock) -> None:
        async with hosted(
            tmp_path, play, clock, info=info, settings=FLUSHING, timing=Timing(retries=0)
        ) as host:
            if way in ("command", "failed"):
                await ask(host, "and now?")
                assert (await host.command(KEY, "/compact")).startswith("Compacted")
            else:
                for n in range(4):
                    await ask(host, f"and now {n}? " + "w " * 3_000)
                    await clock.sleep(5)
            await clock.sleep(5)

    virtual(main)
    assert compactions(tmp_path)
    assert "dock 4 closes at 18:00" in first_text(play.asked[0])
    log = (tmp_path / "state" / "runtime.log").read_text()
    event = "flush.failed" if way == "failed" else "flush.done"
    assert log.index(event) < log.index("session.compaction")
    assert flushes(tmp_path)[0]["how"] == event.removeprefix("flush.")
    if way != "failed":
        assert "- dock 4 closes at 18:00" in note_path(tmp_path).read_text()
    assert all(len(first_text(body)) < window * 4 for body in play.asked)  # in chunks that fit
    assert messages(session_path(tmp_path))
    assert logged(tmp_path, event)
