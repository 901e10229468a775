"""The memory in commands that only look: its names, its tools in a request, its health; no byte changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers_cli import fingerprint, python, run
from helpers_host import KEY, Play, ask, session_path, tells, virtual
from helpers_memory import Keeper, chosen
from helpers_sessions import assistant, user, write
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.plugins import registry

SETTINGS = '[plugins.slots]\nmemory = "keeper"\n[memory]\nrecall = "auto"\n'


def keeper(lent: Any) -> Keeper:
    """A memory that looks at all it is lent, as a careful one would not before it is asked."""
    assert lent.store.name == "keeper"
    assert lent.settings == {}
    return Keeper(tells("memory_search"), guidance="Look there first.")


def broken() -> Keeper:
    raise ImportError("no lancedb")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shipped = {**registry.MEMORIES, "keeper": keeper, "broken": broken}
    monkeypatch.setattr(registry, "MEMORIES", shipped)
    path = session_path(tmp_path)
    path.parent.mkdir(parents=True)
    write(path, [user("00000001", None, "hello"), assistant("00000002", "00000001", "hello to you")])
    (tmp_path / "state" / "perdure.toml").write_text(SETTINGS)
    return tmp_path / "state"


def test_the_slot_s_names_are_known_and_a_wrong_one_is_found(state: Path) -> None:
    ran = run("config", "check", "--state", state, "--json")
    assert (ran.code, ran.json["findings"]) == (0, [])
    assert {"keeper", "none"} <= set(ran.json["known"]["memories"])
    assert "legacy" in ran.json["known"]["engines"]
    (state / "perdure.toml").write_text(SETTINGS.replace("keeper", "keper"))
    ran = run("config", "check", "--state", state)
    assert ran.code == 1
    assert "plugins.slots.memory: unknown memory 'keper'; did you mean keeper?" in ran.out


@pytest.mark.parametrize(("name", "code"), [("memory_search", 0), ("memory_serch", 1)])
def test_a_tool_of_the_memory_may_stand_in_the_lists(name: str, code: int, state: Path) -> None:
    (state / "perdure.toml").write_text(f'{SETTINGS}[tools]\nallow = ["read", "{name}"]\n')
    ran = run("config", "check", "--state", state)
    assert ran.code == code
    assert ("did you mean memory_search?" in ran.out) is bool(code)


def test_by_default_a_key_shows_the_tools_and_words_of_the_memory_as_a_host_sends_them(
    tmp_path: Path,
) -> None:
    play = Play()

    async def main(clock: VirtualClock) -> None:
        async with Host(tmp_path, model=play.model(clock), clock=clock, environ={}) as host:
            await ask(host, "hello")

    virtual(main)
    sent = play.last()
    told = run("context", KEY, "--state", tmp_path, "--json").json["request"]
    assert [tool["name"] for tool in sent["tools"]][-2:] == ["memory_search", "memory_get"]
    assert told["tools"] == sent["tools"]
    assert all("memory_search finds what" in json.dumps(body["system"]) for body in (told, sent))
    assert not (tmp_path / "plugins").exists()


def test_a_program_with_its_own_tools_has_no_memory_unless_it_names_one(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        for n, (given, id) in enumerate((
            ({"tools": ()}, "none"),
            ({"tools": (), "settings": chosen("memory-core")}, "memory-core"),
            ({"tools": (), "memory": Keeper()}, "keeper"),
            ({"settings": chosen("none")}, "none"),
            ({}, "memory-core"),
        )):  # fmt: skip
            options: dict[str, Any] = {"environ": {}, **given}
            async with Host(tmp_path / str(n), model=Play().model(clock), clock=clock, **options) as host:
                assert host.status()["memory"]["id"] == id

    virtual(main)


def test_a_host_starts_and_answers_without_what_only_an_index_needs(tmp_path: Path) -> None:
    code = "import sys; from perdure.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    ran = python(code, "chat", "-m", "hi", "--state", tmp_path)
    assert not {"apsw", "numpy", "sqlite_vec"} & set(ran.stdout.decode().split())
    assert b"perdure.plugins.memories.core.memory" in ran.stdout


def test_the_next_request_has_its_tools_and_words_and_names_what_only_a_host_recalls(state: Path) -> None:
    before = fingerprint(state)
    told = run("context", KEY, "--state", state, "--json").json
    assert [tool["name"] for tool in told["request"]["tools"]][-2:] == ["recall", "memory_search"]
    assert "Look there first." in told["request"]["system"][0]["text"]
    (line,) = [line for line in told["ledger"] if line["rule"].startswith("memory:")]
    assert (line["decision"], line["zone"]) == ("left_out", "dynamic")
    assert "2,000 characters" in line["rule"]
    assert fingerprint(state) == before


def test_a_broken_memory_is_a_problem_of_the_request_and_of_the_status(state: Path) -> None:
    (state / "perdure.toml").write_text(SETTINGS.replace("keeper", "broken"))
    told = run("context", KEY, "--state", state, "--json").json
    assert told["request"] is not None
    (problem,) = [problem for problem in told["problems"] if problem["kind"] == "memory"]
    assert "no lancedb" in problem["detail"]
    assert "no lancedb" in run("status", "--deep", "--state", state).out
    memory = run("status", "--deep", "--state", state, "--json").json["memory"]
    assert memory["id"] == "broken"
    assert "there is no memory instead" in memory["trouble"]
