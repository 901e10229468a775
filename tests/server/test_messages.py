"""Posting messages: acknowledged in the file, answered, idempotent, and refused in one line."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from helpers_host import KEY, Gate, Play, real, said_by_users, session_path
from helpers_kernel import each_loop
from helpers_serve import PATH, serving, tenant, token
from perdure.edges.models.reply import say
from perdure.edges.settings_hosting import ServerSettings
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend


@each_loop
def test_a_message_is_answered_and_the_same_id_again_costs_no_second_turn(
    loop: Backend, tmp_path: Path
) -> None:
    play = Play(say("hello back"))

    async def main() -> None:
        async with serving(tmp_path, play) as found, found.client() as client:
            sent = {"json": {"text": "hello"}, "headers": {"idempotency-key": "m-1"}}
            first = await client.post(f"{PATH}/messages?wait=20", **sent)
            again = await client.post(f"{PATH}/messages?wait=20", **sent)
            assert (first.status_code, again.status_code) == (200, 200)
            told: dict[str, Any] = first.json()
            assert (told["reply"], told["stop"], told["mid"], told["repeated"]) == (
                "hello back", "stop", "m-1", False,
            )  # fmt: skip
            assert again.json()["reply"] == "hello back"
            assert (again.json()["entry"], again.json()["repeated"]) == (told["entry"], True)

    real(main, loop)
    assert said_by_users(session_path(tmp_path)) == ["hello"]
    assert len(play.bodies[KEY]) == 1


def test_an_id_that_comes_with_another_text_is_refused_waiting_or_answered(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate(RealClock())
        async with serving(tmp_path, Play(gate, say("done"))) as found, found.client() as client:

            async def post(mid: str, text: str) -> tuple[int, str]:
                headers = {"idempotency-key": mid}
                told = await client.post(f"{PATH}/messages", json={"text": text}, headers=headers)
                return told.status_code, told.json().get("error", {}).get("kind", "")

            assert await post("m-1", "first") == (202, "")
            await gate.arrived()
            assert await post("m-2", "waits") == (202, "")
            assert await post("m-1", "another") == (422, "id_reused")
            assert await post("m-2", "another") == (422, "id_reused")
            assert await post("m-2", "waits") == (202, "")
            gate.open()

    real(main)
    assert said_by_users(session_path(tmp_path)) == ["first", "waits"]


def test_a_receipt_comes_at_once_and_a_wait_that_is_too_short_ends_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate(RealClock())
        async with serving(tmp_path, Play(gate)) as found, found.client() as client:
            sent = await client.post(f"{PATH}/messages", json={"text": "slow"})
            assert sent.status_code == 202
            assert set(sent.json()) == {"key", "entry", "mid", "repeated"}
            assert said_by_users(session_path(tmp_path)) == ["slow"]
            short = await client.post(f"{PATH}/messages?wait=0.01", json={"text": "more"})
            assert short.status_code == 202
            gate.open()

    real(main)


def test_two_tenants_with_one_sender_and_one_message_id_do_not_meet(tmp_path: Path) -> None:
    tenants = (tenant("a", "ant", operator=True), tenant("b", "bee", operator=True))

    async def main() -> None:
        async with serving(tmp_path, tenants=tenants) as found:
            for name in ("a", "b"):
                async with found.client(token(name)) as client:
                    sent = await client.post(
                        f"{PATH}/messages", json={"text": f"of {name}"}, headers={"idempotency-key": "same"}
                    )
                    assert not sent.json()["repeated"]

    real(main)
    assert said_by_users(session_path(tmp_path)) == ["of a", "of b"]


def test_texts_and_pictures_are_attached_and_anything_else_is_refused(tmp_path: Path) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 32).decode()
    right = [{"name": "a.txt", "text": "A"}, {"name": "b.txt", "data": base64.b64encode(b"B").decode()}]
    wrong = [
        ({"name": "x", "data": "%%"}, 422),
        ({"name": "x"}, 422),
        ({"data": base64.b64encode(b"\xff\xfe").decode(), "mime": "application/pdf"}, 415),
        ({"data": "A" * (7 * 1024 * 1024)}, 413),
    ]

    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            picture = {"data": png, "mime": "image/png"}
            sent = await client.post(
                f"{PATH}/messages?wait=20", json={"text": "see", "attachments": [*right, picture]}
            )
            assert sent.status_code == 200, sent.text
            for attached, status in wrong:
                refused = await client.post(f"{PATH}/messages", json={"attachments": [attached]})
                assert refused.status_code == status, refused.text
                assert refused.json()["error"]["message"].count("\n") == 0

    real(main)
    (said,) = said_by_users(session_path(tmp_path))
    assert said.startswith("see[file a.txt]\nA[file b.txt]\nB[image omitted")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"[" * 200_000, "headers": {"content-type": "application/json"}}, 422),
        ({"content": b'{"text": "\xff"}', "headers": {"content-type": "application/json"}}, 400),
        ({"content": b'{"text":"a"}', "headers": {"content-type": "text/plain"}}, 415),
        ({"json": {"text": 1}}, 422),
        ({"json": {"words": "a"}}, 422),
        ({"json": {"text": ""}}, 422),
        ({"json": {"text": "a"}, "headers": {"idempotency-key": "x" * 201}}, 400),
        ({"json": {"text": "a"}, "headers": {"authorization": "Bearer of nothing"}}, 401),
        ({"json": {"text": "a"}, "headers": {"host": "evil.example"}}, 403),
        ({"json": {"text": "a"}, "headers": {"origin": "https://evil.example"}}, 403),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_accepted(
    sent: dict[str, Any], status: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            refused = await client.post(f"{PATH}/messages", **sent)
            assert refused.status_code == status, refused.text
            assert set(refused.json()["error"]) >= {"kind", "message"}

    real(main)
    assert not session_path(tmp_path).exists()


@each_loop
def test_a_body_over_the_limit_is_refused_before_it_is_read(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        limits = ServerSettings(max_body_mb=1)
        async with serving(tmp_path, server=limits) as found, found.client() as client:

            async def pieces() -> Any:
                for _ in range(64):
                    yield b" " * 65_536

            told = await client.post(f"{PATH}/messages", content=b" " * (2 << 20))
            streamed = await client.post(f"{PATH}/messages", content=pieces())
            assert (told.status_code, streamed.status_code) == (413, 413)
            assert told.json()["error"]["kind"] == streamed.json()["error"]["kind"] == "body_too_large"
            assert (await client.get("/healthz")).status_code == 200

    real(main, loop)


@each_loop
def test_a_full_mailbox_is_busy_and_says_when_to_come_back(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate(RealClock())
        async with serving(tmp_path, Play(gate)) as found, found.client() as client:
            await client.post(f"{PATH}/messages", json={"text": "first"})
            statuses = [
                (await client.post(f"{PATH}/messages", json={"text": f"{n}"})).status_code for n in range(257)
            ]
            assert statuses == [202] * 256 + [429]
            last = await client.post(f"{PATH}/messages", json={"text": "more"})
            assert int(last.headers["retry-after"]) >= 1
            gate.open()

    real(main, loop)
