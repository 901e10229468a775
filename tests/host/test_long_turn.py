"""One turn far beyond its window: three hundred tool calls, results of 1 to 200 KB, 32,000 tokens.

The model inside is strict and counts with its own tokenizer, so that a request which overflows or lacks
half of a pair is refused, not forgiven. `PERDURE_LONG_TURNS` names how many seeds are played whole.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers_host import KEY, Fn, Play, ask, entries, hosted, messages, session_path, virtual
from helpers_strict import complaints
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.settings import Settings
from perdure.edges.tools.builtin import default_tools
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Text

W = 32_000
INFO = ModelInfo("scripted", "test", window=W, cache_minimum=16)
QUESTION = "Survey every field, one after the other; at the end tell me the seal of field three, no more!"
SEAL = "VERMILION-7731-QX"
WORDS = ("soil", "is", "dry", "the", "fence", "leans", "row", "seven", "needs", "water", "and", "a", "stake")
LEAST = 160  # characters: what a result is shown with if nothing older can pay for more

KINDS = ("prose", "json", "code", "hex", "chinese")


def output(n: int, size: int, rng: random.Random) -> str:
    """What field `n` looks like: about `size` characters, of a kind that models meet."""
    head = f"Field {n}. " + (f"The seal of field three is {SEAL}. " if n == 3 else "")
    kind = KINDS[n % len(KINDS)]
    parts, length = [head], len(head)
    while length < size:
        match kind:
            case "prose":
                piece = " ".join(rng.choices(WORDS, k=12)) + ". "
            case "json":
                piece = json.dumps({"row": rng.randrange(10**6), "ph": rng.random(), "ok": True}) + "\n"
            case "code":
                piece = (
                    f"    if rows[{rng.randrange(999)}] != field['{rng.choice(WORDS)}']:\n        return\n"
                )
            case "hex":
                piece = rng.randbytes(40).hex() + "\n"
            case _:
                piece = "第七排的土壤很干，篱笆倾斜，需要浇水并加固。" + str(rng.randrange(1000))
        parts.append(piece)
        length += len(piece)
    return "".join(parts)


class Survey:
    """Plays the model: asks for fields in batches, then for its own past, then answers."""

    def __init__(self, seed: int, calls: int) -> None:
        self.rng, self.calls = random.Random(seed), calls
        self.asked = 0
        self.outputs: dict[int, str] = {}
        self.shown: dict[int, int] = {}  # characters of each field's result when it was first in a request
        self.squeezed: list[
            int
        ] = []  # tokens of requests whose fresh results were cut below the single limit

    async def field(self, arguments: Mapping[str, Any], context: Any) -> str:
        n = int(arguments["n"])
        size = 2_000 if n == 3 else int(1_000 * 200 ** self.rng.random())
        self.outputs[n] = output(n, size, self.rng)
        return self.outputs[n]

    def answer(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        self._look(body, request)
        if self.asked < self.calls:
            batch = min(self.rng.choice((1, 1, 1, 2, 4)), self.calls - self.asked)
            names = range(self.asked + 1, self.asked + batch + 1)
            self.asked += batch
            said = f"So far {self.asked} fields, the last ones look much like those before them."
            return ScriptedReply((Text(said), *(call("field", f"field{n:03}", n=n) for n in names)))
        last = json.dumps(body["messages"][-1])
        if "recall1" not in last:
            return ScriptedReply((call("recall", "recall1", search="seal of field three is"),))
        return say(f"The seal is {SEAL}." if SEAL in last else "I don't know it any more.")

    def _look(self, body: dict[str, Any], request: Request) -> None:
        for block in body["messages"][-1]["content"]:
            id = block.get("tool_use_id", "")
            if block["type"] != "tool_result" or not id.startswith("field"):
                continue
            n = int(id[5:])
            self.shown[n] = len("".join(part["text"] for part in block["content"]))
            if self.shown[n] < min(len(self.outputs[n]), int(0.99 * W)):
                self.squeezed.append(request.tokens)


def play(folder: Path, seed: int, calls: int, summary: Any = None) -> tuple[Survey, Play]:
    survey = Survey(seed, calls)
    script = Play(*[survey.answer] * (calls + 2), summary=summary)
    recall = next(tool for tool in default_tools(Settings()) if tool.spec.name == "recall")

    async def main(clock: VirtualClock) -> None:
        tools = [Fn("field", survey.field), recall]
        async with hosted(folder, script, clock, info=INFO, tools=tools) as host:
            reply = await ask(host, QUESTION)
            assert (reply.text, reply.stop, reply.errors) == (f"The seal is {SEAL}.", "stop", ())

    virtual(main, "asyncio", seed)
    return survey, script


def check(folder: Path, survey: Survey, script: Play, calls: int) -> None:
    """Of every request and every result what the module promises."""
    (model,) = script.models
    assert (model.refused, model.errors) == (0, {})
    for body in script.bodies[KEY]:
        assert complaints(body) == []
    assert set(survey.shown) == set(range(1, calls + 1))
    for n, shown in survey.shown.items():
        assert shown >= min(len(survey.outputs[n]), LEAST)
    assert min(survey.squeezed, default=W) > 0.6 * W, "a result was cut though there was room"
    path = session_path(folder)
    assert [e["message"]["toolCallId"] for e in messages(path, "toolResult")][-1] == "recall1"
    done = [e for e in entries(path) if e["type"] == "compaction"]
    assert len({(e["firstKeptEntryId"], e["summary"]) for e in done}) == len(done) >= calls // 30


def test_a_turn_of_forty_five_calls_in_a_small_window_sees_every_result_and_remembers_the_third(
    tmp_path: Path,
) -> None:
    survey, script = play(tmp_path, 1, 45)
    check(tmp_path, survey, script, 45)
    assert all(QUESTION in body.decode() for body in script.bodies[KEY])


def test_the_third_result_is_still_known_where_no_summary_says_a_word_of_it(tmp_path: Path) -> None:
    summary = say("The fields were surveyed one after the other, and all of them look much alike so far.")
    survey, script = play(tmp_path, 2, 30, summary)
    check(tmp_path, survey, script, 30)


@pytest.mark.parametrize("seed", range(int(os.environ.get("PERDURE_LONG_TURNS", "0"))))
def test_a_turn_of_three_hundred_calls_sees_every_result_and_remembers_the_third(
    seed: int, tmp_path: Path
) -> None:
    survey, script = play(tmp_path, seed, 300)
    check(tmp_path, survey, script, 300)
