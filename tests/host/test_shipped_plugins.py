"""Each plugin that ships, chosen by one line, in a host that speaks with a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers_host import KEY, Play, ask, hosted, notices, real
from perdure.edges.settings import PluginSettings, Settings, SlotSettings
from perdure.kernel.clock import RealClock
from perdure.plugins.shipped import ENGINES, MEMORIES


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_an_engine_that_ships_answers_and_is_well(engine: str, tmp_path: Path) -> None:
    told = Settings(plugins=PluginSettings(slots=SlotSettings(context_engine=engine), strict=True))
    play = Play()

    async def main() -> None:
        async with hosted(tmp_path, play, RealClock(), settings=told) as host:
            seen = notices(host)
            for n in range(3):
                assert (await ask(host, f"Anna moved to Basel in week {n}.")).stop == "stop"
            (line,) = (e for e in host.status()["engines"] if e.get("slot"))
            assert (line["id"], line["state"]) == (engine, "well")
            assert [n for n in seen if n.kind in ("engine", "compaction")] == []
        assert play.refused == 0

    real(main, seconds=60)


@pytest.mark.parametrize("memory", sorted(MEMORIES))
def test_a_memory_that_ships_offers_its_tools_and_is_well(memory: str, tmp_path: Path) -> None:
    told = Settings(plugins=PluginSettings(slots=SlotSettings(memory=memory), strict=True))
    play = Play()

    async def main() -> None:
        async with hosted(tmp_path, play, RealClock(), settings=told) as host:
            assert host.resolver.replaced == ""
            assert (await ask(host, "Anna moved to Basel in May.")).stop == "stop"
            offered = [tool["name"] for tool in json.loads(play.bodies[KEY][0]).get("tools", [])]
            assert any(name.startswith("memory_") for name in offered) == (memory != "none")
            assert host.status()["memory"]["healthy"]

    real(main, seconds=60)
