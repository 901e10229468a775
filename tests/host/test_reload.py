"""A configuration read again: what can be live is, the rest has a reason, a wrong file changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest

from helpers_host import Play, ask, hosted, real, tells, virtual
from perdure.cli.reloading import reload_on_hangup
from perdure.edges.settings import Settings
from perdure.edges.settings_live import RULES, rule
from perdure.errors import ConfigError
from perdure.kernel.clock import Clock, RealClock
from perdure.kernel.run import Backend
from perdure.records import Record


def leaves(record: Record, at: str = "") -> Iterator[str]:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from leaves(value, f"{at}{name}.")
        else:
            yield at + name


def test_every_setting_says_whether_it_is_live() -> None:
    keys = list(leaves(Settings()))
    assert [key for key in keys if rule(key) is None] == []
    assert [row for row in RULES if not any((key + ".").startswith(row + ".") for key in keys)] == []


def test_what_is_live_applies_and_what_is_not_waits_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "state" / "perdure.toml"

    async def main(clock: Clock) -> None:
        async with hosted(tmp_path, Play(), clock, tools=[tells("x")], settings=Settings()) as host:
            assert (await host.reload()).applied == ()
            file.write_text(
                "[log]\nlevel = 'error'\n[host]\nawake = 7\nmailbox = 5\n[models]\nretries = 9\n"
                "[tools]\napprove = ['x']\nallow = ['y']\n[compaction]\nthreshold_tokens = 99000\n"
            )
            told = await host.reload()
            live = {
                "log.level",
                "host.awake",
                "models.retries",
                "tools.approve",
                "compaction.threshold_tokens",
            }
            assert set(told.applied) == live
            assert {key for key, why in told.refused if why} == {"host.mailbox", "tools.allow"}
            assert host.services.timing.retries == 9
            assert host.services.memory.most_awake == 7
            assert host.services.approvals.tools == ("x",)
            assert (host.settings.host.awake, host.settings.host.mailbox) == (7, 64)
            before = host.folder.log.stat().st_size
            host.log.warning("tool.failed")
            assert host.folder.log.stat().st_size == before
            assert (await ask(host, "hello", "agent:new:cli:dm:x")).stop == "stop"

    virtual(main)


CONFLICT = "[compaction]\nthreshold_tokens = 9"
UNKNOWN = "[compaction]\nmodel = 'no/such'"


@pytest.mark.parametrize("text", ["[log", "[host]\nawake = 7\nmailboxes = 1", "x" * 100, CONFLICT, UNKNOWN])
def test_a_wrong_file_changes_nothing(tmp_path: Path, text: str) -> None:
    async def main(clock: Clock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=Settings()) as host:
            (tmp_path / "state" / "perdure.toml").write_text(text)
            with pytest.raises(ConfigError):
                await host.reload()
            assert host.settings == Settings()
            assert host.services.memory.most_awake == 1_024
            assert host.log.counts["config.refused"] == 1

    virtual(main)


def test_what_the_program_gave_itself_goes_on_deciding(tmp_path: Path) -> None:
    async def main(clock: Clock) -> None:
        async with hosted(tmp_path, Play(), clock, settings=Settings(), most_awake=3) as host:
            new = msgspec.structs.replace(Settings(), host=msgspec.structs.replace(Settings().host, awake=50))
            await host.reload(new)
            assert host.services.memory.most_awake == 3

    virtual(main)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_hangup_reads_the_configuration_again(
    tmp_path: Path, loop: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        async with hosted(tmp_path, Play(), RealClock(), settings=Settings()) as host:
            file = tmp_path / "state" / "perdure.toml"
            async with anyio.create_task_group() as group:
                await group.start(reload_on_hangup, host)
                for text, event in (("[host]\nawake = 9", "config.reloaded"), ("[host", "config.refused")):
                    file.write_text(text)
                    os.kill(os.getpid(), signal.SIGHUP)
                    while not host.log.counts[event]:  # noqa: ASYNC110  # a signal tells nobody
                        await anyio.sleep(0.01)
                group.cancel_scope.cancel()
            assert host.services.memory.most_awake == 9

    real(main, loop)
    told = capsys.readouterr().err
    assert "host.awake: applied" in told
    assert "nothing has changed" in told
