"""Approvals: nothing that needs one runs without it, whoever is silent, gone, aborted or asked twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers_host import KEY, Play, ask, calls, hosted, messages, real, session_path, tells, text_of, virtual
from perdure.actors.approvals import Verdict
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.settings import ExecSettings, Settings, ToolSettings
from perdure.errors import UsageError
from perdure.events import ApprovalAnswered, ApprovalAsked, Event
from perdure.host import Host
from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.run import Backend

LOOPS: tuple[Backend, ...] = ("asyncio", "trio")
OTHER = "agent:else:cli:dm:local"


def guarded(*globs: str, seconds: float = 600.0, mode: str = "off") -> Settings:
    run = ExecSettings(mode=mode)  # type: ignore[arg-type]
    return Settings(tools=ToolSettings(approve=globs, approval_seconds=seconds, exec=run))


def results(folder: Path, key: str = KEY) -> list[str]:
    return [text_of(e["message"]) for e in messages(session_path(folder, key), "toolResult")]


class Watched:
    """What was asked and answered; `asked(n)` waits for the n-th question."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self.events: list[Event] = []
        self._host, self._clock = host, clock
        self._want, self._bell = 0, clock.waiter("a question")
        host.services.events.subscribe("watched", self._told)

    def _told(self, event: Event) -> None:
        if isinstance(event, ApprovalAsked | ApprovalAnswered):
            self.events.append(event)
        if self._want and len(self.questions) >= self._want:
            self._bell.set()

    @property
    def questions(self) -> list[ApprovalAsked]:
        return [e for e in self.events if isinstance(e, ApprovalAsked)]

    @property
    def outcomes(self) -> list[str]:
        return [e.outcome for e in self.events if isinstance(e, ApprovalAnswered)]

    async def asked(self, count: int = 1) -> list[ApprovalAsked]:
        self._want, self._bell = count, self._clock.waiter("a question")
        if len(self.questions) < count:
            await self._clock.wait(self._bell, 1000)
        return self.questions


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("allow", [True, False])
def test_a_named_tool_runs_when_it_is_allowed_and_not_when_it_is_denied(
    tmp_path: Path, allow: bool, loop: Backend
) -> None:
    tool = tells("danger", "it ran")
    play = Play(ScriptedReply((call("danger", "toolu_1", token="sk-ant-api03-abcdefghijklmn"),)))

    async def main(clock: Clock) -> None:
        more: dict[str, Any] = {"settings": guarded("dan*"), "approve": "events"}
        async with hosted(tmp_path, play, clock, tools=[tool], **more) as host:
            watched = Watched(host, clock)
            sent = await host.send(KEY, "go")
            (asked,) = await watched.asked()
            assert host.approvals() == host.approvals(KEY) == (asked,)
            assert host.approvals(OTHER) == ()
            assert (asked.tool, asked.call_id, asked.subject) == ("danger", "toolu_1", "danger")
            assert "abcdefghijklmn" not in asked.arguments
            assert tool.runs == 0
            host.answer(asked.id, allow, note="" if allow else "use the other one")
            assert (await sent.reply(100)).text == "ok 2"
            assert watched.outcomes == ["allowed" if allow else "denied"]
            assert host.approvals() == ()

    virtual(main, loop)
    assert tool.runs == int(allow)
    (result,) = results(tmp_path)
    assert result == "it ran" if allow else ("did not allow" in result and "use the other one" in result)


def test_where_nobody_is_there_to_ask_the_call_is_refused_at_once(tmp_path: Path) -> None:
    tool = tells("danger")

    async def main(clock: Clock) -> None:
        async with hosted(
            tmp_path, Play(calls("danger")), clock, tools=[tool], settings=guarded("*")
        ) as host:
            began = clock.now()
            await ask(host, "go")
            assert clock.now() == began

    virtual(main)
    assert tool.runs == 0
    assert "nobody is there to ask" in results(tmp_path)[0]


def test_silence_ends_at_the_deadline_and_is_told_as_no_refusal(tmp_path: Path) -> None:
    tool = tells("danger")

    async def main(clock: Clock) -> None:
        more: dict[str, Any] = {"settings": guarded("danger", seconds=90), "approve": "events"}
        async with hosted(tmp_path, Play(calls("danger")), clock, tools=[tool], **more) as host:
            watched, began = Watched(host, clock), clock.now()
            await ask(host, "go")
            assert clock.now() == began + 90
            assert watched.outcomes == ["expired"]
            with pytest.raises(UsageError, match="nothing waits"):
                host.answer(watched.questions[0].id, True)

    virtual(main)
    assert tool.runs == 0
    assert "no refusal" in results(tmp_path)[0]


def test_the_deadline_of_a_tool_begins_when_it_is_allowed(tmp_path: Path) -> None:
    from perdure.actors.services import Timing

    async def main(clock: Clock) -> None:
        async def slowly(asked: ApprovalAsked) -> bool:
            await clock.sleep(500)
            return True

        more: dict[str, Any] = {"settings": guarded("slow"), "approve": slowly, "timing": Timing(tool=30)}
        async with hosted(
            tmp_path, Play(calls("slow")), clock, tools=[tells("slow", "in time")], **more
        ) as h:
            await ask(h, "go")

    virtual(main)
    assert results(tmp_path) == ["in time"]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_abort_takes_the_question_back(tmp_path: Path, loop: Backend) -> None:
    tool = tells("danger")

    async def main(clock: Clock) -> None:
        more: dict[str, Any] = {"settings": guarded("danger"), "approve": "events"}
        async with hosted(tmp_path, Play(calls("danger")), clock, tools=[tool], **more) as host:
            watched = Watched(host, clock)
            sent = await host.send(KEY, "go")
            await watched.asked()
            assert await host.abort(KEY)
            assert (await sent.reply(100)).stop == "aborted"
            assert host.approvals() == ()
            assert watched.outcomes == ["cancelled"]
            assert (await ask(host, "again")).stop == "stop"

    virtual(main, loop)
    assert tool.runs == 0


def test_of_a_batch_each_call_is_asked_about_and_the_others_do_not_wait(tmp_path: Path) -> None:
    safe, one, two = tells("safe", "safe ran"), tells("one", "one ran"), tells("two", "two ran")

    async def main(clock: Clock) -> None:
        more: dict[str, Any] = {"settings": guarded("one", "two"), "approve": "events"}
        play = Play(calls("one", "safe", "two"))
        async with hosted(tmp_path, play, clock, tools=[safe, one, two], **more) as host:
            watched = Watched(host, clock)
            sent = await host.send(KEY, "go")
            first, second = await watched.asked(2)
            assert safe.runs == 1
            by_tool = {first.tool: first, second.tool: second}
            assert "Denied: one" in await host.command(KEY, f"/deny {by_tool['one'].id} not now")
            assert "Allowed: two" in await host.command(KEY, "/approve")
            await sent.reply(100)

    virtual(main)
    assert (one.runs, two.runs) == (0, 1)
    assert any("They say: not now" in result for result in results(tmp_path))


def test_an_answer_for_the_session_holds_there_only_and_not_in_the_next_file(tmp_path: Path) -> None:
    tool = tells("danger")

    async def main(clock: Clock) -> None:
        answers: list[str] = []

        async def approve(asked: ApprovalAsked) -> Verdict:
            answers.append(asked.key)
            return Verdict(True, "session")

        play = Play(calls("danger"), say("1"), calls("danger"), say("2"), calls("danger"), say("3"))
        play.then(calls("danger"), key=OTHER)
        more: dict[str, Any] = {"settings": guarded("danger"), "approve": approve}
        async with hosted(tmp_path, play, clock, tools=[tool], **more) as host:
            await ask(host, "go")
            await ask(host, "and again")
            assert answers == [KEY]
            await ask(host, "me, too", OTHER)
            assert answers == [KEY, OTHER]
            await host.command(KEY, "/new")
            await ask(host, "go")
            assert answers == [KEY, OTHER, KEY]

    virtual(main)
    assert tool.runs == 4


def test_another_session_can_neither_see_nor_answer_a_question(tmp_path: Path) -> None:
    tool = tells("danger")

    async def main(clock: Clock) -> None:
        more: dict[str, Any] = {"settings": guarded("danger"), "approve": "events"}
        async with hosted(tmp_path, Play(calls("danger")), clock, tools=[tool], **more) as host:
            watched = Watched(host, clock)
            sent = await host.send(KEY, "go")
            (asked,) = await watched.asked()
            with pytest.raises(UsageError, match="nothing waits"):
                host.answer(asked.id, True, key=OTHER)
            with pytest.raises(UsageError, match="nothing waits"):
                await host.command(OTHER, f"/approve {asked.id}")
            assert "danger" not in await host.command(OTHER, "/approvals")
            assert tool.runs == 0
            host.answer(asked.id, False, key=KEY)
            await sent.reply(100)

    virtual(main)


@pytest.mark.parametrize("broken", ["raises", "returns nonsense"])
def test_a_hook_that_breaks_allows_nothing(tmp_path: Path, broken: str) -> None:
    tool = tells("danger")

    async def main(clock: Clock) -> None:
        async def approve(asked: ApprovalAsked) -> Any:
            if broken == "raises":
                raise RuntimeError("no connection")
            return "yes"

        more: dict[str, Any] = {"settings": guarded("danger"), "approve": approve}
        async with hosted(tmp_path, Play(calls("danger")), clock, tools=[tool], **more) as host:
            await ask(host, "go")

    virtual(main)
    assert tool.runs == 0
    assert "failed to answer" in results(tmp_path)[0]


def test_a_call_that_waited_when_the_host_died_is_not_run_and_is_asked_about_again(tmp_path: Path) -> None:
    tool = tells("danger", "it ran")

    async def main(clock: Clock) -> None:
        more: dict[str, Any] = {"tools": [tool], "settings": guarded("danger"), "approve": "events"}
        async with hosted(tmp_path, Play(calls("danger")), clock, **more) as host:
            watched = Watched(host, clock)
            await host.send(KEY, "go")
            (before,) = await watched.asked()
            host.kill()
        play = Play(ScriptedReply((call("danger", "toolu_second"),)))
        async with hosted(tmp_path, play, clock, **more) as host:
            watched = Watched(host, clock)
            (again,) = await watched.asked()
            assert (tool.runs, again.tool) == (0, "danger")
            assert again.id != before.id
            with pytest.raises(UsageError):
                host.answer(before.id, True)
            host.answer(again.id, True)
            await ask(host, "done?")

    virtual(main)
    assert tool.runs == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_exec_in_mode_ask_runs_the_very_command_that_was_shown(tmp_path: Path, loop: Backend) -> None:
    from perdure.edges.tools.builtin import default_tools

    shown: list[str] = []

    async def approve(asked: ApprovalAsked) -> Verdict:
        shown.append(asked.subject)
        return Verdict("rm" not in asked.subject, "session")

    commands = ("touch yes", "touch yes", "rm yes", "touch yes2")
    play = Play(*(ScriptedReply((call("exec", f"toolu_{n}", command=c),)) for n, c in enumerate(commands)))

    async def main() -> None:
        more: dict[str, Any] = {"settings": guarded(mode="ask"), "approve": approve}
        (tmp_path / "workspace").mkdir()
        clock = RealClock()
        model = play.model(clock)
        async with Host(
            tmp_path / "state", model=model, clock=clock, workspace=tmp_path / "workspace", environ={}, **more
        ) as host:
            await ask(host, "go")

    real(main, loop)
    assert shown == ["exec touch yes", "exec rm yes", "exec touch yes2"]  # the second one stood already
    assert sorted(p.name for p in (tmp_path / "workspace").iterdir()) == ["yes", "yes2"]
    asking = default_tools(ToolSettings(exec=ExecSettings("ask")))
    assert [t.spec for t in asking] == [t.spec for t in default_tools(ToolSettings(exec=ExecSettings("on")))]


def test_a_question_shows_at_most_a_page_and_says_how_much_more_there_is(tmp_path: Path) -> None:
    seen: list[ApprovalAsked] = []

    async def approve(asked: ApprovalAsked) -> bool:
        seen.append(asked)
        return False

    async def main(clock: Clock) -> None:
        play = Play(ScriptedReply((call("danger", "toolu_1", text="x" * 50_000),)))
        more: dict[str, Any] = {"settings": guarded("danger"), "approve": approve}
        async with hosted(tmp_path, play, clock, tools=[tells("danger")], **more) as host:
            await ask(host, "go")

    virtual(main)
    assert len(seen[0].arguments) < 2_100
    assert "50,0" in seen[0].arguments


def test_what_is_no_approver_and_no_answer_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="async function"):
        Host(tmp_path, approve=True)  # type: ignore[arg-type]

    async def main(clock: Clock) -> None:
        async with hosted(tmp_path, Play(), clock, approve="events") as host:
            for wrong in ({"allow": "yes"}, {"allow": True, "remember": "always"}):
                with pytest.raises(UsageError, match="an answer is"):
                    host.answer("1-1", **wrong)  # type: ignore[arg-type]
            for line in ("/approve", "/deny", "/approve 9-9"):
                with pytest.raises(UsageError):
                    await host.command(KEY, line)

    virtual(main)
    assert json.loads((tmp_path / "state" / "shard.lock").read_text())["clean"]
