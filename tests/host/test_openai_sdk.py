"""OpenAI's SDK end to end, for both of its APIs: a host, the client, a strict provider on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import openai  # noqa: F401  # here, so that no test's deadline pays for the import
import pytest
from msgspec.structs import replace

from helpers_host import KEY, Fn, calls, entries, messages, notices, real, session_path, tells, text_of
from perdure.actors.services import Timing
from perdure.edges.models.catalog import resolve
from perdure.edges.models.openai import OpenAIModel
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.models.summaries import extractive_summariser, is_summary_request
from perdure.events import Said, Thought, TurnFinished
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.records import ModelInfo, Text, Thinking, Usage
from perdure.testing.loopback import Loopback, loopback

GPT = replace(resolve("openai/gpt-5"), window=200_000)
FAMILIES = {
    "responses": GPT,
    "chat": replace(resolve("openai/gpt-4.1"), api="openai-completions", window=200_000),
    "mistral": resolve("mistral/mistral-large-latest"),
    "deepseek": resolve("deepseek/deepseek-v4-pro"),
}
QUICK = Timing(retries=2, retry_base=0.01, retry_cap=0.02, model_idle=60)
on_both = pytest.mark.parametrize("loop", ["asyncio", "trio"])
each_family = pytest.mark.parametrize("family", FAMILIES)
both_apis = pytest.mark.parametrize("family", ["responses", "chat"])


class Replies:
    """A provider's script: one answer after another, `ok` when there is none left."""

    def __init__(self, *replies: ScriptedReply) -> None:
        self.left = list(replies)

    def __call__(self, body: dict[str, Any], request: Any) -> ScriptedReply:
        if is_summary_request(body):
            return extractive_summariser(body, request)
        return self.left.pop(0) if self.left else say("ok")


@asynccontextmanager
async def sdk_host(
    folder: Path,
    info: ModelInfo,
    replies: Replies,
    *,
    key: str | None = None,
    tools: Any = (),
    timing: Timing = QUICK,
) -> AsyncIterator[tuple[Host, Loopback]]:
    async with loopback(replies, info) as server, httpx2.AsyncClient(trust_env=False) as client:
        model = OpenAIModel(info, api_key=key or server.key, base_url=server.url, http_client=client)
        async with Host(
            folder / "state", model=model, tools=tools, timing=timing, workspace=folder, environ={}
        ) as host:
            yield host, server
        await model.aclose()


def summaries(server: Loopback) -> int:
    """How many of the requests asked for a summary."""
    return sum("<conversation>" in json.dumps(body) for body in server.requests)


async def told(host: Host, text: str) -> Any:
    return await (await host.send(KEY, text)).reply(30)


@on_both
@each_family
def test_a_turn_of_tool_steps_with_parallel_calls_streams(family: str, loop: Backend, tmp_path: Path) -> None:
    info = FAMILIES[family]
    thinks = info.thinking != "none"
    thought = (Thinking("let me see"),) if thinks else ()
    replies = Replies(
        ScriptedReply((*thought, Text("reading both"), call("read_a"), call("read_b", path="x")), chunks=3),
        ScriptedReply((*thought, call("read_b"), call("read_a"), call("read_a"))),
        say("all are read", chunks=4),
    )
    running = most = 0

    async def reads(arguments: Any, context: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return "text of " + context.call_id

    async def main() -> None:
        tools = [Fn(name, reads) for name in ("read_a", "read_b")]
        async with sdk_host(tmp_path, info, replies, tools=tools) as (host, server):
            stream, said, thoughts = host.events(KEY), "", ""
            sent = await host.send(KEY, "read them " * 1000)
            async for event in stream:
                said += event.text if isinstance(event, Said) else ""
                thoughts += event.text if isinstance(event, Thought) else ""
                if isinstance(event, TurnFinished):
                    break
            await stream.aclose()
            reply = await sent.reply(30)
            assert (reply.text, reply.stop, reply.steps) == ("all are read", "stop", 3)
            assert said == "reading bothall are read"
            assert thoughts == "let me see" * 2 * thinks
            assert reply.usage.prompt > reply.usage.cache_read > 0
            assert reply.usage.cost_usd > 0
            assert (await told(host, "go on")).text == "ok"
            assert len(server.requests) == 4  # each of them was taken by strict rules
            if family == "responses":
                kinds = [item["type"] for item in server.requests[2]["input"]]
                assert kinds.count("reasoning") == 2
                assert kinds.count("function_call_output") == 5

    real(main, loop, 60)
    assert most >= 2
    assert [e["message"]["role"] for e in messages(session_path(tmp_path))].count("toolResult") == 5


@on_both
@both_apis
def test_what_may_pass_is_tried_again_and_the_turn_ends_well(
    family: str, loop: Backend, tmp_path: Path
) -> None:
    replies = Replies(
        fail("rate_limit", retry_after=0.02),
        fail("overloaded"),
        say("one"),
        fail("server"),
        ScriptedReply((Text("this breaks off in the middle"),), fault="cut", chunks=6),
        say("two"),
        ScriptedReply((Text("this one too, with an event"),), fault="overloaded_midway", chunks=6),
        say("three"),
    )

    async def main() -> None:
        async with sdk_host(tmp_path, FAMILIES[family], replies) as (host, server):
            seen = notices(host)
            for text, retries in (("one", 2), ("two", 2), ("three", 1)):
                reply = await told(host, "go")
                assert (reply.text, reply.stop, len(reply.errors)) == (text, "stop", retries)
            assert [n.kind for n in seen] == ["retry"] * 5
            assert len(server.requests) == 8

    real(main, loop, 60)


@on_both
@each_family
def test_an_overflow_of_the_provider_leads_to_a_compaction_and_a_retry(
    family: str, loop: Backend, tmp_path: Path
) -> None:
    replies = Replies(*[say(f"answer {n} " + "words upon words " * 100) for n in range(5)])

    async def main() -> None:
        async with sdk_host(tmp_path, FAMILIES[family], replies) as (host, server):
            for n in range(5):
                await told(host, f"question {n}")
            replies.left = [fail("overflow"), say("it fits now")]
            reply = await told(host, "one more")
            assert (reply.text, reply.stop) == ("it fits now", "stop")
            assert summaries(server) >= 1

    real(main, loop, 60)
    assert [e["type"] for e in entries(session_path(tmp_path))].count("compaction") == 1


FAULTS: dict[str, tuple[ScriptedReply, str, int]] = {
    "stall": (fail("stall"), "sent nothing", 3),
    "empty": (fail("empty"), "empty", 3),
    "refusal": (ScriptedReply((Text("no"),), fault="refusal"), "refus", 1),
    "billing": (fail("billing"), "quota", 1),
    "always busy": (fail("overloaded"), "verloaded", 3),
}


@both_apis
@pytest.mark.parametrize("name", FAULTS)
def test_a_provider_that_keeps_failing_is_a_typed_end_and_the_session_goes_on(
    name: str, family: str, tmp_path: Path
) -> None:
    reply, words, tries = FAULTS[name]
    replies = Replies(reply, reply, reply)
    timing = Timing(retries=2, retry_base=0.01, retry_cap=0.02, model_idle=0.5)

    async def main() -> None:
        async with sdk_host(tmp_path, FAMILIES[family], replies, timing=timing) as (host, server):
            failed = await told(host, "go")
            assert failed.stop == "error"
            assert words in failed.errors[-1]
            assert "\n" not in failed.errors[-1]
            assert len(server.requests) == tries
            replies.left.clear()
            assert (await told(host, "again")).text == "ok"

    real(main, "trio", 60)


@both_apis
def test_malformed_arguments_become_an_error_result_and_are_never_run(family: str, tmp_path: Path) -> None:
    look = tells("look")
    replies = Replies(calls("look", fault="malformed_arguments"), say("sorry"))
    replies.left[0] = replace(replies.left[0], blocks=(call("look"),))

    async def main() -> None:
        async with sdk_host(tmp_path, FAMILIES[family], replies, tools=[look]) as (host, _):
            assert (await told(host, "go")).text == "sorry"
            assert (await told(host, "again")).text == "ok"

    real(main, "asyncio", 60)
    assert look.runs == 0
    assert "not valid JSON" in text_of(messages(session_path(tmp_path), "toolResult")[0]["message"])


@on_both
@both_apis
def test_a_wrong_key_is_told_in_one_line_that_says_where_to_look(
    family: str, loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        async with sdk_host(tmp_path, FAMILIES[family], Replies(), key="sk-nonsense-42") as (host, server):
            reply = await told(host, "go")
            assert reply.stop == "error"
            assert "OPENAI_API_KEY" in reply.errors[-1]
            assert "\n" not in reply.errors[-1]
            assert not server.requests

    real(main, loop, 60)
    assert "nonsense" not in json.dumps(entries(session_path(tmp_path)))


@both_apis
def test_usage_tells_input_apart_from_what_the_cache_served(family: str, tmp_path: Path) -> None:
    told_usage = Usage(input=700, output=50, cache_read=1300)

    async def main() -> None:
        async with sdk_host(tmp_path, FAMILIES[family], Replies(say("x", usage=told_usage))) as (host, _):
            usage = (await told(host, "go")).usage
            assert (usage.input, usage.output, usage.cache_read, usage.cache_write) == (700, 50, 1300, 0)
            price = FAMILIES[family].price_input
            assert usage.cost_usd == pytest.approx((830 * price + 50 * FAMILIES[family].price_output) / 1e6)

    real(main, "asyncio", 60)


def test_a_session_goes_from_one_api_to_the_other_and_back(tmp_path: Path) -> None:
    chat, replies = FAMILIES["mistral"], Replies(ScriptedReply((Thinking("hm"), call("look"))), say("first"))

    async def main() -> None:
        async with (
            loopback(replies, GPT) as one,
            loopback(replies, chat) as two,
            httpx2.AsyncClient(trust_env=False) as client,
        ):
            servers = {GPT.provider: one, chat.provider: two}
            factory = lambda info: OpenAIModel(  # noqa: E731
                info, api_key=one.key, base_url=servers[info.provider].url, http_client=client
            )
            async with Host(
                tmp_path / "state", model="gpt", models={"gpt": GPT, "mistral": chat},
                factories={"openai": factory, "mistral": factory},
                tools=[tells("look")], timing=QUICK, workspace=tmp_path, environ={},
            ) as host:  # fmt: skip
                assert (await told(host, "go")).text == "first"
                await host.command(KEY, "/model mistral")
                assert (await told(host, "and you?")).text == "ok"
                await host.command(KEY, "/model gpt")
                assert (await told(host, "back again")).text == "ok"
            assert [m["role"] for m in two.requests[0]["messages"]][1:4] == ["user", "assistant", "tool"]
            assert "reasoning" in [item["type"] for item in one.requests[-1]["input"]]

    real(main, "trio", 60)
