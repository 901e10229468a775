"""Event streams: each message once, whatever is cut; slow and vanishing readers harm nobody else."""

from __future__ import annotations

import socket
import struct
import tempfile
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_host import KEY, Gate, Play, calls, messages, real, session_path, tells
from helpers_kernel import each_loop
from helpers_serve import PATH, connect, following, head, serving, tenant, token, until, upto
from perdure.edges.models.reply import say
from perdure.edges.settings_hosting import ServerSettings
from perdure.events import Said
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend
from perdure.server import streams
from perdure.testing.serving import Event


def told(seen: list[Event]) -> list[str]:
    """The message entries of a stream, in order."""
    return [event.data["entry"] for event in seen if event.name == "entry"]


def kept(folder: Path, key: str = KEY) -> list[str]:
    """Those of the file."""
    return [entry["id"] for entry in messages(session_path(folder, key))]


@each_loop
def test_a_stream_tells_a_turn_in_its_order(loop: Backend, tmp_path: Path) -> None:
    play = Play(calls("look", text="let me look"), say("two words", chunks=2))

    async def main() -> None:
        async with serving(tmp_path, play, tools=[tells("look")]) as found, following(found) as stream:
            await upto(stream, "ready")
            await found.host.send(KEY, "hi")
            seen = await upto(stream, "turn.finished")
            assert [event.name for event in seen] == [
                "entry", "turn.started", "text", "entry", "tool.started", "entry", "tool.ended",
                "text", "text", "entry", "turn.finished",
            ]  # fmt: skip
            assert [e.data["role"] for e in seen if e.name == "entry"] == [
                "user", "assistant", "toolResult", "assistant",
            ]  # fmt: skip
            assert told(seen) == kept(tmp_path)
            assert seen[-1].data["reply"]["text"] == "two words"
            assert len({event.id for event in seen}) == len(seen)

    real(main, loop)


@each_loop
def test_a_short_gap_is_answered_exactly_from_memory(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, Play(say("a b c d e", chunks=5))) as found:
            async with following(found) as stream:
                first = await upto(stream, "ready")
            await (await found.host.send(KEY, "hi")).reply(20)
            async with following(found, last=first[-1].id) as stream:
                whole = await upto(stream, "ready")
            for event in whole[:-1]:
                async with following(found, last=event.id) as stream:
                    again = await upto(stream, "ready")
                at = whole.index(event)
                assert [e.id for e in again[:-1]] == [e.id for e in whole[at + 1 : -1]]
                assert not any(e.name == "resync" for e in again)

    real(main, loop)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(1, 9)),
        st.tuples(st.just("miss"), st.integers(1, 2)),
        st.tuples(st.just("restart"), st.sampled_from([0, 1])),
    ),
    min_size=1,
    max_size=5,
)


async def _story(folder: Path, steps: list[tuple[str, int]], path: str) -> list[str]:
    """A client that loses its connection after so many events, and a host that stops or dies meanwhile."""
    seen: list[str] = []
    last = ""
    todo = [("read", 0), *steps]
    while todo:
        play = Play(*(calls("look", text="a") if n % 3 else say("b c", chunks=2) for n in range(30)))
        async with serving(folder, play, tools=[tells("look")]) as found:
            while todo:
                what, count = todo.pop(0)
                if what == "restart":
                    if count:
                        found.host.kill()
                    break
                if what == "miss":
                    for n in range(count):
                        await (await found.host.send(KEY, f"missed {n}")).reply(20)
                    continue
                async with following(found, path, last) as stream:
                    if count:
                        await found.host.send(KEY, "read")
                    async for event in stream:
                        last = event.id or last
                        if event.name == "entry":
                            seen.append(event.data["entry"])
                        count -= 1
                        if count <= 0 and last:
                            break
                if found.host.directory.awake:
                    await until(lambda: not found.host.directory.at_work)
    async with serving(folder) as found, following(found, path, last) as stream:
        return seen + told(await upto(stream, "ready"))


@settings(max_examples=12)
@given(STEPS, st.sampled_from([PATH, "/v1"]))
def test_a_client_that_resumes_sees_every_message_once_whatever_was_cut(
    steps: list[tuple[str, int]], path: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        seen = real(lambda: _story(Path(name), steps, path))
        assert seen == (kept(Path(name)) if session_path(Path(name)).exists() else [])


@each_loop
@pytest.mark.parametrize("path", [PATH, "/v1"])
def test_a_message_that_comes_while_a_file_is_read_is_told_once(
    loop: Backend, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, following(found, path) as stream:
            last = (await upto(stream, "ready"))[-1].id
            await (await found.host.send(KEY, "before")).reply(20)
        async with serving(tmp_path) as found:

            async def say_more() -> None:
                await (await found.host.send(KEY, "meanwhile")).reply(20)

            def reading(*args: object) -> object:
                anyio.from_thread.run(say_more)
                return since(*args)  # type: ignore[arg-type]

            def reading_all(*args: object) -> object:
                anyio.from_thread.run(say_more)
                return of_all(*args)  # type: ignore[arg-type]

            monkeypatch.setattr(streams, "since", reading)
            monkeypatch.setattr(streams, "_of_all", reading_all)
            async with following(found, path, last) as stream:
                seen = await upto(stream, "turn.finished")
            assert seen[0].name == "resync"
            assert told(seen) == kept(tmp_path)
            assert len(told(seen)) == 4

    since, of_all = streams.since, streams._of_all
    real(main, loop)
    monkeypatch.undo()


def test_a_compaction_and_a_truncation_between_two_visits_hide_no_message(tmp_path: Path) -> None:
    long = "Measure twice, cut once, and write down what was cut. " * 60

    async def main() -> list[str]:
        async with serving(tmp_path) as found:
            async with following(found) as stream:
                last = (await upto(stream, "ready"))[-1].id
            for n in range(8):
                await (await found.host.send(KEY, f"question {n}: {long}")).reply(20)
            assert (await found.host.command(KEY, "/compact")).startswith("Compacted")
            async with found.client() as client:
                moved = await client.post(f"{PATH}/truncate", json={})
                assert moved.json()["done"], moved.text
                every = (await client.get(f"{PATH}/entries?scope=all&limit=1000")).json()["entries"]
        async with serving(tmp_path) as found, following(found, last=last) as stream:
            seen = await upto(stream, "ready")
            assert seen[0].name == "resync"
            assert told(seen) == [stored["entry"] for stored in every]
            return told(seen)

    assert len(real(main)) == 16


def test_a_stream_of_another_branch_begins_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client, following(found) as stream:
            await upto(stream, "ready")
            for n in range(3):
                await (await found.host.send(KEY, f"{n}")).reply(20)
            seen = []
            for _ in range(3):
                seen += await upto(stream, "turn.finished")
            ids = told(seen)
            moved = await client.post(f"{PATH}/switch", json={"entry": ids[1]})
            assert moved.json()["done"], moved.text
            branch = await upto(stream, "notice")
            assert branch[-1].data["kind"] == "branch"
        async with serving(tmp_path) as found, following(found, last=seen[-1].id) as stream:
            again = await upto(stream, "ready")
            assert again[0].data["after"] is None
            assert told(again) == ids[:2]

    real(main)


@each_loop
def test_a_reader_that_takes_nothing_is_ended_and_the_others_miss_nothing(
    loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        limits = ServerSettings(stream_kib=16)
        async with serving(tmp_path, server=limits) as found, following(found) as stream:
            await upto(stream, "ready")
            slow = await connect(found)
            await slow.send(head(found, f"GET {PATH}/events HTTP/1.1"))
            await until(lambda: found.server.shared.hub.streams == 2)
            count = 2_000
            for n in range(count):
                found.host.services.events.publish(Said(KEY, f"{n:04}" * 250))
                if n % 8 == 7:
                    assert [(await anext(stream)).data["text"][:4] for _ in range(8)] == [
                        f"{m:04}" for m in range(n - 7, n + 1)
                    ]
            await until(lambda: found.server.shared.hub.lagged == 1)
            data = b""
            while b"event: lagged" not in data[-200:]:
                data += await slow.receive()
            await slow.aclose()
            await until(lambda: found.server.shared.hub.streams == 1)

    real(main, loop)


@each_loop
def test_clients_that_vanish_leave_nothing_behind(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found:
            hub = found.server.shared.hub
            open_ = []
            for n in range(30):
                stream = await connect(found)
                await stream.send(head(found, f"GET /v1/sessions/agent:main:x:dm:{n}/events HTTP/1.1"))
                open_.append(stream)
            await until(lambda: hub.streams == 30)
            for n, stream in enumerate(open_):
                if n % 2:  # a reset
                    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await stream.aclose()
            await until(lambda: hub.streams == 0)
            assert not hub._by_key
            assert not hub._wide

    real(main, loop)


def test_a_tenant_has_so_many_streams_and_no_more(tmp_path: Path) -> None:
    tenants = (tenant("a", "ant"), tenant("b", "bee"))

    async def main() -> None:
        async with serving(tmp_path, server=ServerSettings(streams=1), tenants=tenants) as found:
            mine = "/v1/sessions/agent:ant:cli:dm:x"
            async with following(found, mine, who=token("a")) as stream, found.client(token("a")) as client:
                await upto(stream, "ready")
                refused = await client.get(f"{mine}/events")
                assert refused.status_code == 429
                async with following(found, "/v1/sessions/agent:bee:cli:dm:x", who=token("b")) as other:
                    await upto(other, "ready")
            async with following(found, mine, who=token("a")) as stream:
                await upto(stream, "ready")

    real(main)


def test_a_heartbeat_comes_while_nothing_happens(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, server=ServerSettings(heartbeat_seconds=0.02)) as found:
            stream = await connect(found)
            await stream.send(head(found, "GET /v1/events HTTP/1.1"))
            data = b""
            while data.count(b": alive\n\n") < 2:
                data += await stream.receive()
            await stream.aclose()

    real(main)


@pytest.mark.parametrize("id", ["nonsense", "1-1", "g-1-a", "1-1-" + "x" * 65, "-1-1-a"])
def test_an_id_that_no_stream_gave_is_refused(id: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            refused = await client.get(f"{PATH}/events", headers={"last-event-id": id})
            assert refused.status_code == 400

    real(main)


@each_loop
def test_draining_ends_the_turn_then_the_streams_and_takes_nothing_new(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate(RealClock())
        async with serving(tmp_path, Play(gate)) as found, following(found) as stream:
            await upto(stream, "ready")
            await found.host.send(KEY, "long")
            await gate.arrived()
            async with anyio.create_task_group() as group, found.client() as client:
                ended: list[bool] = []

                async def drain() -> None:
                    ended.append((await found.server.drain(20)).whole)

                group.start_soon(drain)
                await until(lambda: found.server.shared.draining)
                refused = await client.post(f"{PATH}/messages", json={"text": "new"})
                assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "closed")
                ready = await client.get("/readyz")
                assert (ready.status_code, ready.json()["problems"]) == (503, ["draining"])
                gate.open()
                seen = await upto(stream, "closing")
                assert "turn.finished" in [event.name for event in seen]
            assert ended == [True]

    real(main, loop)
