"""Reported faults of runtimes that host actors and sessions, each as a test of what is right."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helpers_cases import covers
from helpers_host import (
    KEY,
    Fn,
    Gate,
    Play,
    ask,
    calls,
    entries,
    hosted,
    said_by_users,
    session_path,
    text_of,
    virtual,
)
from helpers_kernel import Events, each_loop, run_on, run_real
from perdure.actors.messages import Append
from perdure.actors.turns import Stale
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say
from perdure.errors import PerdureError
from perdure.kernel.errors import ActorParked, DeadlineExceeded
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Failed
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import Assistant, Text

A, B = "agent:main:cli:dm:a", "agent:main:cli:dm:b"
SOURCES = Path(__file__).parents[2]


@covers("RT01")
@pytest.mark.parametrize("seed", range(20))
def test_what_a_sender_was_told_is_delivered_arrives_once_and_in_order(seed: int) -> None:
    """500 sends a seed, to a full mailbox, with cancellations and deadlines in the very ticks of the room."""

    async def main(kernel: Kernel) -> None:
        random, clock, got = Random(seed), kernel.clock, []
        told: dict[int, list[int]] = {sender: [] for sender in range(10)}
        crash = {100, 200, 300}

        def handle(message: tuple[int, int]) -> None:
            if len(got) in crash:  # the next incarnation takes the same message
                crash.discard(len(got))
                raise ValueError("a new incarnation follows")
            got.append(message)

        ref = kernel.actor("a", handle)

        async def sender(number: int) -> None:
            for n in range(50):
                await kernel.send(ref, (number, n), timeout=random.choice((0.0, 0.25, 1.0)))
                told[number].append(n)
                if random.random() < 0.3:
                    await clock.sleep(0.25)

        jobs = [kernel.start(f"s{number}", sender, number) for number in told]
        for _ in range(5):
            await clock.sleep(0.25)
            jobs.pop(random.randrange(len(jobs))).cancel()
        await clock.sleep(600)
        for number, sent in told.items():
            arrived = [n for who, n in got if who == number]
            assert arrived[: len(sent)] == sent
            assert len(arrived) - len(sent) in (0, 1)  # cancelled just as it was let in: it can't tell
            assert arrived == sorted(set(arrived))

    run_on("trio", main)


@covers("RT01")
@each_loop
def test_a_reader_that_gives_up_over_and_over_loses_no_event(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        channel = kernel.channel("c")
        listener, got = channel.listen("slow", bound=1_000), []

        async def read() -> None:
            while len(got) < 500:
                try:
                    got.append(await listener.next(0.25))
                except DeadlineExceeded:
                    continue

        reader = kernel.start("reader", read)
        random = Random(1)
        for n in range(500):
            channel.publish(n)
            await kernel.clock.sleep(random.choice((0.0, 0.25, 0.5)))
        await kernel.clock.sleep(10)
        assert got == list(range(500))
        assert not reader.current

    run_on(loop, main)


@covers("RT02")
@each_loop
def test_a_cancellation_in_the_tick_of_the_answer_ends_the_job_all_the_same(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        jobs = []
        for n in range(500):
            waiter = kernel.waiter()

            async def wait(waiter: Any = waiter) -> None:
                await kernel.wait(waiter, 5)
                await kernel.wait(kernel.waiter(), 3_600)  # what ran on after a swallowed cancellation

            jobs.append(kernel.start(f"j{n}", wait))
            await kernel.clock.sleep(0)
            waiter.set()
            jobs[-1].cancel()
        await kernel.clock.sleep(0.05)
        assert not any(job.current for job in jobs)
        assert kernel.stats().jobs_lost == 0

    run_real(loop, main)


@covers("RT03")
@each_loop
def test_background_jobs_are_held_and_a_failure_is_told(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        ends: list[object] = []

        async def work(n: int) -> int:
            await kernel.clock.sleep(n % 7)
            if n == 500:
                raise ValueError("one fails")
            return n

        for n in range(1_000):
            kernel.start(f"b{n}", work, n, on_end=lambda _job, outcome: ends.append(outcome))
            if not n % 100:
                gc.collect()
        await kernel.clock.sleep(10)
        assert len(ends) == 1_000
        assert sum(isinstance(end, Failed) for end in ends) == 1
        stats = kernel.stats()
        assert (stats.jobs, stats.jobs_failed, stats.tasks) == (0, 1, stats.idle_tasks)

    run_on(loop, main)


@covers("RT03")
def test_no_task_is_started_without_an_owner() -> None:
    for root in ("runtime", "plugins", "actors"):
        for path in (SOURCES / root).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for name in ("create_task(", "ensure_future(", "spawn_system_task("):
                assert name not in text or "server" in path.parts, (path, name)


@covers("RT04")
@each_loop
def test_a_flood_is_bounded_and_holds_up_another_sender_by_what_stood_before_it_only(loop: Backend) -> None:
    async def main(kernel: Kernel) -> None:
        clock, got, asked, stopped = kernel.clock, [], [], []

        def handle(message: Any) -> None:
            (stopped if message == "stop" else got).append(message)

        ref = kernel.actor("slow", handle)
        refused = sum(not ref.tell(("flood", n)) for n in range(100_000))
        assert refused == 100_000 - len(ref.mail or ())
        assert len(ref.mail or ()) == 64
        ref.post("stop")
        assert len(ref.mail or ()) == 64  # its own lane

        async def send(n: int) -> None:
            asked.append(n)
            await kernel.send(ref, ("other", n), timeout=60)

        for n in range(100):
            kernel.start(f"o{n}", send, n)
        await clock.sleep(1)
        assert stopped == ["stop"]
        assert [n for who, n in got if who == "flood"] == list(range(64))
        assert [n for who, n in got if who == "other"] == asked

        never = kernel.actor("never served", handle)
        never.queued = True
        while never.tell("full"):
            pass
        began = clock.now()
        with pytest.raises(DeadlineExceeded, match="room in the mailbox"):
            await kernel.send(never, "no room", timeout=2)
        assert clock.now() - began == pytest.approx(2)

    run_on(loop, main)


@covers("RT07")
def test_a_session_that_waits_for_its_model_holds_up_no_other(tmp_path: Path) -> None:
    play = Play(say("late", latency=10.0), key=A)
    play.then(say("at once", latency=0.0), key=B)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            slow = [await host.send(A, text) for text in ("one", "two")]
            began = clock.now()
            assert (await ask(host, "hello", key=B)).text == "at once"
            assert clock.now() == began
            for one in slow:
                await one.reply(100)
        assert said_by_users(session_path(tmp_path, A)) == ["one", "two"]

    virtual(main)


@covers("RT09", "RT11")
def test_a_turn_that_ignores_its_abort_is_declared_lost_and_its_late_report_is_refused(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        asked = clock.waiter("asked")

        async def deaf(body: dict[str, Any], request: Request) -> ScriptedReply:
            asked.set()
            with clock.shield():
                await clock.wait(clock.waiter("never"), 200)
            return say("far too late")

        async with hosted(tmp_path, Play(deaf), clock) as host:
            first = await host.send(KEY, "one")
            await clock.wait(asked, 10)
            rest = [await host.send(KEY, text) for text in ("two", "three")]
            aborted = clock.now()
            session = host.directory.awake[KEY]
            old = session.turns.number
            assert await host.abort(KEY)
            await rest[-1].reply(100)
            assert clock.now() - aborted < 15  # the grace in which a turn has to obey
            assert (await first.reply(1)).stop in ("aborted", "error")
            assert session.turns.number > old
            before = session_path(tmp_path).read_bytes()
            receipt = clock.waiter("a late entry")
            late = Assistant((Text("late"),), "stop", "scripted", "anthropic-messages", "test")
            session.ref.post(Append(old, late, receipt))
            with pytest.raises(Stale):
                await clock.wait(receipt, 10)
            await clock.sleep(300)  # the old turn's own end
            assert session_path(tmp_path).read_bytes() == before
            assert (await ask(host, "four")).stop == "stop"
            assert host.status()["totals"]["lost_jobs"] == 0
        texts = [text_of(e["message"]) for e in entries(session_path(tmp_path)) if e["type"] == "message"]
        assert "far too late" not in texts
        assert said_by_users(session_path(tmp_path)) == ["one", "two", "three", "four"]

    virtual(main)


@covers("RT12")
@pytest.mark.parametrize("point", ["acknowledged", "in a tool", "answered"])
def test_a_message_is_neither_lost_nor_run_twice_by_a_kill(tmp_path: Path, point: str) -> None:
    async def main(clock: VirtualClock) -> None:
        gate, effects = Gate(clock), []

        async def act(arguments: Mapping[str, Any], context: Any) -> str:
            effects.append("done")
            if point == "in a tool" and len(effects) == 1:
                await gate.pass_through()
            return "acted"

        play = Play(calls("act"), say("finished"), say("finished"))
        if point == "acknowledged":
            play = Play(gate, calls("act"), say("finished"))
        tools = (Fn("act", act),)
        async with hosted(tmp_path, play, clock, tools=tools) as host:
            sent = await host.send(KEY, "act", mid="m1")
            if point == "answered":
                await sent.reply(100)
            else:
                await gate.arrived()
            host.kill()
        for _ in range(2):
            async with hosted(tmp_path, play, clock, tools=tools) as host:
                await clock.sleep(60)
                again = await host.send(KEY, "act", mid="m1")
                assert again.receipt.repeated
                assert (await again.reply(100)).text == "finished"
        assert said_by_users(session_path(tmp_path)) == ["act"]
        assert effects == ["done"]

    virtual(main)


@covers("RT14")
def test_a_listener_that_never_reads_costs_itself_only(tmp_path: Path) -> None:
    async def main(kernel: Kernel) -> None:
        events = Events()
        channel = kernel.channel("c", on_drop=lambda *told: events("drop", {"told": told}))
        stalled, got = channel.listen("stalled", bound=100), {"x": [], "y": []}

        async def read(name: str) -> None:
            async for event in channel.listen(name):
                got[name].append(event)

        for name in got:
            kernel.start(name, read, name)
        await kernel.clock.sleep(1)
        for n in range(10_000):
            channel.publish(n)
            if not n % 100:
                await kernel.clock.sleep(0.01)
        await kernel.clock.sleep(1)
        assert got == {"x": list(range(10_000)), "y": list(range(10_000))}
        assert stalled.dropped == 9_900
        assert {told["told"][1] for _, told in events.seen} == {"stalled"}  # type: ignore[index]
        assert await stalled.next(1) == 9_900

    run_on("trio", main)


@covers("RT17")
def test_sessions_that_wait_for_one_another_are_told_the_chain_at_once_and_stay_live(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        said: list[str] = []

        async def peer(arguments: Mapping[str, Any], context: Any) -> str:
            other = {A: B, B: A, KEY: KEY}[context.session]
            sent = await host.send(other, "and you?")
            try:
                return (await sent.reply()).text
            except PerdureError as error:
                said.append(str(error))
                return "no answer"

        play = Play(calls("peer"), key=KEY)
        play.then(calls("peer"), key=A)
        play.then(calls("peer"), key=B)
        async with hosted(tmp_path, play, clock, tools=(Fn("peer", peer),)) as host:
            began = clock.now()
            assert (await ask(host, "go")).stop == "stop"
            assert f"{KEY} -> {KEY}" in said[0]
            first = await host.send(A, "go")
            assert (await first.reply(100)).stop == "stop"
            assert f"{B} -> {A} -> {B}" in said[1] or f"{A} -> {B} -> {A}" in said[1]
            assert clock.now() - began < 60
            assert not await host.abort(A)
        with pytest.raises(TypeError, match="never `async def`"):
            host.kernel.actor("x", peer)  # type: ignore[arg-type]

    virtual(main)


@covers("RT18")
def test_an_actor_that_breaks_is_told_of_keeps_its_mail_and_lets_nobody_hang() -> None:
    async def main(kernel: Kernel) -> None:
        clock, incarnations, answered = kernel.clock, [], []

        def handle(message: Any) -> None:
            n, waiter = message
            if n == 3:
                raise ValueError("the third breaks it")
            waiter.set(n)

        def restart(error: BaseException) -> Any:
            incarnations.append(repr(error))
            return handle

        ref = kernel.actor("a", handle, restart=restart)

        async def asks(n: int) -> None:
            answered.append(await kernel.ask(ref, lambda waiter: (n, waiter), 30))

        for n in range(10):
            kernel.start(f"ask {n}", asks, n)
        await clock.sleep(1)
        assert sorted(answered) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert len(incarnations) == 2
        assert [parked.message[0] for parked in kernel.parked()] == [3]

        def never(error: BaseException) -> Any:
            raise OSError("and it can't start again")

        other = kernel.actor("b", handle, restart=never)
        other.tell((3, clock.waiter()))
        await clock.sleep(1)
        with pytest.raises(ActorParked):
            await kernel.send(other, (1, clock.waiter()), timeout=30)
        assert {"actor.crashed", "actor.restart_failed", "actor.parked"} <= set(events.names())

    events = Events()
    run_on("trio", main, events=events)


@covers("RT18")
def test_who_waits_for_the_reply_of_a_session_that_breaks_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perdure.actors.letters import Letters

    deliver = Letters.deliver

    def broken(letters: Letters, mail: Any) -> None:
        if "break" in str(mail.letter.content):
            raise ValueError("a bug")
        deliver(letters, mail)

    monkeypatch.setattr(Letters, "deliver", broken)

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        async with hosted(tmp_path, Play(gate), clock) as host:
            waiting = [await host.send(KEY, "first")]
            await gate.arrived()
            waiting += [await host.send(KEY, f"waits {n}") for n in range(9)]
            with pytest.raises(PerdureError):
                await host.send(KEY, "break")
            began = clock.now()
            for one in waiting:
                with pytest.raises(PerdureError, match="begins anew"):
                    await one.reply(1_000)
            assert clock.now() == began
            assert (await ask(host, "after")).stop == "stop"
        assert said_by_users(session_path(tmp_path)) == ["first", *(f"waits {n}" for n in range(9)), "after"]

    virtual(main)
