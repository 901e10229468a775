"""A provider inside the process is not blamed for what its own end took."""

from __future__ import annotations

import json
from pathlib import Path

from helpers_host import ask, virtual
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock

LONG = "Measure twice, cut once. " * 200


def test_a_scripted_model_s_cache_goes_with_its_process_and_nobody_is_blamed(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        for text in ("first", "second"):
            async with Host(tmp_path / "state", clock=clock, environ={}) as host:
                await ask(host, f"{text}: {LONG}")
                await ask(host, "and again")

    virtual(main)
    lines = (tmp_path / "state" / "runtime.log").read_text().splitlines()
    broke = [told for told in map(json.loads, lines) if told["event"] == "cache.break"]
    assert [(told["cause"], told["rule"]) for told in broke] == [
        ("restart", "the provider began anew, and its cache with it")
    ]
