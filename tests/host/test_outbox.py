"""Answers that go out by a channel: which, when, how often, in which order, and what is told about them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from helpers_host import KEY, Gate, Play, ask, entries, hosted, notices, real, session_path, virtual
from helpers_kernel import each_loop
from helpers_outbox import Receiver, gated
from perdure.actors.outbox import Outlet
from perdure.edges.models.reply import fail, say
from perdure.edges.session.load import load
from perdure.edges.session.tail import open_session
from perdure.edges.session.writer import LocalSessionFile
from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import OutboundSettings
from perdure.errors import ConfigError, DeliveryFailed, StorageFailed, UsageError
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock

OTHER = "agent:main:cli:dm:other"


def states(folder: Path, key: str = KEY) -> list[str]:
    """What the file says about deliveries, in order."""
    return [
        e["data"]["state"]
        for e in entries(session_path(folder, key))
        if e.get("customType") == "perdure.outbox"
    ]


@each_loop
def test_an_answer_goes_out_where_its_letter_asks_for_it_and_an_awaited_one_does_not(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver()
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            await ask(host, "awaited")
            await ask(host, "sent", deliver=True)
            await ask(host, "by a timer", kind="internal_system")
            await ask(host, "a subagent's result", kind="inter_session")
            await ask(host, "a timer that is awaited", kind="internal_system", deliver=False)
            await clock.sleep(1)
            assert await host.outbox(KEY) == ()
        assert [(d.event, d.text) for d in receiver.arrived] == [
            ("reply", "ok 2"), ("scheduled", "ok 3"), ("reply", "ok 4"),
        ]  # fmt: skip
        assert len(set(receiver.ids)) == 3

    virtual(main, loop)
    assert states(tmp_path) == ["begun", "sent"] * 3


def test_what_says_nothing_stays_here_and_a_failed_turn_is_told_as_such(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver()
        gate = Gate(clock)
        play = Play(say("HEARTBEAT_OK"), fail("auth"), gate, say("all is well"))
        async with hosted(tmp_path, play, clock, channels=[receiver]) as host:
            for _ in range(2):
                await ask(host, "beat", kind="internal_system")
            await host.send(KEY, "stop me", deliver=True)
            await gate.arrived()
            await host.abort(KEY)
            await clock.sleep(1)
            await ask(host, "not to go out")
            await clock.sleep(1)
        assert [(d.event, bool(d.error)) for d in receiver.arrived] == [("failed", True)]

    virtual(main)


def test_a_session_without_a_channel_keeps_its_answers_and_its_file_says_nothing_new(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, channels=[Receiver(name="telegram")]) as host:
            await ask(host, "hi", deliver=True)
            assert await host.outbox(KEY) == ()

    virtual(main)
    raw = session_path(tmp_path).read_bytes()
    assert b'"owes"' not in raw
    assert b'"out"' not in raw


def test_a_glob_comes_before_the_channel_of_the_key_before_the_agent(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        outlets = [
            Outlet(Receiver(name="by-agent"), agents=("main",)),
            Receiver(name="cli"),
            Outlet(Receiver(name="by-glob"), sessions=("agent:main:*:dm:vip*",)),
        ]
        async with hosted(tmp_path, Play(), clock, channels=outlets) as host:
            route = host.services.outbox.route
            keys = ["agent:main:cli:dm:vip1", KEY, "agent:main:cron:x:y", "agent:other:web:dm:x", "plain"]
            found = [route(key) for key in keys]
            assert [o.name if o else None for o in found] == ["by-glob", "cli", "by-agent", None, None]

    virtual(main)


@each_loop
def test_answers_of_a_session_go_out_in_order_however_often_one_fails(loop: Backend, tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver(["retry", "lost", "retry", "bug"])
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            for n in range(3):
                await ask(host, f"q{n}", deliver=True)
            await clock.sleep(3600)
        assert receiver.texts == ["ok 1", "ok 2", "ok 3"]
        assert [d.attempt for d in receiver.attempts] == [1, 2, 3, 4, 5, 1, 1]
        assert len({d.id for d in receiver.attempts[:5]}) == 1

    virtual(main, loop)


def test_a_receiver_that_asks_for_time_gets_it(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:

        at: list[float] = []

        async def later() -> None:
            at.append(clock.now())
            if len(at) == 1:
                raise DeliveryFailed("retryable", "503", retry_after=600.0)

        async with hosted(tmp_path, Play(), clock, channels=[Receiver([later, later])]) as host:
            await ask(host, "q", deliver=True)
            await clock.sleep(1000)
        assert 600 <= at[1] - at[0] <= 750

    virtual(main)


@pytest.mark.parametrize(("word", "state"), [("maybe", "unknown"), ("refused", "failed"), ("bug", "unknown")])
def test_what_a_channel_can_not_repeat_is_listed_told_once_and_moved_by_command(
    tmp_path: Path, word: str, state: str
) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver([word], idempotent=False)
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            told = notices(host)
            await ask(host, "q", deliver=True)
            await clock.sleep(90_000)
            (listed,) = await host.outbox(KEY)
            assert (listed.state, listed.tries, len(receiver.attempts)) == (state, 1, 1)
            assert [n.kind for n in told] == ["outbox"]
            assert listed.entry in await host.command(KEY, "/outbox")
            with pytest.raises(UsageError, match="no answer"):
                await host.command(KEY, "/outbox drop nothing")
            with pytest.raises(UsageError, match="takes nothing"):
                await host.command(KEY, "/outbox resend")
            assert await host.command(KEY, f"/outbox retry {listed.entry}") == "1 sent again."
            await clock.sleep(1)
            assert (receiver.texts, await host.outbox(KEY)) == (["ok 1"], ())
            receiver.script = ["refused"]
            await ask(host, "q2", deliver=True)
            await clock.sleep(1)
            assert await host.command(KEY, "/outbox drop all") == "1 dropped."
            assert await host.command(KEY, "/outbox") == "Nothing is on its way out."

    virtual(main)


def test_a_dead_channel_harms_only_itself_and_lets_its_sessions_sleep(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        dead, well = Receiver(["retry"] * 10_000), Receiver(name="web")
        async with hosted(tmp_path, Play(), clock, channels=[dead, well], most_awake=2) as host:
            for n in range(30):
                await ask(host, "q", key=f"agent:main:cli:dm:{n}", deliver=True)
                await ask(host, "q", key=f"agent:main:web:dm:{n}", deliver=True)
            await clock.sleep(3600)
            assert len(well.ids) == 30
            assert len(host.directory.awake) <= 3
            tried = len(dead.attempts)
            assert tried < 200  # the breaker: one trial in a rest, not thirty sessions each their own way
            dead.script.clear()
            await clock.sleep(2 * 3600)
            assert len(dead.ids) == 30

    virtual(main)


def test_no_more_attempts_run_at_once_than_a_channel_has_workers(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        running = [0, 0]

        async def slow() -> None:
            running[0] += 1
            running[1] = max(running)
            await clock.sleep(5)
            running[0] -= 1

        receiver = Receiver([slow] * 12)
        async with hosted(tmp_path, Play(), clock, channels=[Outlet(receiver, workers=3)]) as host:
            for n in range(12):
                await ask(host, "q", key=f"agent:main:cli:dm:{n}", deliver=True)
            assert await host.services.outbox.settle(60)
            assert len(receiver.ids) == 12
        assert running == [0, 3]

    virtual(main)


def test_a_channel_that_is_gone_is_tried_no_more_and_the_rest_waits(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver(["gone"])
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            for _ in range(3):
                await ask(host, "q", deliver=True)
            await clock.sleep(86_400)
            assert [each.state for each in await host.outbox(KEY)] == ["failed", "waiting", "waiting"]
            assert host.services.outbox.figures()[0]["state"] == "gone"
        assert len(receiver.attempts) == 1

    virtual(main)


def test_what_waits_survives_compaction_checkpoints_and_both_ways_of_reading(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver(["retry"] * 8)
        async with hosted(tmp_path, Play(), clock, channels=[receiver], truncate_after=1) as host:
            await ask(host, "word " * 3000, deliver=True)
            for n in range(4):
                await ask(host, f"{n} " + "more words " * 2000)
            await host.command(KEY, "/compact")
            path = session_path(tmp_path)
            tail, whole = open_session(path), load(path).opened()
            assert tail.outgoing == whole.outgoing == await host.outbox(KEY)
            assert [each.state for each in tail.outgoing] == ["waiting"]
            await clock.sleep(86_400)
        assert receiver.texts == ["ok 1"]  # its entry is in a segment by now

    virtual(main)


def test_a_disk_that_takes_no_record_holds_the_attempt_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, full = LocalSessionFile.append, [True]

    def sometimes(self: LocalSessionFile, lines: Any) -> Any:
        if full[0] and b"perdure.outbox" in lines[0]:
            raise StorageFailed("no room")
        return append(self, lines)

    monkeypatch.setattr(LocalSessionFile, "append", sometimes)

    async def main(clock: VirtualClock) -> None:
        receiver = Receiver()
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            assert (await ask(host, "q", deliver=True)).text == "ok 1"
            await clock.sleep(300)
            assert receiver.attempts == []
            full[0] = False
            await clock.sleep(120)
            assert receiver.texts == ["ok 1"]

    virtual(main)


def test_a_new_session_file_says_what_it_left_behind(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver(["retry"])
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            await ask(host, "q", deliver=True)
            told = notices(host)
            await host.command(KEY, "/new")
            await clock.sleep(7200)
            assert [n.kind for n in told] == ["outbox"]
            assert len(receiver.attempts) == 1

    virtual(main)


@each_loop
def test_an_attempt_that_outlives_a_crash_of_its_session_is_not_begun_twice(
    loop: Backend, tmp_path: Path
) -> None:
    async def main(clock: VirtualClock) -> None:
        word, begun, go = gated(clock)
        receiver = Receiver([word], idempotent=False)
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            await ask(host, "q", deliver=True)
            await clock.wait(begun, 10)
            session = host.directory.awake[KEY]
            host.directory._crashed(KEY, RuntimeError("a bug"))
            session.ref.handler = lambda mail: host.directory._wake(KEY, mail)
            await clock.sleep(1)
            go.set()
            await clock.sleep(1)
            assert await host.outbox(KEY) == ()
        assert len(receiver.attempts) == 1

    virtual(main, loop)


def test_two_channels_of_one_name_are_refused(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        with pytest.raises(ConfigError, match="two channels"):
            async with hosted(tmp_path, Play(), clock, channels=[Receiver(), Receiver()]):
                pass
        with pytest.raises(UsageError, match="channels"):
            hosted(tmp_path, Play(), clock, channels=[object()])

    virtual(main)


def test_a_pause_that_a_receiver_asked_for_outlasts_new_answers_of_the_session(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def later() -> None:
            raise DeliveryFailed("retryable", "429", retry_after=600.0)

        receiver = Receiver([later])
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            for _ in range(4):
                await ask(host, "q", deliver=True)
                await clock.sleep(60)
            assert len(receiver.attempts) == 1
            await clock.sleep(900)
            assert receiver.texts == ["ok 1", "ok 2", "ok 3", "ok 4"]

    virtual(main)


def test_sessions_that_wait_for_a_slow_channel_sleep_meanwhile(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        async def slow() -> None:
            await clock.sleep(10)

        receiver = Receiver([slow] * 50)
        async with hosted(
            tmp_path, Play(), clock, channels=[Outlet(receiver, workers=1)], most_awake=2
        ) as host:
            for n in range(20):
                await ask(host, "q", key=f"agent:main:cli:dm:{n}", deliver=True)
            await clock.sleep(1)
            assert len(host.directory.awake) <= 3
            await clock.sleep(300)
            assert len(receiver.ids) == 20

    virtual(main)


def test_deliveries_that_a_compaction_knows_of_leave_the_file_with_what_it_covers(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        receiver = Receiver()
        async with hosted(tmp_path, Play(), clock, channels=[receiver], truncate_after=1) as host:
            for n in range(12):
                await ask(host, f"{n} " + "more words " * 2000, deliver=True)
            await clock.sleep(1)
            await host.command(KEY, "/compact")
            await clock.sleep(5)
            assert await host.outbox(KEY) == ()
        assert len(receiver.ids) == 12

    virtual(main)
    assert len(states(tmp_path)) < 18  # of 24
    assert load(session_path(tmp_path)).opened().outgoing == ()


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_heard_while_the_disk_was_full_is_recorded_later_and_nothing_is_sent_again(
    idempotent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, full = LocalSessionFile.append, [False]

    def sometimes(self: LocalSessionFile, lines: Any) -> Any:
        if full[0]:
            raise StorageFailed("no room")
        return append(self, lines)

    monkeypatch.setattr(LocalSessionFile, "append", sometimes)

    async def main(clock: VirtualClock) -> None:
        async def fills_up() -> None:
            full[0] = True

        receiver = Receiver([fills_up], idempotent=idempotent)
        async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
            await ask(host, "q", deliver=True)
            await clock.sleep(600)
            assert [each.state for each in await host.outbox(KEY)] == ["begun"]
            full[0] = False
            await clock.sleep(120)
            assert await host.outbox(KEY) == ()
        assert len(receiver.attempts) == 1

    virtual(main)


def test_a_letter_that_waited_when_the_host_died_still_asks_for_delivery(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        gate, receiver = Gate(clock), Receiver()
        host = hosted(tmp_path, Play(gate, say("to both")), clock, channels=[receiver])
        await host.__aenter__()
        await host.send(KEY, "one")
        await gate.arrived()
        await host.send(KEY, "two", deliver=True)
        host.kill()
        await host.__aexit__(None, None, None)
        async with hosted(tmp_path, Play(say("to both")), clock, channels=[receiver]):
            await clock.sleep(60)
        assert [(d.event, d.text) for d in receiver.arrived] == [("reply", "to both")]

    virtual(main)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_program_cancelled_in_a_delivery_leaves_its_file_whole(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        clock = RealClock()
        word, begun, _ = gated(clock)
        receiver = Receiver([word], idempotent=False)
        with anyio.CancelScope() as scope:
            async with hosted(tmp_path, Play(), clock, channels=[receiver]) as host:
                await ask(host, "q", deliver=True)
                await clock.wait(begun, 10)
                scope.cancel()
                await anyio.sleep_forever()
        assert host.left_whole

    real(main, loop)
    assert states(tmp_path) == ["begun", "unknown"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_configured_webhook_delivers_and_a_missing_secret_is_told(loop: Backend, tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            raw = await stream.receive()
            while b'"error":' not in raw:
                raw += await stream.receive()
            heard.append(raw)
            await stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)
        hook = OutboundSettings("cli", url=f"http://127.0.0.1:{port}/", secret_env="HOOK", allow_private=True)
        settings = Settings(outbound=(hook,))
        with pytest.raises(ConfigError, match="HOOK is not set"):
            async with hosted(tmp_path, Play(), RealClock(), settings=settings):
                pass
        environ = {"HOOK": "whsec_" + base64.b64encode(b"k" * 32).decode()}
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            async with hosted(tmp_path, Play(), RealClock(), settings=settings, environ=environ) as host:
                await ask(host, "q", deliver=True)
                assert await host.services.outbox.settle(10)
                assert host.status()["outbox"][0]["sent"] == 1
            tasks.cancel_scope.cancel()

    real(main, loop)
    assert b"webhook-signature: v1," in heard[0]
    assert b'"text":"ok 1"' in heard[0]
    log = (tmp_path / "state" / "runtime.log").read_text()
    assert "ok 1" not in log
    assert "whsec_" not in log


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_what_a_sleeping_session_owes_is_found_after_a_kill_without_its_lock(
    loop: Backend, tmp_path: Path
) -> None:
    async def main() -> None:
        receiver = Receiver(["retry"])
        host = hosted(tmp_path, Play(), RealClock(), channels=[receiver], most_awake=1)
        await host.__aenter__()
        await ask(host, "q", deliver=True)
        await host.services.outbox.settle(5)
        await ask(host, "q", key="agent:main:other:dm:x")
        while KEY in host.directory.awake:
            await host.clock.sleep(0.01)
        host.kill()
        await host.__aexit__(None, None, None)
        async with hosted(tmp_path, Play(), RealClock(), channels=[receiver]) as again:
            while not receiver.arrived:
                await again.clock.sleep(0.01)

    real(main, loop)
    assert states(tmp_path) == ["begun", "waiting", "begun", "sent"]
