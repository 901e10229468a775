"""Reported faults of what a request may carry: characters, bytes, pictures."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from helpers_cases import blown_up, case, covers, opened, request, told
from helpers_host import KEY, Play, accepted, ask, calls, hosted, messages, session_path, tells, virtual
from helpers_messages import SONNET, call, items, result, says, user
from perdure.context.changed import as_decisions
from perdure.context.numbers import limits
from perdure.context.policy import policy_for
from perdure.context.results.guard import guard
from perdure.context.results.shorten import plan, shorten
from perdure.context.safety.contents import BINARY
from perdure.context.safety.sanitize import sanitize
from perdure.context.text.characters import NUL_SIGN, clean
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import Assembled, EngineCompaction, EngineInfo
from perdure.edges.models.reply import say
from perdure.edges.session.decode import decode_message, encode_message
from perdure.edges.session.history import History
from perdure.edges.tools.outcome import decoded
from perdure.edges.tools.process import Capture
from perdure.kernel.virtual import VirtualClock
from perdure.records import Image, Item, Items, Summary, Text, Thinking, User

# --- characters -----------------------------------------------------------------------------------


@covers("SZ01")
def test_a_lone_surrogate_read_from_disk_is_a_replacement_character_on_the_wire(tmp_path: Path) -> None:
    body = request(opened("SZ01", tmp_path).items)
    assert told(body) == ["log", "ok \ufffd tail", "next \ufffd"]
    json.dumps(body, ensure_ascii=False).encode("utf-8", "strict")


@covers("SZ01")
def test_lone_surrogates_are_replaced_wherever_text_stands_and_signed_thinking_goes_whole() -> None:
    view = items(
        Summary("of \ud83d"), user("go"),
        says(Thinking("t \ud83d", "sig"), "a \udc4d", call("c1", arguments='{"p\\ud83d":"\\udc4d"}')),
        result("c1", "x"), user("next"),
    )  # fmt: skip
    body = request(view, level="high")
    text = json.dumps(body, ensure_ascii=False)
    text.encode("utf-8", "strict")
    assert "sig" not in text
    assert [b["input"] for b in body["messages"][1]["content"] if b["type"] == "tool_use"] == [
        {"p\ufffd": "\ufffd"}
    ]


@covers("SZ01")
@pytest.mark.parametrize("text", ["\U0001f44d" * 5_000, "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 900])
@pytest.mark.parametrize("size", [999, 1_000, 1_001, 1_003])
def test_a_cut_never_falls_inside_a_character_and_leaves_whole_ones_alone(text: str, size: int) -> None:
    cut = plan(text, size, "e1")
    short = shorten(text, cut.head, cut.tail, "e1")
    short.encode("utf-8", "strict")
    unit = text[: 1 if "\u200d" not in text else 5]
    assert cut.head % len(unit) == 0
    assert short.startswith(unit)


@covers("SZ01")
def test_what_we_write_encodes_strictly_and_says_what_was_said() -> None:
    message = user("next \udc4d")
    written = encode_message(message)
    written.decode("utf-8", "strict")
    assert decode_message(written) == message


class Hearing:
    """An engine that remembers every text it was told of."""

    info = EngineInfo("hearing", "Hearing")

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def ingest(self, context: Any, message: Any) -> bool:
        content = getattr(getattr(message, "message", message), "content", ())
        self.heard += [b.text for b in content if isinstance(b, Text)]
        return True

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return Assembled(messages)

    async def compact(self, context: Any, delegate: Any, **_: Any) -> EngineCompaction:
        return EngineCompaction(True, False)


@covers("SZ02")
def test_a_nul_is_a_visible_sign_for_the_model_and_stays_a_nul_in_the_file(tmp_path: Path) -> None:
    output = case("SZ02")["input"]["tool_output"]
    play, engine = Play(calls("dump"), say("done")), Hearing()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, tools=[tells("dump", output)], engine=engine) as host:
            await ask(host, "go")
            await clock.sleep(1)

    virtual(main)
    accepted(play.bodies[KEY])
    sent = play.bodies[KEY][-1].decode("utf-8", "strict")
    assert "\\u0000" not in sent
    assert f"head{NUL_SIGN}{NUL_SIGN}tail" in sent
    assert json.dumps(BINARY, ensure_ascii=False)[1:-1] in sent
    path = session_path(tmp_path)
    assert b"\x00" not in path.read_bytes()
    (stored,) = messages(path, "toolResult")
    assert stored["message"]["content"][0]["text"] == output
    assert "tail" in History(path).search("tail", 5)
    assert any("tail" in text for text in engine.heard)


@covers("SZ03")
def test_a_character_that_arrives_in_pieces_is_whole_and_bad_bytes_end_nothing() -> None:
    capture = Capture(1 << 20)
    for piece in case("SZ03")["input"]["bytes_chunks_hex"]:
        capture.feed(bytes.fromhex(piece))
    assert decoded(capture.whole()) == "\u3042\u3044\U0001f389\ufffd\ufffdA"
    assert capture.total == 13
    capture.close()
    view = items(user("go"), says(call("c1")), result("c1", "\u3042\u3044\U0001f389\ufffd\ufffdA"))
    done = guard(view, fixed_tokens=0, limits=limits(1_000), estimator=Estimator())
    assert done.items == view


@covers("SZ04")
def test_codes_and_invisible_characters_of_a_tool_never_reach_the_model() -> None:
    output = case("SZ04")["input"]["tool_output"]
    view = items(user("go"), says(call("c1")), result("c1", output))
    first, second = request(view), request(view)
    assert told(first)[-1] == "evil ok red"
    assert first == second
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert clean(family, foreign=True) == family


# --- pictures -------------------------------------------------------------------------------------


def png(width: int, height: int, padding: int = 0) -> str:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data + b"\0" * padding).decode()


def album() -> Items:
    """As the report tells: 25 tall pictures, one too wide, one empty, one of another type, one of 6 MB."""
    shots = [Image(png(1170, 2532), "image/png")] * 25
    bad = [Image(png(9000, 10), "image/png"), Image("", "image/png"), Image(png(10, 10), "image/tiff"),
           Image(png(10, 10, 6 * 2**20), "image/png")]  # fmt: skip
    return tuple(Item(f"e{n}", User((Text(f"shot {n}"), image))) for n, image in enumerate([*shots, *bad]))


@covers("SZ05")
def test_pictures_over_any_limit_make_way_and_the_request_is_accepted() -> None:
    view = album()
    body = request(view)
    sent = [b for m in body["messages"] for b in m["content"] if b["type"] == "image"]
    assert 0 < len(sent) <= policy_for(SONNET).images.many
    assert all(f"shot {n}" in told(body) for n in range(29))
    assert view == album()  # what is stored is untouched


@covers("SZ05")
def test_a_picture_that_was_left_out_stays_left_out_and_every_build_is_the_same() -> None:
    policy = policy_for(SONNET)
    first = sanitize(album(), policy, SONNET)
    decided = as_decisions(first.decisions)
    assert sanitize(album(), policy, SONNET).items == first.items
    more = (*album(), Item("later", user("and now?")))
    assert sanitize(more, policy, SONNET, decided=decided).items[: len(first.items)] == first.items


def test_generated_texts_of_cases_are_spelled_out() -> None:
    assert blown_up([{"text": {"$repeat": ["ab", 3]}}]) == [{"text": "ababab"}]
