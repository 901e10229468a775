"""Files that the reference program writes, opened and continued by us; and both in turns on one file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import helpers_pi as hp
from helpers_cli import run
from helpers_host import INFO, KEY, Play, accepted, ask, hosted, session_path, virtual
from helpers_pi import Pi, ours, theirs
from perdure.edges.models.catalog import resolve
from perdure.edges.models.reply import say
from perdure.edges.models.strict import validate
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

WORDS = "The lemon tree in row seven needs water and a stake before the wind comes on Thursday. "
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
THOUGHT = {"type": "thinking", "thinking": "", "thinkingSignature": "x"}
TURN = (hp.user(f"hi {WORDS}"), hp.assistant("let me look", hp.call("c1", path="a.py")), hp.result("c1"))
DONE = hp.assistant(f"done {WORDS}")


def ref(n: int) -> dict[str, int]:
    """What call `n` returned."""
    return {"$": n}


# --- what pi may have written ---------------------------------------------------------------------

STORIES: dict[str, list[list[Any]]] = {
    "tools": [
        *TURN,
        DONE,
        hp.user([{"type": "text", "text": "look: 柠檬 \ud83d"}, IMAGE]),
        hp.assistant(THOUGHT, hp.call("a"), hp.call("b")),
        hp.result("b", "second", isError=True, details={"diff": "\ud83d"}),
        hp.result("a", "first"),
        hp.assistant("", stopReason="error", errorMessage="overloaded"),
        hp.assistant("half an ans", stopReason="aborted", errorMessage="aborted"),
        hp.user("again"),
        hp.assistant("yes"),
    ],
    "compaction": [
        *TURN,
        DONE,
        hp.user("next"),
        hp.assistant("yes"),
        ["appendCompaction", "The summary of it.", ref(4), 1234, {"readFiles": ["a.py"]}],
        hp.user("after it"),
        hp.assistant("sure"),
    ],
    "compactions": [
        *TURN,
        DONE,
        ["appendCompaction", "First summary.", ref(3), 100],
        hp.user("one"),
        hp.assistant("two"),
        ["appendCompaction", "Second summary.", ref(5), 200, {"from": "a hook"}, True],
    ],
    "a kept tail that begins with a result": [
        *TURN,
        DONE,
        ["appendCompaction", "Cut in a batch.", ref(2), 100],
        hp.user("one"),
        hp.assistant("two"),
    ],
    "an anchor that is nowhere": [
        *TURN,
        DONE,
        ["appendCompaction", "Keeps nothing.", "gone", 100],
        hp.user("one"),
        hp.assistant("two"),
    ],
    "branch": [
        *TURN,
        DONE,
        hp.user("a wrong way"),
        hp.assistant("indeed"),
        ["branch", ref(3)],
        hp.user("a right way"),
        hp.assistant("much better"),
    ],
    "branch before a compaction": [
        *TURN,
        DONE,
        hp.user("one"),
        hp.assistant("two"),
        ["appendCompaction", "A summary.", ref(4), 100],
        hp.user("three"),
        ["branch", ref(3)],
        hp.user("four"),
        hp.assistant("five"),
    ],
    "branch summary": [
        *TURN,
        DONE,
        hp.user("a wrong way"),
        hp.assistant("indeed"),
        ["branchWithSummary", ref(3), "We went the wrong way.", {"readFiles": []}],
        hp.user("go on"),
        hp.assistant("yes"),
    ],
    "from the beginning": [
        *TURN,
        DONE,
        ["resetLeaf"],
        hp.user("all anew"),
        hp.assistant("yes"),
    ],
    "labels and names": [
        *TURN,
        DONE,
        ["appendLabelChange", ref(3), "here"],
        ["appendLabelChange", ref(0), "begin"],
        ["appendLabelChange", ref(0)],
        ["appendSessionInfo", "  Lemons  "],
        ["appendSessionInfo", "柠檬"],
    ],
    "a name taken away": [*TURN, DONE, ["appendSessionInfo", "Lemons"], ["appendSessionInfo", ""]],
    "models and levels": [
        ["appendModelChange", "anthropic", "claude-sonnet-4-5"],
        ["appendThinkingLevelChange", "high"],
        *TURN,
        DONE,
        ["appendModelChange", "openai", "gpt-5"],
        ["appendThinkingLevelChange", "xhigh"],
        hp.user("and now"),
        hp.assistant("with another", model="gpt-5.1", provider="openai"),
    ],
    "settings far below a compaction": [
        ["appendModelChange", "anthropic", "claude-sonnet-4-5"],
        ["appendThinkingLevelChange", "high"],
        *TURN,
        DONE,
        hp.user("next"),
        ["appendCompaction", "A summary.", ref(6), 100],
    ],
    "extensions": [
        *TURN,
        ["appendCustomEntry", "their.state", {"n": 1}],
        DONE,
        ["appendCustomMessageEntry", "their.note", "a note for the model", True, {"secret": 1}],
        ["appendCustomMessageEntry", "their.note", [{"type": "text", "text": "hidden"}, IMAGE], False],
        hp.user("go on"),
        hp.assistant("yes"),
    ],
    "commands of the user": [
        *TURN,
        DONE,
        ["appendMessage", {"role": "bashExecution", "command": "ls", "output": "a\nb", "exitCode": 0}
         | {"cancelled": False, "truncated": True, "fullOutputPath": "/tmp/x", "timestamp": 4}],
        ["appendMessage", {"role": "bashExecution", "command": "env", "output": "", "cancelled": True}
         | {"truncated": False, "excludeFromContext": True, "timestamp": 5}],
        ["appendMessage", {"role": "custom", "customType": "x", "content": "told", "display": True}
         | {"timestamp": 6}],
        hp.user("go on"),
        hp.assistant("yes"),
    ],
    "an open batch": [hp.user("go"), hp.assistant(hp.call("c1"), hp.call("c2")), hp.result("c1")],
}  # fmt: skip
DAMAGED = {"an anchor that is nowhere"}  # pi opens it without a word; `doctor` tells it
each_story = pytest.mark.parametrize("name", STORIES)


def made(pi: Pi, folder: Path, story: list[list[Any]]) -> Path:
    """The file, with the name that our host looks for."""
    path = session_path(folder)
    path.parent.mkdir(parents=True)
    shutil.move(pi.create(folder / "pi", *story), path)
    return path


@each_story
def test_a_file_of_pi_opens_here_with_its_context(name: str, tmp_path: Path, pi: Pi) -> None:
    path = made(pi, tmp_path, STORIES[name])
    seen, mine = pi.look(path), ours(path)
    assert theirs(seen) == mine
    told = run("doctor", path, "--json")
    damage = [found["kind"] for found in told.json["problems"] if found["severity"] == "damage"]
    assert damage == (["missing_anchor"] if name in DAMAGED else [])
    assert (told.code, told.json["healthy"]) == ((1, False) if damage else (0, True))
    assert load(path).opened().items == open_session(path).items


@each_story
def test_a_file_of_pi_gives_a_request_that_the_provider_accepts(name: str, tmp_path: Path, pi: Pi) -> None:
    path = made(pi, tmp_path, STORIES[name])
    before = path.read_bytes()
    told = run("context", path, "--json", "-m", "and now?")
    assert told.code == 0, told.err
    request = told.json["request"]
    validate(request, model=resolve(told.json.get("model") or "scripted/test"))
    assert "and now?" in json.dumps(request["messages"][-1])
    assert path.read_bytes() == before


@each_story
def test_our_host_goes_on_with_a_file_of_pi_and_pi_with_ours(name: str, tmp_path: Path, pi: Pi) -> None:
    path = made(pi, tmp_path, STORIES[name])
    before = ours(path)
    play = Play(say("one of ours"), say("another of ours"), *[say("more")] * 3)

    used = [INFO]

    async def main(clock: VirtualClock) -> None:
        def played(info: ModelInfo) -> Any:
            used.append(info)
            return play.model(clock, info)

        # The model that the file names goes on.
        async with hosted(tmp_path, play, clock, factories={"openai": played}) as host:
            for text in ("from our side", "and again"):
                assert (await ask(host, text)).stop == "stop"

    virtual(main)
    assert play.refused == 0
    accepted(play.bodies[KEY], used[-1])
    after = ours(path)
    assert after["ids"][: len(before["ids"])] == before["ids"]
    assert theirs(pi.look(path)) == after
    assert run("doctor", path).code == (1 if name in DAMAGED else 0)
