"""Pictures in a host: fitted before they are written, kept by hash when large, never gone silently."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from helpers_host import (
    KEY,
    Fn,
    Play,
    accepted,
    ask,
    calls,
    entries,
    hosted,
    messages,
    real,
    session_path,
    text_of,
    virtual,
)
from helpers_pictures import image, noise, opened, saved
from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.session.decode import decode_block
from perdure.edges.settings import GuardSettings, ImageSettings, Settings
from perdure.edges.tools.recall import RecallTool
from perdure.kernel.clock import RealClock
from perdure.kernel.virtual import VirtualClock
from perdure.looking.context import inspect
from perdure.looking.target import Target
from perdure.records import Text
from perdure.replay.content import said
from perdure.replay.formats.session import GONE
from perdure.replay.importer import convert
from perdure.replay.steps import ToolStep

BIG = saved(noise(1500, 500), "PNG")
SHOT = saved(noise(700, 500), "PNG")
TIGHT = Settings(guard=GuardSettings(evidence_kib=8))


def shows(*blocks: Any) -> Fn:
    """A tool that returns these blocks."""

    async def fn(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(tuple(blocks))

    return Fn("shot", fn)


def pictures(body: Mapping[str, Any]) -> list[bytes]:
    """The bytes of every image of a request, in order."""
    found: list[bytes] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict) and value.get("type") == "image":
            found.append(base64.b64decode(value["source"]["data"]))
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(each)

    walk(body["messages"])
    return found


def evidence(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in (folder / "state" / "evidence").rglob("*") if path.is_file()]


def test_a_picture_that_is_too_large_is_scaled_once_and_its_original_kept(tmp_path: Path) -> None:
    async def main() -> Play:
        play = Play()
        given = Settings(images=ImageSettings(max_side=500))
        async with hosted(tmp_path, play, RealClock(), settings=given) as host:
            await ask(host, "what is this?", attachments=(image(BIG, "image/png"),))
            await ask(host, "and now?")
        return play

    play = real(main)
    accepted(play.bodies[KEY])
    first, second = (json.loads(body) for body in play.bodies[KEY])
    (sent,) = pictures(first)
    assert opened(sent).size == (500, 167)
    assert pictures(second) == [sent]
    assert evidence(tmp_path) == [BIG]
    (stored, _) = messages(session_path(tmp_path), "user")
    assert "1500x500" in text_of(stored["message"])
    assert base64.b64decode(stored["message"]["content"][1]["data"]) == sent


def test_a_picture_that_cannot_be_decoded_is_told_and_can_be_recalled(tmp_path: Path) -> None:
    broken = SHOT[: len(SHOT) // 2]

    async def main() -> Play:
        play = Play()
        async with hosted(tmp_path, play, RealClock()) as host:
            await ask(host, "look", attachments=(image(broken, "image/png"),))
        return play

    body = real(main).last()
    assert pictures(body) == []
    said = json.dumps(body)
    assert "can't be decoded" in said
    assert "image/png 700x500" in said
    assert "recall sha256:" in said
    assert evidence(tmp_path) == [broken]


def test_a_tool_picture_over_the_limit_stands_in_the_file_by_its_hash_and_in_requests_whole(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> Play:
        play = Play(calls("shot"), say("seen"))
        tool = shows(Text("here"), image(SHOT, "image/png"))
        async with hosted(tmp_path, play, clock, tools=[tool], settings=TIGHT) as host:
            await ask(host, "show me")
        async with hosted(tmp_path, play, clock, tools=[tool], settings=TIGHT) as host:
            await ask(host, "again")
        return play

    play = virtual(main)
    accepted(play.bodies[KEY])
    asked, shown, woken = (json.loads(body) for body in play.bodies[KEY])
    assert (pictures(asked), pictures(shown), pictures(woken)) == ([], [SHOT], [SHOT])
    same = len(asked["messages"])
    assert shown["messages"][same]["content"] == woken["messages"][same]["content"]
    (result,) = messages(session_path(tmp_path), "toolResult")
    assert len(json.dumps(result)) < 8 * 1024
    assert "image/png 700x500" in text_of(result["message"])
    assert evidence(tmp_path) == [SHOT]


def test_small_pictures_stay_in_their_entry_until_the_limit_is_reached(tmp_path: Path) -> None:
    small = saved(noise(60, 60), "PNG")
    assert len(small) * 4 // 3 < 8 * 1024 < len(small) * 40

    async def main(clock: VirtualClock) -> Play:
        play = Play(calls("shot"), say("seen"))
        tool = shows(*[image(small, "image/png")] * 12)
        async with hosted(tmp_path, play, clock, tools=[tool], settings=TIGHT) as host:
            await ask(host, "show me")
        return play

    assert pictures(virtual(main).last()) == [small] * 12
    (result,) = messages(session_path(tmp_path), "toolResult")
    kinds = [block["type"] for block in result["message"]["content"]]
    inside = 8 * 1024 // len(image(small, "").data)
    assert kinds == ["image"] * inside + ["text"] * (12 - inside)


def test_a_kept_picture_whose_bytes_are_gone_is_a_notice_not_a_refused_request(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> Play:
        play = Play(calls("shot"), say("seen"))
        tool = shows(image(SHOT, "image/png"))
        async with hosted(tmp_path, play, clock, tools=[tool], settings=TIGHT) as host:
            await ask(host, "show me")
        for path in (tmp_path / "state" / "evidence").rglob("*"):
            if path.is_file():
                path.unlink()
        async with hosted(tmp_path, play, clock, tools=[tool], settings=TIGHT) as host:
            await ask(host, "again")
        return play

    play = virtual(main)
    accepted(play.bodies[KEY])
    assert pictures(play.last()) == []
    assert "could not be read (image/png 700x500" in json.dumps(play.last())


@pytest.mark.parametrize("by_hash", [False, True])
def test_recall_shows_a_kept_picture_again(tmp_path: Path, by_hash: bool) -> None:
    async def main(clock: VirtualClock) -> Play:
        play = Play(calls("shot"), say("seen"))
        tools = [shows(image(SHOT, "image/png")), RecallTool()]
        async with hosted(tmp_path, play, clock, tools=tools, settings=TIGHT) as host:
            await ask(host, "show me")
            (result,) = messages(session_path(tmp_path), "toolResult")
            ref = result["perdure"]["evidence"][0] if by_hash else result["id"]
            play.then(ScriptedReply((call("recall", "toolu_recall", ref=ref),)))
            await ask(host, "once more")
        return play

    play = virtual(main)
    accepted(play.bodies[KEY])
    assert pictures(play.last()) == [SHOT, SHOT]
    assert evidence(tmp_path) == [SHOT]


def test_a_picture_of_a_letter_that_waits_keeps_its_original_too(tmp_path: Path) -> None:
    async def main() -> None:
        play = Play()
        given = Settings(images=ImageSettings(max_side=100))
        async with hosted(tmp_path, play, RealClock(), settings=given) as host:
            first = await host.send(KEY, "go")
            second = await host.send(KEY, "look", attachments=(image(SHOT, "image/png"),))
            await first.reply(20)
            await second.reply(20)

    real(main)
    first, second = (entry["perdure"] for entry in messages(session_path(tmp_path), "user"))
    assert "evidence" not in first
    assert len(second["evidence"]) == 1
    assert evidence(tmp_path) == [SHOT]


def kept_by_hash(folder: Path) -> Path:
    """A session whose one picture is kept beside it."""

    async def main(clock: VirtualClock) -> None:
        play = Play(calls("shot"), say("seen"))
        tool = shows(image(SHOT, "image/png"))
        async with hosted(folder, play, clock, tools=[tool], settings=TIGHT) as host:
            await ask(host, "show me")

    virtual(main)
    return session_path(folder)


def test_the_context_command_shows_a_kept_picture_where_its_bytes_are(tmp_path: Path) -> None:
    path = kept_by_hash(tmp_path)
    here = inspect(Target(path, KEY), Settings(), state=tmp_path / "state")
    assert pictures(here["request"]) == [SHOT]
    away = inspect(Target(path, KEY), Settings(), state=tmp_path / "elsewhere")
    assert pictures(away["request"]) == []
    assert "could not be read" in json.dumps(away["request"])


def test_an_import_brings_kept_pictures_along_or_counts_them(tmp_path: Path) -> None:
    path = kept_by_hash(tmp_path)
    tool = next(step for step in convert(path).scenario.steps if isinstance(step, ToolStep))
    assert said(tool) == (image(SHOT, "image/png"),)
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(path.read_bytes())
    assert {row.what: row.count for row in convert(alone).lost}[GONE] == 1


def test_a_program_that_knows_nothing_of_kept_pictures_reads_a_line_of_text(tmp_path: Path) -> None:
    (entry,) = messages(kept_by_hash(tmp_path), "toolResult")
    (block,) = entry["message"]["content"]
    assert block["type"] == "text"
    assert "image/png 700x500" in block["text"]
    assert entry["perdure"]["evidence"][0] in block["text"]


@pytest.mark.parametrize("ours", [{}, {"image": 1}, {"image": {}, "mime": "x"}, [], None, "text"])
def test_a_text_whose_facts_are_not_ours_is_that_text(ours: Any) -> None:
    raw = json.dumps({"type": "text", "text": "hi", "perdure": ours}).encode()
    assert decode_block(raw) == Text("hi")


def test_virtual_time_leaves_pictures_as_they_come(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> Play:
        play = Play()
        async with hosted(tmp_path, play, clock) as host:
            await ask(host, "look", attachments=(image(BIG, "image/png"),))
        return play

    assert pictures(virtual(main).last()) == [BIG]
    assert not any("evidence" in json.dumps(entry) for entry in entries(session_path(tmp_path)))
