"""Approvals, schedules, the outbox and what operators do, over HTTP."""

from __future__ import annotations

from pathlib import Path

import msgspec

from helpers_host import KEY, Play, real, tells
from helpers_kernel import each_loop
from helpers_outbox import Receiver
from helpers_serve import PATH, following, serving, tenant, token, until, upto
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.errors import Parked, Quarantined, SpendCap
from perdure.kernel.run import Backend
from perdure.server.problems import answer, refused


def test_a_tool_call_waits_for_a_client_and_runs_when_it_says_so(tmp_path: Path) -> None:
    play = Play(ScriptedReply((call("look"),)), say("done"))

    async def main() -> None:
        async with (
            serving(tmp_path, play, tools=[tells("look")], approve="events") as found,
            following(found) as stream,
            found.client() as client,
        ):
            found.host.services.approvals.tools = ("look",)
            await client.post(f"{PATH}/messages", json={"text": "look"})
            asked = (await upto(stream, "approval.asked"))[-1].data
            waiting = (await client.get(f"{PATH}/approvals")).json()["approvals"]
            assert [each["id"] for each in waiting] == [asked["id"]]
            wrong = await client.post(f"{PATH}/approvals", json={"id": "nobody", "allow": True})
            assert wrong.status_code == 404
            said = await client.post(f"{PATH}/approvals", json={"id": asked["id"], "allow": True})
            assert said.json()["approvals"] == []
            assert (await upto(stream, "approval.answered"))[-1].data["outcome"] == "allowed"
            await upto(stream, "turn.finished")

    real(main)


def test_an_answer_that_nobody_awaits_goes_out_and_one_awaited_does_not(tmp_path: Path) -> None:
    receiver = Receiver()

    async def main() -> None:
        async with (
            serving(tmp_path, Play(say("one"), say("two")), channels=[receiver]) as found,
            found.client() as client,
        ):
            await client.post(f"{PATH}/messages?wait=20", json={"text": "a"})
            await client.post(f"{PATH}/messages", json={"text": "b"})
            await until(lambda: bool(receiver.arrived))
            assert receiver.texts == ["two"]
            assert (await client.get(f"{PATH}/outbox")).status_code == 200
            own = await client.post(f"{PATH}/messages", json={"text": "c", "sender": "perdure.timer"})
            assert own.status_code == 422

    real(main)


@each_loop
def test_a_schedule_is_set_listed_and_taken_away(loop: Backend, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            wish = {"message": "read the news", "every": "4h", "id": "news"}
            made = await client.post(f"{PATH}/schedules", json=wish)
            assert made.status_code == 201, made.text
            assert [each["id"] for each in (await client.get(f"{PATH}/schedules")).json()["schedules"]] == [
                "news"
            ]
            assert (await client.delete(f"{PATH}/schedules/other")).status_code == 404
            assert (await client.delete(f"{PATH}/schedules/news")).json()["schedules"] == []
            bad = await client.post(f"{PATH}/schedules", json={"message": "x", "every": "soon"})
            assert bad.status_code == 400

    real(main, loop)


def test_what_operators_do_is_for_operators(tmp_path: Path) -> None:
    posts = ["/v1/parked/1/retry", "/v1/parked/1/drop", f"/v1/quarantined/{KEY}/retry", "/v1/reload"]

    async def main() -> None:
        async with serving(tmp_path, tenants=(tenant("a", "ant"),)) as found:
            async with found.client(token("a")) as client:
                assert (await client.get("/v1/parked")).status_code == 403
                for path in posts:
                    assert (await client.post(path, json={})).status_code == 403
            async with found.client() as client:
                assert (await client.get("/v1/parked")).json() == {"parked": [], "quarantined": []}
                for path in posts[:3]:
                    assert (await client.post(path, json={})).status_code == 404

    real(main)


def test_a_tenant_that_a_reload_takes_away_is_out_at_once(tmp_path: Path) -> None:
    one, two = tenant("a", "ant"), tenant("b", "ant")

    async def main() -> None:
        async with serving(tmp_path, tenants=(one,)) as found:
            path = "/v1/sessions/agent:ant:cli:dm:x"
            async with following(found, path, who=token("a")) as stream, found.client(token("a")) as client:
                await upto(stream, "ready")
                await found.host.reload(msgspec.structs.replace(found.host.settings, tenants=(two,)))
                await upto(stream, "reloaded")
                assert (await client.get("/v1/sessions")).status_code == 401
            async with found.client(token("b")) as client:
                assert (await client.post(f"{path}/messages?wait=20", json={"text": "hi"})).status_code == 200

    real(main)


def test_refusals_of_one_session_are_told_as_such() -> None:
    for error, status in ((Quarantined("x"), 409), (Parked("x"), 409), (SpendCap("x"), 429)):
        assert answer(refused(error)).status_code == status
    assert answer(refused(SpendCap("x"))).headers["retry-after"] == "3600"


def test_metrics_tell_what_is_refused_and_what_is_wrong(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as found, found.client() as client:
            found.host.log.warning("tool.failed")
            text = (await client.get("/metrics")).text
            assert 'perdure_trouble_total{event="tool.failed"} 1.0' in text
            for name in ("loop_lag_ms", "gc_longest_pause_seconds", "memory", "refusals", "quarantined"):
                assert f"# TYPE perdure_{name}" in text, name

    real(main)
