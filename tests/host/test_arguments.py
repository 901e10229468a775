"""What a program gives a host is checked before anything starts, and told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_host import KEY
from perdure.contracts import Assembled, EngineCompaction, EngineInfo
from perdure.errors import Closed, ConfigError, UsageError
from perdure.host import Host


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine", "legacy"),
        ("engine", object()),
        ("tools", ["read"]),
        ("model", object()),
        ("settings", {}),
        ("workspace", "/nowhere/at/all"),
    ],
)
def test_a_wrong_argument_is_named_in_one_line(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        Host(tmp_path / "state", environ={}, **{name: value})
    assert name in str(told.value)
    assert "\n" not in str(told.value)


def test_a_host_runs_with_the_settings_in_its_state_folder(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text('[models]\ndefault = "anthropic/claude-haiku-4-5"\n')
    assert Host(tmp_path, environ={}).settings.models.default == "anthropic/claude-haiku-4-5"
    (tmp_path / "perdure.toml").write_text("[hosts]\nx = 1\n")
    with pytest.raises(ConfigError, match="hosts"):
        Host(tmp_path, environ={})


def test_a_host_that_does_not_run_says_so(tmp_path: Path) -> None:
    host = Host(tmp_path / "state", environ={})

    async def use() -> None:
        await host.send(KEY, "hello")

    with pytest.raises(Closed, match="async with"):
        anyio.run(use)
    with pytest.raises(Closed, match="async with"):
        host.events()


class Sloppy:
    """An engine that returns what the contract doesn't say."""

    info = EngineInfo("sloppy", "Sloppy")

    async def ingest(self, context: Any, message: Any) -> bool:
        return True

    async def assemble(self, context: Any, messages: Any) -> Assembled:
        return messages  # type: ignore[no-any-return]

    async def compact(self, context: Any, delegate: Any, **_: Any) -> EngineCompaction:
        return EngineCompaction(True, False)


def test_an_engine_that_returns_the_wrong_thing_harms_no_turn_and_is_told(tmp_path: Path) -> None:
    told: list[Any] = []

    async def main() -> None:
        async with Host(tmp_path / "state", engine=Sloppy(), environ={}) as host:
            host.services.events.subscribe("test", told.append)
            reply = await (await host.send(KEY, "hello")).reply(30)
            assert reply.stop == "stop"

    anyio.run(main)
    assert any("sloppy" in getattr(event, "text", "") for event in told)
    assert '"level":"error"' in (tmp_path / "state" / "runtime.log").read_text()
