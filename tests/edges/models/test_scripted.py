"""The scripted model answers as written, refuses like a provider, and shows every fault as one kind."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import msgspec
import pytest

from helpers_models import (
    INFO,
    JumpingClock,
    answer,
    assistant,
    body,
    collect,
    request,
    result,
    text,
    use,
    user,
)
from perdure.contracts import Answer, CallStarted, Request, TextDelta, ThinkingDelta
from perdure.edges.models.reply import Fault, ScriptedReply, Source, call, fail, say
from perdure.edges.models.scripted import PromptDigests, ScriptedModel
from perdure.errors import ModelError
from perdure.records import ModelInfo, Text, Thinking, ToolCall, Usage

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def model(source: Source | ScriptedReply, info: ModelInfo = INFO, **options: Any) -> ScriptedModel:
    chosen = (lambda body, asked: source) if isinstance(source, ScriptedReply) else source
    return ScriptedModel(info, chosen, JumpingClock(), **options)


async def failure(scripted: ScriptedModel, asked: Request) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await collect(scripted, asked)
    return caught.value


async def test_an_answer_streams_its_text_in_pieces_and_ends_with_the_whole() -> None:
    events = await collect(model(say("hello there", chunks=3)), request())
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["hell", "o th", "ere"]
    assert isinstance(events[-1], Answer)
    assert events[-1].message.content == (Text("hello there"),)
    assert events[-1].message.stop == "stop"


async def test_calls_without_an_id_get_one_that_a_replay_gets_too_and_no_other_request() -> None:
    scripted = model(ScriptedReply((call("read", path="a"), call("read", path="b"))))
    first = await answer(scripted, request())
    again = await answer(scripted, request())
    other = await answer(scripted, request(body(user("other"))))
    ids = [[b.id for b in a.message.content if isinstance(b, ToolCall)] for a in (first, again, other)]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4
    assert first.message.stop == "toolUse"


async def test_thinking_and_calls_are_announced_in_order() -> None:
    events = await collect(model(ScriptedReply((Thinking("hm"), Text("so"), call("read")))), request())
    assert [type(e) for e in events] == [ThinkingDelta, TextDelta, CallStarted, Answer]


@pytest.mark.parametrize(
    ("fault", "kind", "status"),
    [
        ("rate_limit", "rate_limit", 429),
        ("overloaded", "overloaded", 529),
        ("server", "server", 500),
        ("overflow", "overflow", 400),
        ("auth", "auth", 401),
        ("billing", "billing", 400),
        ("cut", "cut", None),
        ("overloaded_midway", "overloaded", None),
        ("empty", "empty", None),
    ],
)
async def test_each_fault_is_one_kind_of_error(fault: Fault, kind: str, status: int | None) -> None:
    scripted = model(fail(fault, blocks=(Text("half of an answer"),), retry_after=30, chunks=4))
    error = await failure(scripted, request())
    assert (error.kind, error.status) == (kind, status)
    assert error.retry_after == (30 if fault in ("rate_limit", "overloaded", "server") else None)
    assert scripted.errors == {kind: 1}


async def test_a_cut_answer_shows_what_came_before_the_cut() -> None:
    seen: list[str] = []
    try:
        async for event in model(fail("cut", blocks=(Text("abcdefgh"),), chunks=4)).stream(request()):
            assert isinstance(event, TextDelta)
            seen.append(event.text)
    except ModelError as error:
        seen.append(error.kind)
    assert seen == ["ab", "cd", "cut"]


async def test_a_stalled_answer_ends_by_the_callers_deadline_only() -> None:
    with anyio.move_on_after(0.05) as scope:
        await collect(model(fail("stall")), request())
    assert scope.cancelled_caught


async def test_broken_arguments_come_with_their_error_and_what_could_be_read() -> None:
    reply = fail(
        "malformed_arguments", blocks=(call("write", ident="c1"),), malformed='{"path": "a.md", "tex'
    )
    found = await answer(model(reply), request())
    assert found.message.content == (ToolCall("c1", "write", b'{"path":"a.md"}'),)
    assert found.message.stop == "toolUse"
    assert found.errors[0][0] == "c1"
    assert "not valid JSON" in found.errors[0][1]


async def test_a_refusal_is_an_answer_that_ended_in_error() -> None:
    found = await answer(model(fail("refusal")), request())
    assert found.message.stop == "error"
    assert "refus" in (found.message.error or "")


async def test_a_request_with_a_broken_structure_is_refused_and_counted() -> None:
    scripted = model(say("x"))
    error = await failure(scripted, request(body(user("a"), assistant(use("A")), user("b"))))
    assert (error.kind, error.status) == ("invalid", 400)
    assert "`tool_use` ids were found without `tool_result` blocks immediately after: A." in str(error)
    assert (scripted.requests, scripted.refused, scripted.errors) == (1, 1, {"invalid": 1})


async def test_without_strict_the_same_request_is_answered() -> None:
    asked = request(body(user("a"), assistant(use("A")), user("b")))
    assert (await answer(model(say("x"), strict=False), asked)).message.stop == "stop"


async def test_a_prompt_over_the_window_is_refused_with_both_numbers() -> None:
    small = msgspec.structs.replace(INFO, window=100)
    error = await failure(model(say("x"), small), request(body(user("word " * 200)), small))
    assert error.kind == "overflow"
    assert str(error).endswith("tokens > 100 maximum")
    assert "prompt is too long: 2" in str(error)


async def test_an_answer_ends_where_the_window_does() -> None:
    small = msgspec.structs.replace(INFO, window=20)
    found = await answer(
        model(ScriptedReply((Text("one two three " * 20), call("read"))), small), request(None, small)
    )
    assert found.message.stop == "length"
    assert found.message.usage == Usage(
        8, 12, 0, 0, found.message.usage.cost_usd if found.message.usage else 0
    )
    assert found.message.content == (Text("one two three " * 3 + "one two three"),)


async def test_an_older_model_counts_the_answer_it_was_asked_for() -> None:
    old = ModelInfo("anthropic", "claude-opus-4-20250514", window=1000, thinking="enabled")
    asked = request(body(model=old.id, max_tokens=995), old)
    error = await failure(model(say("x"), old), asked)
    assert error.kind == "overflow"
    assert "`max_tokens` exceed context limit: 8 + 995 > 1000" in str(error)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"model": "\\ud83d"}'])
async def test_a_body_that_is_no_json_object_is_refused(raw: bytes) -> None:
    assert (await failure(model(say("x")), Request(raw, INFO))).kind == "invalid"


async def test_usage_counts_prompt_and_answer_unless_the_script_says_its_own() -> None:
    counted = (await answer(model(say("one two three")), request())).message.usage
    assert counted is not None
    assert counted.output == 3
    assert counted.input == 8  # framing of request and message, one word
    told = (await answer(model(say("x", usage=Usage(1, 2))), request())).message.usage
    assert told == Usage(1, 2)
    bare = (await answer(model(say("x"), accounting=False), request())).message.usage
    assert bare is None


async def test_thinking_that_came_back_changed_is_refused() -> None:
    scripted = model(ScriptedReply((Thinking("deep"), call("read", ident="A"))))
    first = await answer(scripted, request())
    thought = first.message.content[0]
    assert isinstance(thought, Thinking)

    def sent(thinking: str) -> Request:
        block = {"type": "thinking", "thinking": thinking, "signature": thought.signature}
        return request(body(user("a"), assistant(block, use("A")), user(result("A"))))

    assert (await answer(scripted, sent("deep"))).message.stop == "toolUse"
    error = await failure(scripted, sent("deep."))
    assert "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest" in str(error)


async def test_the_source_may_wait_and_sees_body_and_session() -> None:
    async def source(data: dict[str, Any], asked: Request) -> ScriptedReply:
        await anyio.lowlevel.checkpoint()
        return say(f"{asked.session}: {data['messages'][-1]['content']}")

    found = await answer(model(source), request(session="agent:main"))
    assert found.message.content == (Text("agent:main: hello"),)


async def test_prompt_digests_tell_bodies_and_their_order_apart() -> None:
    def after(*texts: str) -> PromptDigests:
        digests = PromptDigests()
        for value in texts:
            digests(request(body(user(text(value)))))
        return digests

    assert after("a", "b").hex("s") == after("a", "b").hex("s") != after("b", "a").hex("s")
    assert after("a").hex("unknown") == after().hex("s")


def test_neither_a_vendor_sdk_nor_the_tokenizer_is_imported_before_its_first_use() -> None:
    code = (
        "import sys\nfrom perdure.edges.models import anthropic, catalog, factories, scripted, sources\n"
        "sys.exit(any(m in sys.modules for m in ('anthropic', 'openai', 'httpx2', 'pydantic', 'bpe_openai')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
