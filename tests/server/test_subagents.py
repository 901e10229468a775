"""Subagents over HTTP: who is whose, events, and stopping a tree."""

from __future__ import annotations

from pathlib import Path

from helpers_host import KEY, real
from helpers_kernel import each_loop
from helpers_serve import PATH, following, until, upto
from helpers_subagents import Nursery, nursery, spawning
from perdure.edges.models.reply import say
from perdure.kernel.clock import RealClock
from perdure.kernel.run import Backend
from perdure.testing.serving import served


@each_loop
def test_a_client_sees_children_and_stops_the_tree(loop: Backend, tmp_path: Path) -> None:
    play = Nursery(spawning("slow", label="slow one"), say("begun"), say("noted"))
    play.child("slow", say("never", latency=100.0))

    async def main() -> None:
        host = nursery(tmp_path, play, RealClock())
        async with served(host) as found, following(found) as stream, found.client() as client:
            await client.post(f"{PATH}/messages", json={"text": "go"})
            begun = (await upto(stream, "subagent.started"))[-1].data
            assert (begun["label"], begun["depth"]) == ("slow one", 1)
            await upto(stream, "turn.finished")
            rows = {row["key"]: row for row in (await client.get("/v1/sessions")).json()["sessions"]}
            assert (rows[KEY]["parent"], rows[KEY]["state"]) == (None, None)
            child = rows[begun["child"]]
            assert (child["parent"], child["state"]) == (KEY, "open")
            shown = (await client.get(PATH)).json()
            assert [each["state"] for each in shown["children"]] == ["running"]
            stopped = (await client.post(f"{PATH}/stop", json={"tree": True})).json()
            assert stopped == {"key": KEY, "stopped": True, "below": [begun["child"]]}
            ended = (await upto(stream, "subagent.ended"))[-1].data
            assert (ended["child"], ended["state"]) == (begun["child"], "killed")
            rows = {row["key"]: row for row in (await client.get("/v1/sessions")).json()["sessions"]}
            assert rows[begun["child"]]["state"] == "killed"
            assert (await client.get("/v1/status")).json()["subagents"]["ended"] == {"killed": 1}
            await until(lambda: not host.services.family.open)
            again = (await client.post(f"{PATH}/stop", json={"tree": True})).json()
            assert again["stopped"] is False

    real(main, loop)
