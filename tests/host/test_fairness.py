"""Model calls, budgets and inbound mail of several tenants: shared fairly, capped hard, refused early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers_host import Gate, Play, ask, hosted, said_by_users, session_path, virtual
from perdure.actors.urgency import PATIENCE, slack
from perdure.edges.models.reply import fail, say
from perdure.edges.settings import ModelSettings, Settings
from perdure.edges.settings_hosting import LimitSettings, TenantSettings
from perdure.errors import Busy
from perdure.kernel.virtual import VirtualClock

A, B = "agent:a:cli:dm:one", "agent:b:cli:dm:one"
DAY = 86_400.0


def of(agent: str, n: int) -> str:
    return f"agent:{agent}:cli:dm:{n}"


def limited(**limits: Any) -> Settings:
    return Settings(limits=LimitSettings(**limits))


def test_a_tenant_that_fills_the_queue_keeps_another_waiting_for_its_share_only(tmp_path: Path) -> None:
    settings = Settings(models=ModelSettings(concurrency=2))
    play = Play()
    for n in range(20):
        play.then(say("slow", latency=10.0), key=of("loud", n))
    play.then(say("mine", latency=10.0), key=B)

    async def main(clock: VirtualClock) -> float:
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            sent = [await host.send(of("loud", n), "go") for n in range(20)]
            began = clock.now()
            await ask(host, "hello", key=B)
            took = clock.now() - began
            for one in sent:
                await one.reply(1_000)
            return took

    assert virtual(main) <= 21  # behind the two that run: not behind the eighteen that wait


def test_a_stalled_provider_refuses_more_letters_of_that_tenant_and_writes_nothing(tmp_path: Path) -> None:
    settings = Settings(models=ModelSettings(concurrency=1, waiting=2))
    play = Play()

    async def main(clock: VirtualClock) -> None:
        gate = Gate(clock)
        play.then(gate, key=of("a", 0))
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            sent = [await host.send(of("a", n), "go") for n in range(3)]
            await gate.arrived()
            await clock.sleep(1)
            with pytest.raises(Busy, match="wait for scripted") as refused:
                await host.send(of("a", 9), "no room")
            assert refused.value.retry_after
            assert not session_path(tmp_path, of("a", 9)).exists()
            assert not play.bodies[of("a", 1)]  # what waits has no request yet
            other = await host.send(B, "another tenant is taken")
            gate.open()
            for one in (*sent, other):
                assert (await one.reply(1_000)).stop == "stop"

    virtual(main)


def test_one_refusal_pauses_the_provider_for_all_and_costs_the_others_no_try(tmp_path: Path) -> None:
    play = Play(fail("rate_limit", retry_after=30.0), key=A)

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            first = await host.send(A, "go")
            await clock.sleep(1)
            began = clock.now()
            others = [await host.send(of("b", n), "go") for n in range(10)]
            replies = [await one.reply(1_000) for one in others]
            assert clock.now() - began >= 28
            assert not any(reply.errors for reply in replies)
            assert all(len(play.bodies[of("b", n)]) == 1 for n in range(10))
            assert (await first.reply(1_000)).stop == "stop"
            (line,) = host.status()["queues"]
            assert (line["pauses"], line["state"]) == (1, "trying")

    virtual(main)


# --- budgets --------------------------------------------------------------------------------------


def test_a_used_up_budget_stops_a_turn_before_its_call_and_the_next_day_goes_on(tmp_path: Path) -> None:
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=limited(tenant_tokens_per_day=20_000)) as host:
            replies = []
            while not replies or replies[-1].stop == "stop":
                replies.append(await ask(host, "x" * 8_000, key=A))
            assert 1 < len(replies) < 10
            assert replies[-1].stop == "error"
            assert replies[-1].kind == "spend_cap"
            assert "of 20,000 tokens" in replies[-1].errors[0]
            assert len(play.bodies[A]) == len(replies) - 1
            assert (await ask(host, "another tenant", key=B)).stop == "stop"
            spend = {line["tenant"]: line for line in host.status()["spend"]}
            assert 0 < spend["a"]["tokens"] <= 20_000 == spend["a"]["tokens_cap"]
            await clock.sleep(DAY)
            assert (await ask(host, "a new day", key=A)).stop == "stop"

    virtual(main)


def test_calls_at_once_overshoot_a_cap_by_one_answer_at_most(tmp_path: Path) -> None:
    """Forty sessions at once; each answer costs about a cent and the day's budget is ten."""
    play = Play()
    for n in range(40):
        play.then(say("y" * 2_000, latency=5.0), key=of("a", n))

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=limited(tenant_usd_per_day=0.10)) as host:
            sent = [await host.send(of("a", n), "go") for n in range(40)]
            replies = [await one.reply(100_000) for one in sent]
            well = [reply for reply in replies if reply.stop == "stop"]
            spent = sum(reply.usage.cost_usd for reply in well)
            dearest = max(reply.usage.cost_usd for reply in well)
            assert spent <= 0.10 + dearest
            assert spent > 0.10 - 2 * dearest  # and nearly all of it could be used
            assert {reply.kind for reply in replies} == {"", "spend_cap"}
            assert [line["usd"] for line in host.status()["spend"]] == [pytest.approx(spent, abs=1e-6)]

    virtual(main)


def test_neither_a_kill_nor_a_restart_gives_a_budget_back(tmp_path: Path) -> None:
    settings = limited(session_tokens_per_day=12_000)
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            await ask(host, "x" * 8_000, key=A)
            before = host.status()["spend"]
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            assert host.status()["spend"] == before
            gate = Gate(clock)
            play.then(gate, key=A)
            await host.send(A, "and while this is asked")
            await gate.arrived()
            host.kill()
        with (tmp_path / "state" / "spend.jsonl").open("ab") as journal:
            journal.write(b'{"day":"2026-')  # a torn line
        async with hosted(tmp_path, play, clock, settings=settings) as host:
            after = {line.get("session"): line["tokens"] for line in host.status()["spend"]}
            known = {line.get("session"): line["tokens"] for line in before}
            assert after[A] > known[A]  # the call that the kill cut off counts at the most

    virtual(main)


def test_summaries_are_paid_from_the_same_budget(tmp_path: Path) -> None:
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, play, clock) as host:
            for n in range(4):
                await ask(host, f"{n} " + "word " * 8_000, key=A)
            before = host.status()["spend"][0]["tokens"]
            await host.command(A, "/compact")
            assert play.summaries
            assert host.status()["spend"][0]["tokens"] > before + 1_000

    virtual(main)


# --- what comes in --------------------------------------------------------------------------------


def test_more_messages_a_minute_are_refused_with_the_time_to_wait_before_anything_is_written(
    tmp_path: Path,
) -> None:
    settings = Settings(
        tenants=(TenantSettings("t", ("a",), messages_per_minute=30),),
        limits=LimitSettings(session_messages_per_minute=6),
    )

    async def main(clock: VirtualClock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=settings) as host:
            for n in range(6):
                await host.send(A, f"{n}")
            with pytest.raises(Busy, match="6 messages a minute of one session") as refused:
                await host.send(A, "too many")
            assert "too many" not in said_by_users(session_path(tmp_path, A))
            assert await ask(host, "another session", key=of("a", 2))
            await clock.sleep(refused.value.retry_after or 0)
            assert await ask(host, "now", key=A)
            refusals = []
            for n in range(40):
                try:
                    await host.send(of("a", 10 + n), "a tenant has its own")
                except Busy as error:
                    refusals.append(str(error))
            assert 10 < len(refusals) < 25
            assert all("30 messages a minute of one tenant" in told for told in refusals)
            assert host.status()["totals"]["refused_rate"] == 1 + len(refusals)

    virtual(main)


# --- background work ------------------------------------------------------------------------------


def test_the_nearer_a_view_is_to_the_line_the_less_its_compaction_may_wait() -> None:
    waits = [slack(used, 80, 90) for used in range(75, 95)]
    assert waits == sorted(waits, reverse=True)
    assert (waits[0], waits[-1]) == (PATIENCE, 0.0)
