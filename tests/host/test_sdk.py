"""The real SDK end to end: a host, Anthropic's client, and a strict provider on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anthropic  # noqa: F401  # here, so that no test's deadline pays for the import
import anyio
import httpx2
import pytest

from helpers_host import KEY, Fn, calls, entries, messages, notices, real, session_path, tells, text_of
from perdure.actors.services import Timing
from perdure.edges.models.anthropic import AnthropicModel
from perdure.edges.models.catalog import resolve
from perdure.edges.models.reply import ScriptedReply, call, fail, say
from perdure.edges.models.summaries import extractive_summariser, is_summary_request
from perdure.events import Said, TurnFinished
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.records import Text
from perdure.testing.loopback import Loopback, loopback

INFO = resolve("anthropic/claude-sonnet-4-5")
on_both = pytest.mark.parametrize("loop", ["asyncio", "trio"])
QUICK = Timing(retries=2, retry_base=0.01, retry_cap=0.02, model_idle=60)


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
    folder: Path, replies: Replies, *, key: str | None = None, tools: Any = (), timing: Timing = QUICK
) -> AsyncIterator[tuple[Host, Loopback]]:
    async with loopback(replies, INFO) as server, httpx2.AsyncClient(trust_env=False) as client:
        model = AnthropicModel(INFO, api_key=key or server.key, base_url=server.url, http_client=client)
        async with Host(
            folder / "state", model=model, tools=tools, timing=timing, workspace=folder, environ={}
        ) as host:
            yield host, server
        await model.aclose()


async def told(host: Host, text: str) -> Any:
    return await (await host.send(KEY, text)).reply(30)


@on_both
def test_a_turn_of_three_tool_steps_with_parallel_calls_streams(loop: Backend, tmp_path: Path) -> None:
    replies = Replies(
        calls("read_a", "read_b", text="reading both", chunks=3),
        calls("read_b", "read_a", "read_c"),
        calls("read_c"),
        say("all three are read", chunks=4),
    )
    replies.left[1] = ScriptedReply(tuple(call(n, f"toolu_2_{n}") for n in ("read_b", "read_a", "read_c")))
    replies.left[2] = ScriptedReply((call("read_c", "toolu_3_c"),))
    running, most = 0, 0

    async def reads(arguments: Any, context: Any) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return "text of " + context.call_id

    tools = [Fn(name, reads) for name in ("read_a", "read_b", "read_c")]

    async def main() -> None:
        async with sdk_host(tmp_path, replies, tools=tools) as (host, server):
            stream = host.events(KEY)
            sent = await host.send(KEY, "read them " * 1000)
            said: list[str] = []
            async for event in stream:
                if isinstance(event, Said):
                    said.append(event.text)
                if isinstance(event, TurnFinished):
                    break
            await stream.aclose()
            reply = await sent.reply(30)
            assert (reply.text, reply.stop, reply.steps) == ("all three are read", "stop", 4)
            assert "".join(said) == "reading bothall three are read"
            assert len(said) == 7
            assert reply.usage.prompt > 0
            assert reply.usage.cache_read > 0
            assert len(server.requests) == 4
            assert all(body["stream"] for body in server.requests)
            last = server.requests[-1]["messages"]
            assert [len(m["content"]) for m in last if m["role"] == "user"] == [1, 2, 3, 1]

    real(main, loop, 60)
    assert most >= 2
    roles = [e["message"]["role"] for e in messages(session_path(tmp_path))]
    assert roles.count("toolResult") == 6


# On an error event in mid-stream the SDK leaves its readers to the collector, and trio tells of that. The
# connection itself is closed by us.
@pytest.mark.filterwarnings("ignore:Async generator '(anthropic|httpx2|httpcore2):ResourceWarning")
@on_both
def test_what_may_pass_is_tried_again_and_the_turn_ends_well(loop: Backend, tmp_path: Path) -> None:
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
        async with sdk_host(tmp_path, replies) as (host, server):
            seen = notices(host)
            for text, retries in (("one", 2), ("two", 2), ("three", 1)):
                reply = await told(host, "go")
                assert (reply.text, reply.stop, len(reply.errors)) == (text, "stop", retries)
            assert [n.kind for n in seen] == ["retry"] * 5
            assert len(server.requests) == 8

    real(main, loop, 60)
    assert [text_of(e["message"]) for e in messages(session_path(tmp_path), "assistant")] == [
        "one",
        "two",
        "three",
    ]


@on_both
def test_an_overflow_of_the_provider_leads_to_a_compaction_and_a_retry(loop: Backend, tmp_path: Path) -> None:
    replies = Replies(*[say(f"answer {n} " + "words upon words " * 100) for n in range(5)])

    async def main() -> None:
        async with sdk_host(tmp_path, replies) as (host, _):
            for n in range(5):
                await told(host, f"question {n}")
            replies.left = [fail("overflow"), say("it fits now")]
            reply = await told(host, "one more")
            assert (reply.text, reply.stop) == ("it fits now", "stop")

    real(main, loop, 60)
    assert [e["type"] for e in entries(session_path(tmp_path))].count("compaction") == 1


def no_reply(reply: ScriptedReply) -> Callable[[], Replies]:
    return lambda: Replies(reply, reply, reply)


FAULTS: dict[str, tuple[ScriptedReply, str, int]] = {
    "stall": (fail("stall"), "sent nothing", 3),
    "empty": (fail("empty"), "empty", 3),
    "refusal": (ScriptedReply((Text("no"),), fault="refusal"), "refus", 1),
    "billing": (fail("billing"), "credit", 1),
    "always busy": (fail("overloaded"), "verloaded", 3),
}


@on_both
@pytest.mark.parametrize("name", FAULTS)
def test_a_provider_that_keeps_failing_is_a_typed_end_and_the_session_goes_on(
    name: str, loop: Backend, tmp_path: Path
) -> None:
    reply, words, tries = FAULTS[name]
    replies = Replies(reply, reply, reply)
    timing = Timing(retries=2, retry_base=0.01, retry_cap=0.02, model_idle=0.5)

    async def main() -> None:
        async with sdk_host(tmp_path, replies, timing=timing) as (host, server):
            failed = await told(host, "go")
            assert failed.stop == "error"
            assert words in failed.errors[-1]
            assert "\n" not in failed.errors[-1]
            assert len(server.requests) == tries
            replies.left.clear()
            assert (await told(host, "again")).text == "ok"

    real(main, loop, 60)


@on_both
def test_malformed_arguments_become_an_error_result_and_are_never_run(loop: Backend, tmp_path: Path) -> None:
    look = tells("look")
    replies = Replies(calls("look", fault="malformed_arguments"), say("sorry"))

    async def main() -> None:
        async with sdk_host(tmp_path, replies, tools=[look]) as (host, _):
            assert (await told(host, "go")).text == "sorry"
            assert (await told(host, "again")).text == "ok"

    real(main, loop, 60)
    assert look.runs == 0
    assert "not valid JSON" in text_of(messages(session_path(tmp_path), "toolResult")[0]["message"])


@on_both
def test_a_wrong_key_is_told_in_one_line_that_says_where_to_look(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with sdk_host(tmp_path, Replies(), key="sk-nonsense-42") as (host, server):
            reply = await told(host, "go")
            assert reply.stop == "error"
            assert "ANTHROPIC_API_KEY" in reply.errors[-1]
            assert "\n" not in reply.errors[-1]
            assert not server.requests
            assert (await told(host, "again")).stop == "error"

    real(main, loop, 60)
    assert "nonsense" not in json.dumps(entries(session_path(tmp_path)))


def test_an_abort_closes_the_connection_and_the_next_turn_works(tmp_path: Path) -> None:
    async def main() -> None:
        replies = Replies(fail("stall"))
        async with sdk_host(tmp_path, replies) as (host, server):
            sent = await host.send(KEY, "go")
            with anyio.fail_after(20):
                while not server.requests:
                    await anyio.lowlevel.checkpoint()
            assert await host.abort(KEY)
            assert (await sent.reply(10)).stop == "aborted"
            assert (await told(host, "again")).text == "ok"

    real(main, "asyncio", 60)
