"""The number that is shown is the number that the lines are held against: awake, asleep, restarted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers_cli import run
from helpers_host import KEY, Play, ask, calls, hosted, messages, notices, session_path, tells, virtual
from helpers_prompts import passage
from perdure.context.numbers import limits
from perdure.contracts import Request
from perdure.edges.models.reply import say
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.tools.builtin import default_tools
from perdure.errors import ModelError
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo, Usage

INFO = ModelInfo("scripted", "scripted", window=32_000, cache_minimum=16, thinking="adaptive")
PLACE: dict[str, Any] = {
    "info": INFO,
    "workspace": None,
    "shown_workspace": None,
    "tools": default_tools(Settings()),
}
LONG = passage("prose", 300, 7)


def shown(host: Host) -> dict[str, Any]:
    """The session's line, as the running host says it."""
    (line,) = host.status(deep=True)["sessions"]
    return {"tokens": line["view_tokens"], "budget": line["budget"]}


def said(folder: Path) -> dict[str, Any]:
    """The same, as the commands say it of the file."""
    command = ("--state", folder / "state", "--json")
    (line,) = run("status", "--deep", *command).json["sessions"]
    told = run("context", KEY, "--window", str(INFO.window), *command).json
    assert told["view_tokens"] == line["view_tokens"]
    return {"tokens": line["view_tokens"], "budget": line["budget"]}


async def talked(host: Host) -> None:
    for n in range(4):
        await ask(host, passage("cjk" if n % 2 else "prose", 1_500, n))


def test_what_is_shown_stays_the_same_when_the_session_sleeps_and_when_the_host_begins_anew(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*(say(passage("prose", 2_000, 50 + n)) for n in range(4)))
        async with hosted(tmp_path, play, clock, **PLACE) as host:
            await talked(host)
            before = shown(host)
            before["budget"] = msgspec.to_builtins(before["budget"])
        own = '[plugins.slots]\nmemory = "none"\n'  # as where a program brings its tools
        (tmp_path / "state" / "perdure.toml").write_text(f"{own}[models]\nwindow = {INFO.window}\n")
        assert said(tmp_path) == before
        async with hosted(tmp_path, Play(), clock, **PLACE) as host:
            await host.command(KEY, "/status")
            again = shown(host)
            assert again["tokens"] == before["tokens"] == again["budget"].total

    virtual(main)


def test_what_usage_taught_is_kept_with_each_answer(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(*(say(f"answer {n}") for n in range(4)))
        async with hosted(tmp_path, play, clock, **PLACE) as host:
            await talked(host)
            (session,) = host.directory.awake.values()
            kept = session.transcript.learned
        (opened,) = open_session(session_path(tmp_path)).learned
        assert (opened,) == kept
        assert (opened.model, opened.samples) == (INFO.ref, 4)

    virtual(main)


def test_a_compaction_begins_when_the_number_shown_passes_the_threshold(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        line, last = limits(INFO.window).threshold, 0
        replies = (say(passage("json", 5_000, n)) for n in range(20))
        async with hosted(tmp_path, Play(*replies), clock, **PLACE) as host:
            told = notices(host)
            for n in range(20):
                await ask(host, f"part {n}")
                compacted = [note for note in told if note.text.startswith("Compacted")]
                if compacted:
                    break
                last = shown(host)["tokens"]
            assert compacted
            assert line - 5_000 < last

    virtual(main)


class Estimated(Play):
    """Keeps the size that each request was taken to have."""

    def __init__(self, *replies: Any) -> None:
        super().__init__(*replies)
        self.sizes: list[int] = []

    def _saw(self, request: Request) -> None:
        super()._saw(request)
        self.sizes.append(request.tokens)


def test_no_prompt_of_a_host_is_larger_than_it_was_taken_to_be(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        replies = [reply for n in range(12) for reply in (calls("look"), say(passage("code", 900, n)))]
        play, look = Estimated(*replies), tells("look", passage("log", 4_000, 3))
        async with hosted(tmp_path, play, clock, **PLACE | {"tools": [look]}) as host:
            for n in range(12):
                await ask(host, f"look {n}")
        usage = [found["message"]["usage"] for found in messages(session_path(tmp_path), "assistant")]
        real = [each["input"] + each["cacheRead"] + each["cacheWrite"] for each in usage]
        assert len(real) == len(play.sizes) == 24
        assert all(size >= prompt for size, prompt in zip(play.sizes[5:], real[5:], strict=True))

    virtual(main)


LIES = (Usage(10**9, 5), Usage(3, 1, 10**12), Usage(10**320, 1), Usage(-5_000, 1, 4_000), Usage(0, 0))


@pytest.mark.parametrize("lie", LIES, ids=["input", "cache", "no number", "negative", "nothing"])
def test_a_session_goes_on_after_a_usage_that_can_not_be(tmp_path: Path, lie: Usage) -> None:
    async def main(clock: VirtualClock) -> None:
        play = Play(say("one"), say("two", usage=lie), say("three"))
        for _ in range(2):
            async with hosted(tmp_path, play, clock, **PLACE) as host:
                assert [(await ask(host, "and now?")).stop for _ in range(3)] == ["stop"] * 3

    virtual(main)


@pytest.mark.parametrize("size", ["999999999", "9" * 500, ",,,", "0"])
def test_a_session_goes_on_after_a_refusal_that_names_a_size_that_can_not_be(
    tmp_path: Path, size: str
) -> None:
    async def main(clock: VirtualClock) -> None:
        refusal = ModelError("overflow", f"prompt is too long: {size} tokens > 100 maximum", status=400)
        play = Play(say("one"), say("two"), refusal)
        for _ in range(2):
            async with hosted(tmp_path, play, clock, **PLACE) as host:
                assert [(await ask(host, f"{LONG} and now?")).stop for _ in range(3)] == ["stop"] * 3

    virtual(main)


@pytest.mark.parametrize("lie", [7_500, 20_000, 33_000])
def test_a_usage_near_the_window_that_lies_closes_no_session(tmp_path: Path, lie: int) -> None:
    """It can't be told from a true one: where it alone stands against a request, the provider decides."""
    small = msgspec.structs.replace(INFO, window=8_000)

    async def main(clock: VirtualClock) -> None:
        play = Play(say("one"), say("two", usage=Usage(lie, 5)), *(say("on") for _ in range(6)))
        async with hosted(tmp_path, play, clock, **PLACE | {"info": small}) as host:
            assert [(await ask(host, "and now?")).stop for _ in range(8)] == ["stop"] * 8
        assert play.refused == 0

    virtual(main)
