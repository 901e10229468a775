"""A turn whose model fails for good goes on with the next of the chain, and comes back when that may work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from helpers_host import KEY, Play, ask, calls, entries, messages, notices, session_path, tells, virtual
from helpers_kernel import each_loop
from perdure.actors.services import Timing
from perdure.edges.models.reply import Fault, fail, say
from perdure.edges.session.tail import open_session
from perdure.edges.settings import AgentSettings, ModelSettings, Settings
from perdure.errors import ModelUnusable
from perdure.host import Host
from perdure.kernel.run import Backend
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

FIRST = ModelInfo("first", "large", window=200_000, cache_minimum=16)
SECOND = ModelInfo("second", "medium", window=200_000, cache_minimum=16)
SMALL = ModelInfo("third", "small", window=20_000, cache_minimum=16)
COOLDOWN = 600.0
QUICK = Timing(retries=1, retry_base=0.1)
ELSEWHERE: list[Fault] = ["auth", "billing", "overloaded", "rate_limit", "server", "cut", "stall"]


class Three:
    """A host whose sessions choose `first/large`; each provider plays its own script."""

    def __init__(self, folder: Path, clock: VirtualClock, chain: tuple[str, ...] | None = None) -> None:
        self.folder, self.clock = folder, clock
        self.first, self.second, self.third = Play(), Play(), Play()
        self.plays = {"first": self.first, "second": self.second, "third": self.third}
        self.chain = ("second/medium", "third/small") if chain is None else chain

    @asynccontextmanager
    async def host(self, *, agents: tuple[AgentSettings, ...] = (), **options: Any) -> AsyncIterator[Host]:
        (self.folder / "workspace").mkdir(exist_ok=True)
        models = ModelSettings(default="first/large", fallback=self.chain, cooldown_seconds=COOLDOWN)
        async with Host(
            self.folder / "state",
            settings=options.pop("settings", Settings(models=models, agents=agents)),
            models={info.ref: info for info in (FIRST, SECOND, SMALL)},
            factories={name: self._made(play) for name, play in self.plays.items()},
            workspace=self.folder / "workspace", shown_workspace="/workspace", clock=self.clock, environ={},
            timing=QUICK, tools=[tells("look")], **options,
        ) as host:  # fmt: skip
            yield host

    def _made(self, play: Play) -> Any:
        return lambda info: play.model(self.clock, info)

    @property
    def answered_by(self) -> list[str]:
        """Who gave the answers on record, in order."""
        found = messages(session_path(self.folder), "assistant")
        return [e["message"]["provider"] for e in found if e["message"]["stopReason"] != "error"]


@each_loop
@pytest.mark.parametrize("fault", ELSEWHERE)
def test_the_turn_goes_on_with_the_next_model_and_that_is_told_once(
    tmp_path: Path, loop: Backend, fault: Fault
) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(fail(fault), fail(fault))
        three.second.then(say("the second answers"))
        async with three.host() as host:
            seen = notices(host)
            reply = await ask(host, "hello")
            assert (reply.stop, reply.text) == ("stop", "the second answers")
            assert (await ask(host, "and again")).text == "ok 2"
            told = [n.text for n in seen if n.kind == "fallback"]
            assert len(told) == 1
            assert told[0].startswith("first/large can't answer (")
            assert "second/medium does, and reads the context anew, uncached" in told[0]
            status = host.status()
            assert [line["model"] for line in status["fallbacks"]] == ["first/large"]
            assert status["totals"]["fallbacks"] == 1
        assert three.answered_by == ["second", "second"]
        assert not [e for e in messages(session_path(tmp_path)) if e["message"].get("stopReason") == "error"]

    virtual(main, loop)


@pytest.mark.parametrize("fault", ["overflow", "empty", "refusal"])
def test_what_another_model_would_share_stays_with_the_first(tmp_path: Path, fault: Fault) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(*[fail(fault)] * 8)
        async with three.host() as host:
            await ask(host, "hello")
            assert not host.status()["fallbacks"]
        assert three.second.bodies == {}

    virtual(main)


def test_a_batch_of_tools_is_not_run_again_when_the_model_behind_it_changes(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(calls("look"), fail("billing"))
        async with three.host() as host:
            reply = await ask(host, "look and tell me")
            assert (reply.stop, reply.steps) == ("stop", 2)
            assert host.services.tools["look"].runs == 1  # type: ignore[attr-defined]
        assert three.answered_by == ["first", "second"]
        (body,) = three.second.bodies[KEY]
        assert b"tool_result" in body

    virtual(main)


def test_the_first_answers_again_after_the_cool_down_and_other_sessions_do_not_try_it_before(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(fail("auth"))
        async with three.host() as host:
            seen = notices(host)
            await ask(host, "hello")
            other = await ask(host, "hello", "agent:main:cli:dm:other")
            assert other.stop == "stop"
            assert "agent:main:cli:dm:other" not in three.first.bodies
            await clock.sleep(COOLDOWN + 1)
            assert (await ask(host, "back?")).stop == "stop"
            assert seen[-1].text == "first/large answers again, and reads the context anew, uncached"
            assert not host.status()["fallbacks"]
        assert three.answered_by == ["second", "first"]

    virtual(main)


def test_a_session_that_a_stand_in_answered_wakes_with_its_own_choice(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(say("by the first"), fail("auth"))
        async with three.host() as host:
            await ask(host, "hello")
            await ask(host, "and now?")
        assert three.answered_by == ["first", "second"]
        opened = open_session(session_path(tmp_path))
        assert (opened.settings.provider, opened.settings.model) == ("first", "large")
        async with three.host() as host:
            await ask(host, "after a restart")
        assert three.answered_by == ["first", "second", "first"]

    virtual(main)


def test_a_smaller_window_is_compacted_for_before_its_first_request(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock, chain=("third/small",))
        async with three.host() as host:
            for n in range(12):
                await ask(host, f"{n}: " + "water the lemons in the third row. " * 200)
            three.first.then(fail("billing"))
            reply = await ask(host, "what did I ask?")
            assert reply.stop == "stop", reply
        assert three.answered_by[-1] == "third"
        assert [e for e in entries(session_path(tmp_path)) if e["type"] == "compaction"]
        assert three.third.refused == 0

    virtual(main)


def test_where_all_have_failed_the_turn_ends_with_what_the_last_one_said(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        for play in three.plays.values():
            play.then(fail("auth"), fail("auth"))
        async with three.host() as host:
            reply = await ask(host, "hello")
            assert reply.stop == "error"
            assert len(reply.errors) == 3
        assert [len(play.bodies[KEY]) for play in three.plays.values()] == [1, 1, 1]

    virtual(main)


def test_an_agent_has_a_chain_of_its_own_and_may_have_none(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(fail("auth"), key="agent:lone:cli:dm:a")
        three.first.then(fail("auth"), key="agent:small:cli:dm:a")
        agents = (AgentSettings("lone", fallback=()), AgentSettings("small", fallback=("third/small",)))
        async with three.host(agents=agents) as host:
            assert (await ask(host, "hello", "agent:lone:cli:dm:a")).stop == "error"
            assert (await ask(host, "hello", "agent:small:cli:dm:a")).stop == "stop"
        assert three.second.bodies == {}
        assert list(three.third.bodies) == ["agent:small:cli:dm:a"]

    virtual(main)


def test_a_reference_that_names_no_model_is_left_out_and_one_without_a_key_is_passed_over(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock, chain=("nobody/knows", "openai/gpt-4.1", "second/medium"))
        three.first.then(fail("auth"))
        async with three.host() as host:
            assert (await ask(host, "hello")).stop == "stop"
            assert host.log.counts["model.no_fallback"] == 1
        assert three.answered_by == ["second"]

    virtual(main)


def test_a_choice_without_a_key_is_answered_by_its_stand_in_and_refused_where_there_is_none(
    tmp_path: Path,
) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        models = ModelSettings(default="openai/gpt-4.1", fallback=("second/medium",))
        async with three.host(settings=Settings(models=models)) as host:
            seen = notices(host)
            assert (await ask(host, "hello")).stop == "stop"
            assert "openai/gpt-4.1 can't answer (no API key: set OPENAI_API_KEY" in seen[0].text
        async with three.host(settings=Settings(models=replace(models, fallback=()))) as host:
            with pytest.raises(ModelUnusable):
                await host.send("agent:main:cli:dm:new", "hello")

    virtual(main)


def test_what_a_stand_in_costs_is_counted_at_its_own_price(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        three = Three(tmp_path, clock)
        three.first.then(fail("auth"))
        async with three.host() as host:
            reply = await ask(host, "hello")
            lines = {line["name"]: line for line in host.status()["models"]}
            assert lines["first/large"]["errors"] == {"auth": 1}
            assert lines["second/medium"]["requests"] == 1
            assert reply.usage.cost_usd > 0

    virtual(main)
