"""`perdure memory forget`: what says a text is nowhere any more, and what it could not do is one line."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from helpers_cli import failed, run
from helpers_host import Play, real
from helpers_memory import Keeper
from perdure.contracts import Forgotten, MemoryContext
from perdure.errors import PerdureError, UsageError
from perdure.host import Host
from perdure.kernel.clock import RealClock
from perdure.plugins import registry

SECRET = "the code of the gate is kestrel"
NOTE = f"# Gate\n\n- opens at nine\n- {SECRET}\n"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    for agent in ("main", "coder"):
        folder = tmp_path / "state" / "workspaces" / agent / "memory"
        folder.mkdir(parents=True)
        (folder / "2026-01-05.md").write_text(NOTE)
    return tmp_path / "state"


def holding(state: Path, text: str) -> list[str]:
    """Files of the state folder that hold a text, but for the log of commands."""
    return sorted(
        str(path.relative_to(state))
        for path in state.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    )


def test_what_says_it_goes_from_one_agent_s_notes_and_index_to_the_last_byte(state: Path) -> None:
    ran = run("memory", "forget", "KESTREL", "--state", state, "--json")
    assert (ran.code, ran.json["done"], ran.json["memory"], ran.json["agent"]) == (
        0, True, "memory-core", "main",
    )  # fmt: skip
    assert ran.json["sources"] == ["memory/2026-01-05.md#L4"]
    assert holding(state, "kestrel") == ["workspaces/coder/memory/2026-01-05.md"]
    assert holding(state, "opens at nine")
    again = run("memory", "forget", "kestrel", "--state", state)
    assert (again.code, again.out) == (1, "memory-core: nothing of agent main says that\n")
    ran = run("memory", "forget", "kestrel", "--agent", "coder", "--state", state)
    assert ran.code == 0
    assert "  memory/2026-01-05.md#L4\n" in ran.out
    assert holding(state, "kestrel") == []


@pytest.mark.parametrize(
    ("memory", "text", "told"),
    [
        ("memory-core", "a", "too short to be forgotten everywhere"),
        ("none", "kestrel", "memory 'none' keeps nothing"),
        ("nowhere", "kestrel", "'nowhere' is not known"),
        ("memory-graph", " ", "forget: tell what"),
    ],
)
def test_what_can_t_be_forgotten_is_one_line(memory: str, text: str, told: str, state: Path) -> None:
    (state / "perdure.toml").write_text(f'[plugins.slots]\nmemory = "{memory}"\n')
    assert told in failed(run("memory", "forget", text, "--state", state))
    assert len([path for path in holding(state, "kestrel") if path.endswith(".md")]) == 2


def test_an_agent_without_notes_has_nothing_to_forget(state: Path) -> None:
    assert run("memory", "forget", "kestrel", "--agent", "nobody", "--state", state).code == 1
    assert not (state / "workspaces" / "nobody").exists()


def test_a_running_host_keeps_its_folder_and_forgets_itself(state: Path) -> None:
    async def main() -> None:
        async with Host(state, model=Play().model(RealClock())) as host:
            ran = await anyio.to_thread.run_sync(run, "memory", "forget", "kestrel", "--state", state)
            assert str(state) in failed(ran)
            done = await host.forget("kestrel")
            assert (done.notes, done.sources) == (1, ("memory/2026-01-05.md#L4",))
            assert holding(state, "kestrel") == ["workspaces/coder/memory/2026-01-05.md"]
            with pytest.raises(UsageError, match="too short"):
                await host.forget("x", agent="coder")

    real(main)


class Broken(Keeper):
    async def forget(self, context: MemoryContext, text: str) -> Forgotten:
        raise ZeroDivisionError("a bug")


def test_a_memory_that_breaks_or_can_t_is_a_line_for_the_program(tmp_path: Path) -> None:
    async def main() -> None:
        for memory, error, told in (
            (Broken(), PerdureError, r"memory keeper.forget: ZeroDivisionError: a bug"),
            (Keeper(), UsageError, "memory 'keeper' can't forget"),
        ):
            async with Host(tmp_path, model=Play().model(RealClock()), memory=memory) as host:
                with pytest.raises(error, match=told):
                    await host.forget("kestrel")

    real(main)


def test_a_memory_that_breaks_is_one_line_of_the_command(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MEMORIES", {**registry.MEMORIES, "keeper": Broken})
    (state / "perdure.toml").write_text('[plugins.slots]\nmemory = "keeper"\n')
    assert "memory keeper.forget: ZeroDivisionError: a bug" in failed(
        run("memory", "forget", "it", "--state", state)
    )
