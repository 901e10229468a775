"""What is true of every request: garbage, huge heads, slow senders, foreign names; and the description."""

from __future__ import annotations

import random
import re
import socket
from pathlib import Path

import anyio
import jsonschema
import pytest

from helpers_host import KEY, Play, real, session_path
from helpers_kernel import each_loop
from helpers_serve import PATH, connect, following, head, rest, serving, tenant, token, until, upto
from perdure.edges import served
from perdure.edges.models.reply import say
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import ServerSettings, TenantSettings
from perdure.edges.state import StateFolder
from perdure.errors import (
    Busy,
    Closed,
    ConfigError,
    Fenced,
    Locked,
    MessageTooLarge,
    SessionNotFound,
    StorageFailed,
    UsageError,
)
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.server import health, running
from perdure.server.auth import Keys
from perdure.server.frames import names
from perdure.server.openapi import document
from perdure.server.problems import answer, refused
from perdure.server.routes import ENDPOINTS
from perdure.server.running import guarded, listen


@each_loop
def test_garbage_costs_its_own_connection_and_nothing_else(loop: Backend, tmp_path: Path) -> None:
    dice = random.Random(1)

    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            for n in range(40):
                stream = await connect(found)
                data = dice.randbytes(dice.randrange(1, 3000))
                data = head(found, "GET / HTTP/1.1")[: dice.randrange(1, 60)] + data if n % 2 else data
                try:
                    await stream.send(data + b"\r\n\r\n")
                    await stream.send_eof()
                    assert b" 200 " not in (await rest(stream))[:20]
                except anyio.BrokenResourceError:
                    pass  # it has had enough already
                await stream.aclose()
            assert (await client.get("/healthz")).json() == {"ok": True, "problems": []}
            await until(lambda: found.server.shared.hub.streams == 0)

    real(main, loop)


@each_loop
def test_a_huge_head_is_refused(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found:
            stream = await connect(found)
            try:
                await stream.send(head(found, "GET /healthz HTTP/1.1", f"x: {'y' * 100_000}"))
            except anyio.BrokenResourceError:
                pass
            answer = await rest(stream)
            assert not answer or answer.startswith(b"HTTP/1.1 431 ")
            await stream.aclose()

    real(main, loop)


@each_loop
def test_a_body_that_stops_coming_ends_the_request(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, server=ServerSettings(stall_seconds=0.1)) as found:
            stream = await connect(found)
            told = ("content-type: application/json", "content-length: 100")
            await stream.send(head(found, f"POST {PATH}/messages HTTP/1.1", *told) + b'{"text":')
            assert (await stream.receive()).startswith(b"HTTP/1.1 408 ")
            await stream.aclose()
            await until(lambda: found.server.shared.host.kernel.stats().ready == 0)

    real(main, loop)


def test_too_many_requests_at_once_are_refused_with_a_time_to_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            serving(tmp_path, server=ServerSettings(max_requests=1)) as found,
            following(found) as stream,
            found.client() as client,
        ):
            await upto(stream, "ready")
            refused = await client.get("/healthz")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")

    real(main)


def test_a_bug_is_logged_under_a_number_and_tells_the_client_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: str) -> int:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(health, "_free", broken)

    async def main() -> str:
        async with serving(tmp_path) as found, found.client() as client:
            answer = await client.get("/readyz")
            assert answer.status_code == 500
            assert "secret" not in answer.text
            return str(answer.json()["error"]["id"])

    assert real(main) in (tmp_path / "state" / "runtime.log").read_text()


# --- who asks -------------------------------------------------------------------------------------


def test_a_tenant_without_a_usable_token_is_a_wrong_configuration() -> None:
    wrong = [
        (TenantSettings("", ("x",), token_env="A"), "no name"),
        (TenantSettings("a", ("x",)), "neither or both"),
        (TenantSettings("a", ("x",), token_env="A", token_sha256="00" * 32), "neither or both"),
        (TenantSettings("a", ("x",), token_env="A"), "not set"),
        (TenantSettings("a", ("x",), token_sha256="zz"), "64 hex digits"),
    ]
    for told, why in wrong:
        with pytest.raises(ConfigError, match=why):
            Keys(Settings(tenants=(told,)), {}, "local")
    with pytest.raises(ConfigError, match="another tenant"):
        Keys(Settings(tenants=(tenant("a"), TenantSettings("b", token_env="B"))), {"B": token("a")}, "local")


def test_without_tenants_only_this_machine_is_served(tmp_path: Path) -> None:
    open_ = Host(tmp_path, settings=Settings(server=ServerSettings(host="0.0.0.0")), environ={})
    with pytest.raises(ConfigError, match="no tenant is configured"):
        guarded(open_)


def test_a_port_that_is_taken_is_one_line() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken, pytest.raises(UsageError, match="choose another --port"):
        listen(ServerSettings(port=taken.getsockname()[1]))


def test_where_a_host_is_reached_is_known_to_its_user_alone_and_gone_with_it(tmp_path: Path) -> None:
    folder = StateFolder(str(tmp_path / "state"))

    async def main() -> None:
        async with serving(tmp_path) as found:
            told = served.read(folder)
            assert told is not None
            assert (told.url, told.token) == (found.url, found.token)
            assert (folder.path / served.NAME).stat().st_mode & 0o777 == 0o600

    real(main)
    assert not (folder.path / served.NAME).exists()
    served.write(folder, served.Served("http://127.0.0.1:1", "t", 2**22 + 1))
    assert served.read(folder) is None


# --- looking and changing -------------------------------------------------------------------------


def test_sessions_are_listed_and_read_by_pages(tmp_path: Path) -> None:
    keys = [f"agent:{agent}:cli:dm:{n}" for agent in ("ant", "bee") for n in range(3)]

    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            for key in keys:
                await (await found.host.send(key, "hi")).reply(20)
            seen, after = [], ""
            while after is not None:
                page = (await client.get("/v1/sessions", params={"limit": 4, "after": after})).json()
                seen += [row["key"] for row in page["sessions"]]
                after = page["next"]
            assert seen == keys
            bees = (await client.get("/v1/sessions?agent=bee")).json()["sessions"]
            assert [row["key"] for row in bees] == keys[3:]
            first = (await client.get(f"/v1/sessions/{keys[0]}/entries?limit=1")).json()
            assert first["next"] == first["entries"][0]["entry"]
            more = (await client.get(f"/v1/sessions/{keys[0]}/entries?after={first['next']}")).json()
            assert ([e["message"]["role"] for e in more["entries"]], more["next"]) == (["assistant"], None)
            for wrong in ("limit=0", "limit=x", "scope=all-of-it"):
                assert (await client.get(f"/v1/sessions/{keys[0]}/entries?{wrong}")).status_code == 400

    real(main)


def test_a_key_with_a_slash_and_a_space_is_one_session(tmp_path: Path) -> None:
    key = "agent:main:mail:dm:a/b c%ü"

    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            path = "/v1/sessions/agent%3Amain:mail:dm:a%2Fb%20c%25%C3%BC"
            sent = await client.post(f"{path}/messages?wait=20", json={"text": "hi"})
            assert sent.json()["key"] == key, sent.text
            assert (await client.get(path)).json()["key"] == key
            assert (await client.get("/v1/sessions/%ff")).status_code == 400

    real(main)
    assert session_path(tmp_path, key).exists()


def test_a_session_is_named_labelled_forked_switched_and_begun_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, Play(say("one"), say("two"))) as found, found.client() as client:

            async def post(what: str, body: dict[str, str]) -> dict[str, object]:
                answer = await client.post(f"{PATH}/{what}", json=body)
                assert answer.status_code in (200, 201), answer.text
                return dict(answer.json())

            for text in ("first", "second"):
                await (await found.host.send(KEY, text)).reply(20)
            ids = [e["entry"] for e in (await client.get(f"{PATH}/entries")).json()["entries"]]
            assert (await post("rename", {"name": "the  move"}))["done"]
            assert (await client.get(PATH)).json()["name"] == "the move"
            assert (await post("label", {"entry": ids[1], "text": "here"}))["done"]
            assert (await post("switch", {"entry": "here"}))["done"]
            assert [e["entry"] for e in (await client.get(f"{PATH}/entries")).json()["entries"]] == ids[:2]
            made = await post("fork", {"key": "agent:main:cli:dm:copy"})
            assert made["leaf"] == (await client.get(PATH)).json()["leaf"]
            assert (
                await client.post(f"{PATH}/fork", json={"key": "agent:main:cli:dm:copy"})
            ).status_code == 400
            assert not (await post("undo", {}))["done"]
            assert "scripted" in str((await post("command", {"line": "/model"}))["text"])
            await post("new", {})
            assert (await client.get(f"{PATH}/entries")).json()["entries"] == []
            assert (await client.get(f"{PATH}/approvals")).json()["approvals"] == []
            gone = await client.delete(PATH)
            assert gone.json()["deleted"] == [KEY], gone.text
            assert (await client.get(PATH)).status_code == 404
            assert (await client.get("/")).headers["content-type"].startswith("text/html")

    real(main)


def test_the_next_request_is_shown_as_the_command_shows_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            await (await found.host.send(KEY, "hi")).reply(20)
            shown = (await client.get(f"{PATH}/context", params={"message": "and now?"})).json()
            assert set(shown) >= {"window", "budget", "request", "ledger", "problems"}
            assert shown["request"]["messages"][-1]["content"][-1]["text"] == "and now?"
            small = (await client.get(f"{PATH}/context?window=500")).json()
            assert (small["request"], small["problems"][-1]["kind"]) == (None, "overflow")

    real(main)


def test_an_export_is_the_file_byte_for_byte(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            for n in range(20):
                await (await found.host.send(KEY, f"{n} " * 10_000)).reply(20)
            whole = session_path(tmp_path).read_bytes()
            with session_path(tmp_path).open("ab") as file:
                file.write(b'{"type":"torn"')
            assert (await client.get(f"{PATH}/export")).content == whole

    real(main)


@each_loop
def test_a_peer_that_takes_nothing_does_not_hold_the_end_up(
    loop: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "GRACE", 0.1)

    async def main() -> None:
        async with serving(tmp_path) as found:
            await (await found.host.send(KEY, "x" * 300_000)).reply(20)
            with session_path(tmp_path).open("ab") as file:
                file.write(b"\n" * 8_000_000)
            stuck = await connect(found)
            await stuck.send(head(found, f"GET {PATH}/export HTTP/1.1"))
            await until(lambda: found.server.shared.answered.get("2xx", 0) == 1)
        await stuck.aclose()

    real(main, loop, seconds=15)


def test_every_error_of_the_host_has_its_status() -> None:
    expected = {
        SessionNotFound("x"): 404, UsageError("x"): 400, MessageTooLarge(2, 1): 413, Locked("x"): 409,
        Busy("x", retry_after=7): 429, Closed("x"): 503, Fenced("x"): 503, StorageFailed("x"): 507,
    }  # fmt: skip
    for error, status in expected.items():
        answered = answer(refused(error))
        assert answered.status_code == status
        assert ("retry-after" in answered.headers) == (status in (429, 503, 507))
    assert answer(refused(Busy("x", retry_after=7))).headers["retry-after"] == "7"


# --- the description ------------------------------------------------------------------------------


def test_the_description_names_every_route_and_its_examples_are_valid() -> None:
    told = document(ENDPOINTS, "1.0")
    routes = {(e.path, e.method.lower()) for e in ENDPOINTS}
    assert {(path, method) for path, found in told["paths"].items() for method in found} == routes
    operations = [found for path in told["paths"].values() for found in path.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    bodies = [each.get("requestBody", {}) for each in operations]
    bodies += [answer for each in operations for answer in each["responses"].values()]
    media = [m for body in bodies for m in body.get("content", {}).values()]
    examples = [m for m in media if "example" in m]
    assert len(examples) > 20
    for each in examples:
        jsonschema.validate(each["example"], each["schema"] | {"components": told["components"]})
    for ref in re.findall(r'#/components/(\w+)/(\w+)"', str(told).replace("'", '"')):
        assert ref[1] in told["components"][ref[0]]
    for schema in told["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_event_of_a_stream_is_as_its_schema_says(tmp_path: Path) -> None:
    told = document(ENDPOINTS, "1.0")["components"]

    async def main() -> None:
        async with serving(tmp_path, Play(say("a b", chunks=2))) as found, following(found) as stream:
            seen = await upto(stream, "ready")
            await found.host.send(KEY, "hi")
            seen += await upto(stream, "turn.finished")
            for event in seen:
                schema = told["schemas"][names()[event.name].__name__]
                jsonschema.validate(event.data, schema | {"components": told})

    real(main)


def test_metrics_have_few_series_and_none_for_a_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            for n in range(5):
                await (await found.host.send(f"agent:main:cli:dm:{n}", "hi")).reply(20)
            text = (await client.get("/metrics")).text
            assert "perdure_turns_total 5.0" in text
            assert "dm:" not in text
            assert 40 < len(text.splitlines()) < 400
            assert (await client.get("/openapi.json")).json()["openapi"] == "3.1.0"

    real(main)
