"""The loopback provider speaks plain HTTP: what no SDK sends is refused in the provider's order."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from helpers_models import assistant, body, use, user
from perdure.edges.models.catalog import resolve
from perdure.edges.models.reply import say
from perdure.testing.loopback import Loopback, loopback

pytestmark = pytest.mark.anyio
INFO = resolve("anthropic/claude-sonnet-4-5")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return body(*messages, **{"model": INFO.id, **more})


def headers(server: Loopback, **more: str) -> dict[str, str]:
    return {"x-api-key": server.key, "anthropic-version": "2023-06-01", **more}


async def post(
    server: Loopback, data: Any, path: str = "/v1/messages", told: dict[str, str] | None = None
) -> httpx2.Response:
    raw = data if isinstance(data, bytes) else msgspec.json.encode(data)
    async with httpx2.AsyncClient(base_url=server.url, trust_env=False) as client:
        return await client.post(path, content=raw, headers=headers(server) if told is None else told)


async def test_refusals_come_in_the_providers_order() -> None:
    async with loopback(lambda data, request: say("x")) as server:
        key = headers(server)
        cases = [
            (b"{", {"anthropic-version": "1"}, 401, "invalid x-api-key"),
            (b"{", {"x-api-key": server.key}, 400, "anthropic-version: header is required"),
            (b"x" * (32 * 1024 * 1024 + 1), key, 413, "Request exceeds the maximum size"),
            (b"{", key, 400, "The request body is not valid JSON: "),
            (b"{}", key, 400, "model: Field required"),
            (msgspec.json.encode(asked(model="nope")), key, 404, "model: nope"),
            (msgspec.json.encode(asked(user("a"), assistant(use("A")), user("b"))), key, 400, "messages.1: "),
            (msgspec.json.encode(asked(user("word " * 201_000))), key, 400, "prompt is too long: 201"),
        ]
        for raw, told, status, message in cases:
            reply = await post(server, raw, told=told)
            assert (reply.status_code, reply.json()["type"]) == (status, "error")
            assert reply.json()["error"]["message"].startswith(message)
            assert reply.headers["request-id"].startswith("req_")


async def test_a_bearer_token_is_a_key_too_and_another_path_is_not_found() -> None:
    async with loopback(lambda data, request: say("x")) as server:
        told = {"authorization": f"Bearer {server.key}", "anthropic-version": "2023-06-01"}
        assert (await post(server, asked(), told=told)).status_code == 200
        assert (await post(server, asked(), "/v1/other", told)).status_code == 404


async def test_one_connection_serves_many_requests() -> None:
    async with loopback(lambda data, request: say("x")) as server:
        async with httpx2.AsyncClient(
            base_url=server.url, headers=headers(server), trust_env=False
        ) as client:
            for stream in (True, False, True):
                raw = msgspec.json.encode(asked(stream=stream))
                assert (await client.post("/v1/messages", content=raw)).status_code == 200
        assert [seen["stream"] for seen in server.requests] == [True, False, True]


async def test_a_stream_has_the_providers_events_in_their_order() -> None:
    async with loopback(lambda data, request: say("two words", chunks=2)) as server:
        reply = await post(server, asked(stream=True))
    names = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    assert names == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


async def test_counting_needs_no_max_tokens_and_equals_the_bill() -> None:
    data = asked()
    async with loopback(lambda data, request: say("x")) as server:
        used = (await post(server, data)).json()["usage"]
        del data["max_tokens"]
        counted = (await post(server, data, "/v1/messages/count_tokens")).json()
    total = used["input_tokens"] + used["cache_read_input_tokens"] + used["cache_creation_input_tokens"]
    assert counted == {"input_tokens": total}


async def test_a_client_that_leaves_in_the_middle_harms_nobody() -> None:
    async with loopback(lambda data, request: say("x")) as server:
        port = int(server.url.rpartition(":")[2])
        for raw in (
            b"",
            b"POST /v1/mess",
            b"nonsense\r\n\r\n",
            b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab",
        ):
            stream = await anyio.connect_tcp("127.0.0.1", port)
            if raw:
                await stream.send(raw)
            await stream.aclose()
        assert (await post(server, asked())).status_code == 200


OPENAI = {"chat": ("openai/gpt-4o", "/chat/completions"), "responses": ("openai/gpt-5", "/responses")}


def openai_body(api: str, **more: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": OPENAI[api][0].removeprefix("openai/")}
    words = [{"role": "user", "content": "hello"}]
    return asked | {"messages" if api == "chat" else "input": words} | more


@pytest.mark.parametrize("api", OPENAI)
async def test_the_apis_of_openai_refuse_in_their_own_words(api: str) -> None:
    ref, path = OPENAI[api]
    info = replace(
        resolve(ref), api="openai-completions" if api == "chat" else "openai-responses", window=1000
    )
    async with loopback(lambda data, request: say("x"), info) as server:
        key = {"authorization": f"Bearer {server.key}"}
        over = openai_body(
            api,
            **(
                {"messages": [{"role": "user", "content": "word " * 2_000}]}
                if api == "chat"
                else {"input": "word " * 2_000}
            ),
        )
        cases = [
            (b"{", {}, 401, "Incorrect API key", "invalid_api_key"),
            (b"{", key, 400, "The request body is not valid JSON: ", None),
            (
                msgspec.json.encode(openai_body(api, max_turns=1)),
                key,
                400,
                "Unknown parameter",
                "unknown_parameter",
            ),
            (
                msgspec.json.encode(openai_body(api) | {"model": "nope"}),
                key,
                404,
                "The model `nope`",
                "model_not_found",
            ),
            (msgspec.json.encode(over), key, 400, "", "context_length_exceeded"),
        ]
        for raw, told, status, message, code in cases:
            reply = await post(server, raw, path, told)
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (status, code)
            assert error["message"].startswith(message)


async def test_the_apis_of_openai_answer_in_one_piece_where_no_stream_is_asked_for() -> None:
    for api, (ref, path) in OPENAI.items():
        info = replace(resolve(ref), api="openai-completions" if api == "chat" else "openai-responses")
        async with loopback(lambda data, request: say("four words of answer"), info) as server:
            key = {"authorization": f"Bearer {server.key}"}
            told = (await post(server, openai_body(api), path, key)).json()
            if api == "chat":
                assert told["choices"][0]["message"]["content"] == "four words of answer"
                assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] + 4
            else:
                assert told["output"][0]["content"][0]["text"] == "four words of answer"
                assert (told["status"], told["usage"]["output_tokens"]) == ("completed", 4)
