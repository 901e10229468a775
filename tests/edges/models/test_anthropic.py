"""The official SDK against a provider on the loopback interface, on both loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from helpers_models import answer, assistant, body, collect, request, result, text, tool, use, user
from perdure.contracts import Answer, CallStarted, Request, TextDelta, ThinkingDelta
from perdure.edges.models.anthropic import AnthropicModel, streaming
from perdure.edges.models.catalog import resolve
from perdure.edges.models.reply import Fault, ScriptedReply, call, fail, say
from perdure.errors import ModelError
from perdure.records import Text, Thinking, ToolCall, Usage
from perdure.testing.loopback import Loopback, loopback

pytestmark = pytest.mark.anyio
INFO = resolve("anthropic/claude-sonnet-4-5")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def served(
    *replies: ScriptedReply, key: str | None = None
) -> AsyncIterator[tuple[AnthropicModel, Loopback]]:
    left = list(replies)
    async with loopback(lambda data, asked: left.pop(0), INFO) as server:
        model = AnthropicModel(INFO, api_key=key or server.key, base_url=server.url)
        try:
            yield model, server
        finally:
            await model.aclose()


def asked(*messages: dict[str, Any], **more: Any) -> Request:
    return request(body(*messages, **{"model": INFO.id, **more}), INFO)


async def failed(reply: ScriptedReply, *, key: str | None = None) -> ModelError:
    async with served(reply, key=key) as (model, _):
        with pytest.raises(ModelError) as caught:
            await collect(model, asked())
        assert model.errors == {caught.value.kind: 1}
        return caught.value


async def test_a_plain_answer_streams_and_reports_its_usage() -> None:
    async with served(say("hello there, you", chunks=3)) as (model, server):
        events = await collect(model, asked())
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "hello there, you"
    assert sum(isinstance(e, TextDelta) for e in events) == 3
    last = events[-1]
    assert isinstance(last, Answer)
    assert last.message.content == (Text("hello there, you"),)
    assert (last.message.stop, last.message.provider, last.message.model) == ("stop", "anthropic", INFO.id)
    assert last.message.usage == Usage(8, 4, 0, 0, 8.4e-05)
    assert server.requests[0]["stream"] is True


async def test_three_parallel_calls_arrive_whole_and_in_order() -> None:
    calls = (call("read", path="a"), call("read", path="b", deep={"x": [1]}), call("now"))
    async with served(ScriptedReply((Text("ok"), *calls), chunks=4)) as (model, _):
        events = await collect(model, asked(tools=[tool()]))
    assert [e.name for e in events if isinstance(e, CallStarted)] == ["read", "read", "now"]
    last = events[-1]
    assert isinstance(last, Answer)
    got = [b for b in last.message.content if isinstance(b, ToolCall)]
    assert [msgspec.json.decode(b.arguments) for b in got] == [
        {"path": "a"},
        {"path": "b", "deep": {"x": [1]}},
        {},
    ]
    assert len({b.id for b in got}) == 3
    assert last.message.stop == "toolUse"


async def test_thinking_keeps_its_signature_and_goes_back_as_it_was() -> None:
    config = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    replies = (
        ScriptedReply((Thinking("let me see"), call("read", ident="A")), chunks=2),
        say("done"),
        say("never"),
    )
    async with served(*replies) as (model, _):
        events = await collect(model, asked(user("a"), **config))
        assert "".join(e.text for e in events if isinstance(e, ThinkingDelta)) == "let me see"
        last = events[-1]
        assert isinstance(last, Answer)
        thought = last.message.content[0]
        assert isinstance(thought, Thinking)
        assert thought.signature
        block = {"type": "thinking", "thinking": thought.thinking, "signature": thought.signature}
        loop = (user("a"), assistant(block, use("A")), user(result("A")))
        assert (await answer(model, asked(*loop, **config))).message.content == (Text("done"),)
        block["thinking"] += "!"
        with pytest.raises(ModelError, match="cannot be modified"):
            await collect(model, asked(*loop, **config))


@pytest.mark.parametrize(
    ("fault", "kind", "status", "wait"),
    [
        ("rate_limit", "rate_limit", 429, 7.0),
        ("overloaded", "overloaded", 529, 7.0),
        ("server", "server", 500, 7.0),
        ("overflow", "overflow", 400, None),
        ("billing", "billing", 400, None),
        ("auth", "auth", 401, None),
        ("cut", "cut", None, None),
        ("overloaded_midway", "overloaded", None, None),
        ("empty", "empty", None, None),
    ],
)
async def test_each_fault_is_one_kind_of_error(
    fault: Fault, kind: str, status: int | None, wait: float | None
) -> None:
    error = await failed(fail(fault, blocks=(Text("some words to cut off"),), chunks=6, retry_after=7))
    assert (error.kind, error.status, error.retry_after) == (kind, status, wait)


async def test_the_sdk_retries_nothing_by_itself() -> None:
    async with served(fail("overloaded"), say("second")) as (model, server):
        with pytest.raises(ModelError):
            await collect(model, asked())
        assert len(server.requests) == 1


async def test_a_stalled_answer_ends_by_the_callers_deadline() -> None:
    async with served(fail("stall")) as (model, server):
        with anyio.move_on_after(0.3) as scope:
            await collect(model, asked())
        assert scope.cancelled_caught
        assert len(server.requests) == 1


async def test_a_wrong_key_gives_one_clear_line() -> None:
    error = await failed(say("x"), key="wrong")
    assert error.kind == "auth"
    assert str(error) == (
        "the API key was refused (401 authentication_error: invalid x-api-key): check ANTHROPIC_API_KEY"
    )


async def test_no_key_at_all_gives_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ModelError, match="no API key: set ANTHROPIC_API_KEY") as caught:
        await collect(AnthropicModel(INFO), asked())
    assert caught.value.kind == "auth"


async def test_a_key_with_a_strange_character_is_named_as_such() -> None:
    error = await failed(say("x"), key="schlüssel…")
    assert error.kind == "auth"
    assert "character" in str(error)


async def test_nobody_listening_is_a_transport_error() -> None:
    async with served(say("x")) as (_, server):
        url = server.url
    model = AnthropicModel(INFO, api_key="k", base_url=url)
    with pytest.raises(ModelError) as caught:
        await collect(model, asked())
    assert caught.value.kind == "transport"
    await model.aclose()


async def test_broken_arguments_come_with_their_error_and_what_could_be_read() -> None:
    reply = fail(
        "malformed_arguments", blocks=(call("write", ident="c1"),), malformed='{"path": "a", "b": [1, '
    )
    async with served(reply) as (model, _):
        found = await answer(model, asked())
    assert found.message.content == (ToolCall("c1", "write", b'{"path":"a","b":[1]}'),)
    assert [call_id for call_id, _ in found.errors] == ["c1"]


async def test_a_refusal_is_an_answer_that_ended_in_error() -> None:
    async with served(fail("refusal", blocks=(Text("I can't"),))) as (model, _):
        found = await answer(model, asked())
    assert found.message.stop == "error"
    assert found.message.error == "the model refused to answer (refusal)"


async def test_an_answer_cut_by_its_limit_says_so() -> None:
    async with served(say("and then", stop="length")) as (model, _):
        assert (await answer(model, asked())).message.stop == "length"


async def test_a_broken_request_is_refused_with_the_providers_words() -> None:
    async with served(say("x")) as (model, _):
        with pytest.raises(ModelError, match="`tool_use` ids were found without") as caught:
            await collect(model, asked(user("a"), assistant(use("A")), user("b")))
    assert caught.value.kind == "invalid"


async def test_cache_reads_and_writes_reach_the_usage_and_its_price() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    ask = asked(user("hi"), system=[text("rule " * 2000, cache_control=mark)])
    async with served(say("one"), say("two")) as (model, _):
        first = (await answer(model, ask)).message.usage
        second = (await answer(model, ask)).message.usage
    assert first is not None
    assert second is not None
    assert first.cache_write == second.cache_read > 1900
    assert first.prompt == second.prompt
    assert first.cost_usd == pytest.approx((first.input * 3 + first.cache_write * 6 + 15) / 1e6)


async def test_the_sdk_counts_what_a_message_bills() -> None:
    import anthropic

    async with served(say("x")) as (model, server):
        used = (await answer(model, asked(user("how many are these?"), tools=[tool()]))).message.usage
        client = anthropic.AsyncAnthropic(api_key=server.key, base_url=server.url)
        counted = await client.messages.count_tokens(
            model=INFO.id, messages=[{"role": "user", "content": "how many are these?"}], tools=[tool()]
        )
        await client.close()
    assert used is not None
    assert counted.input_tokens == used.prompt


async def test_the_sdk_reads_an_answer_that_is_not_streamed() -> None:
    import anthropic

    async with loopback(lambda data, asked: say("whole"), INFO) as server:
        client = anthropic.AsyncAnthropic(api_key=server.key, base_url=server.url)
        with pytest.warns(DeprecationWarning, match="deprecated"):
            told = await client.messages.create(
                model=INFO.id, max_tokens=10, messages=[{"role": "user", "content": "x"}]
            )
        await client.close()
    assert told.content[0].type == "text"
    assert told.content[0].text == "whole"


def test_a_body_is_asked_to_stream_without_touching_its_other_bytes() -> None:
    assert streaming(b'{"a": 1.50}') == b'{"a": 1.50,"stream":true}'
    assert streaming(b'{"stream":true,"a":1}') == b'{"stream":true,"a":1}'
    assert msgspec.json.decode(streaming(b'{"stream":false}')) == {"stream": True}
    assert msgspec.json.decode(streaming(b"{}")) == {"stream": True}
