"""Webhooks against a server on loopback: what is sent, how it is signed, what each answer means."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from helpers_host import real
from helpers_kernel import each_loop
from perdure.contracts import Delivery
from perdure.edges.channels.addresses import is_public
from perdure.edges.channels.webhook import Webhook, encoded
from perdure.errors import ConfigError, DeliveryFailed
from perdure.kernel.run import Backend

KEY = b"k" * 24
SECRET = "whsec_" + base64.b64encode(KEY).decode()
NOW = 1_767_600_000_123
ANSWER = Delivery("msg_1", "agent:main:hook:dm:x", "hook", "reply", "Grüße \ud800", "e1", NOW - 5_000)


class Server:
    """Answers each request with the next reply, and keeps what it was sent."""

    def __init__(self, port: int, replies: list[bytes]) -> None:
        self.url, self.replies = f"http://127.0.0.1:{port}/in?token=t0p", replies
        self.seen: list[tuple[dict[str, str], bytes]] = []

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            raw = b""
            while b"\r\n\r\n" not in raw:
                raw += await stream.receive()
            head, _, body = raw.partition(b"\r\n\r\n")
            fields = dict(row.split(": ", 1) for row in head.decode().split("\r\n")[1:])
            lower = {name.lower(): value for name, value in fields.items()}
            while len(body) < int(lower["content-length"]):
                body += await stream.receive()
            self.seen.append((lower | {"": head.decode().split("\r\n")[0]}, body))
            reply = self.replies.pop(0)
            try:
                await stream.send(reply)
                if reply.startswith(b"HTTP/1.1 200 endless"):
                    while True:
                        await stream.send(b"x" * 65_536)
                if not reply:
                    await anyio.sleep_forever()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return


@asynccontextmanager
async def served(*replies: str) -> AsyncIterator[Server]:
    whole = [f"HTTP/1.1 {reply}\r\n\r\n".encode() if reply else b"" for reply in replies]
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    server = Server(listener.extra(anyio.abc.SocketAttribute.local_port), whole)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        yield server
        tasks.cancel_scope.cancel()


def hook(url: str, secret: str = SECRET, **options: Any) -> Webhook:
    given = {"allow_private": True, "timeout": 5.0} | options
    return Webhook("hook", url, secret, wall_ms=lambda: NOW, **given)


def on(loop: Backend, main: Callable[[], Awaitable[Any]]) -> Any:
    return real(main, loop)


async def refusal(webhook: Webhook) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        await webhook.send(ANSWER)
    assert "t0p" not in str(caught.value)
    assert "Grüße" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)
    return caught.value


@each_loop
def test_a_receiver_can_verify_what_it_got_with_either_of_two_secrets(loop: Backend) -> None:
    other = base64.b64encode(b"z" * 32).decode()

    async def main() -> Server:
        async with served("204 No Content", "200 endless\r\ncontent-length: 99999999") as server:
            webhook = hook(server.url, f"{SECRET} whsec_{other}")
            await webhook.send(ANSWER)
            await webhook.send(ANSWER)
            return server

    (head, body), (_, again) = on(loop, main).seen
    assert head[""] == "POST /in?token=t0p HTTP/1.1"
    assert (head["webhook-id"], head["webhook-timestamp"]) == ("msg_1", "1767600000")
    assert head["content-type"] == "application/json"
    assert head["host"].startswith("127.0.0.1:")
    marks = []
    for key in (KEY, b"z" * 32):
        digest = hmac.digest(key, b"msg_1.1767600000." + body, hashlib.sha256)
        marks.append(f"v1,{base64.b64encode(digest).decode()}")
    assert head["webhook-signature"].split() == marks
    assert again == body == encoded(ANSWER)
    assert json.loads(body) == {
        "type": "session.reply",
        "timestamp": "2026-01-05T07:59:55.123Z",
        "data": {"session": "agent:main:hook:dm:x", "channel": "hook", "entry": "e1", "text": "Grüße \ufffd",
                 "stop": "stop", "error": ""},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "kind", "after"),
    [
        ("410 Gone", "gone", None),
        ("429 Slow\r\nretry-after: 120", "retryable", 120.0),
        ("503 No\r\nretry-after: Mon, 05 Jan 2026 08:01:00 GMT", "retryable", 59.877),
        ("503 No\r\nretry-after: soon", "retryable", None),
        ("500 Broke", "retryable", None),
        ("408 Slow", "retryable", None),
        ("400 Bad", "permanent", None),
        ("302 Found\r\nlocation: http://127.0.0.1:1/", "permanent", None),
        ("", "ambiguous", None),
        ("not http", "ambiguous", None),
    ],
)
def test_each_answer_has_its_meaning(reply: str, kind: str, after: float | None) -> None:
    async def main() -> tuple[DeliveryFailed, int]:
        async with served(reply, "204 No") as server:
            error = await refusal(hook(server.url, timeout=0.3))
            return error, len(server.seen)

    error, requests = on("asyncio", main)
    assert (error.kind, requests) == (kind, 1)
    assert error.retry_after == (None if after is None else pytest.approx(after))


@each_loop
def test_nobody_who_listens_is_surely_not_sent_to(loop: Backend) -> None:
    async def main() -> list[str]:
        async with served() as server:
            closed = server.url
        found = [await refusal(hook(closed)), await refusal(hook("http://nowhere.invalid/"))]
        return [error.kind for error in found]

    assert on(loop, main) == ["retryable", "retryable"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"]
)
def test_an_address_that_is_not_public_is_refused_before_it_is_connected_to(host: str) -> None:
    async def main() -> tuple[str, int]:
        async with served("204 No") as server:
            port = server.url.partition("127.0.0.1:")[2].partition("/")[0]
            error = await refusal(hook(f"http://{host}:{port}/in", allow_private=False))
            return str(error), len(server.seen)

    told, requests = on("asyncio", main)
    assert ("not public" in told or "not known" in told, requests) == (True, 0)


def test_which_addresses_are_public() -> None:
    private = (
        "127.0.0.1 10.0.0.1 192.168.1.1 172.16.0.1 169.254.169.254 0.0.0.0 100.64.0.1 224.0.0.1 "
        "255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1 "
        "2002:7f00:1:: no-address"
    )
    assert [each for each in private.split() if is_public(each)] == []
    assert all(is_public(each) for each in ("1.1.1.1", "2606:4700::1111", "64:ff9b::1.1.1.1"))


@pytest.mark.parametrize(
    "secret", ["", "plain", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!", f"{SECRET} whsec_x"]
)
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"outbound\.hook\.secret_env") as caught:
        Webhook("hook", "https://x.example/", secret, wall_ms=lambda: NOW, secret_env="HOOK")
    for part in secret.split():
        assert part in ("whsec_", "plain") or part not in str(caught.value)
    assert repr(hook("https://u:p@x.example/")) == "Webhook('hook')"
