"""Which parts of a workspace get into which session's prompt, told by its key alone."""

from __future__ import annotations

import pytest

from helpers_messages import SONNET
from perdure.actors.prompting import prompt_parts
from perdure.context.numbers import limits
from perdure.context.prompt.bootstrap import NAMES, BootstrapFile
from perdure.context.prompt.knowledge import Note
from perdure.context.prompt.system import build
from perdure.edges.settings import HeartbeatSettings, Settings
from perdure.edges.workspace import Snapshot
from perdure.records import ToolSpec

DELEGATED = {"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md"}
MAIN = "agent:main:cli:dm:local"
TOOLS = (ToolSpec("write", "Writes.", b"{}"), ToolSpec("recall", "Recalls.", b"{}"))
NOTES = (
    Note("MEMORY.md", "Ann's birthday is in May."),
    Note("memory/2026-01-05.md", "The invoice 4711 was paid."),
)


def prompt(key: str, *, files: set[str] | None = None, query: str = "", window: int = 200_000) -> str:
    """The prompt of a session in a workspace that holds everything but what is left out."""
    there = set(NAMES) - {"BOOTSTRAP.md"} if files is None else files
    found = tuple(BootstrapFile(name, name, f"<{name}>" if name in there else None) for name in NAMES)
    settings = Settings(heartbeat=HeartbeatSettings("Anything due?"))
    snapshot = Snapshot("/w", found, notes=NOTES)
    return build(prompt_parts(key, snapshot, TOOLS, SONNET, limits(window), settings, "off", query=query))


def injected(text: str) -> set[str]:
    return {name for name in NAMES if f"<{name}>" in text}


@pytest.mark.parametrize(
    ("key", "files", "knowledge", "memory", "group"),
    [
        (MAIN, {*DELEGATED, "HEARTBEAT.md"}, True, True, False),
        ("agent:main:main", {*DELEGATED, "HEARTBEAT.md"}, True, True, False),
        ("agent:main:telegram:group:5", {*DELEGATED, "HEARTBEAT.md"}, False, True, True),
        ("agent:main:discord:channel:7", {*DELEGATED, "HEARTBEAT.md"}, False, True, True),
        ("agent:main:subagent:x", DELEGATED, False, False, False),
        ("subagent:x", DELEGATED, False, False, False),
        ("agent:main:cron:job:run:1", DELEGATED, False, False, False),
        ("agent:main:heartbeat", {"HEARTBEAT.md"}, False, True, False),
    ],
)
def test_each_kind_of_session_gets_its_own_parts(
    key: str, files: set[str], knowledge: bool, memory: bool, group: bool
) -> None:
    text = prompt(key)
    assert injected(text) == files
    assert ("birthday" in text) is knowledge
    assert ("## Memory" in text) is memory
    assert ("## Group Chat Context" in text) is group
    assert ("## Heartbeats" in text) is memory  # delegated and scheduled runs answer to no heartbeat


def test_a_first_run_gets_what_makes_it_known_and_nothing_that_could_be_due() -> None:
    text = prompt(MAIN, files=set(NAMES))
    assert injected(text) == {*DELEGATED, "BOOTSTRAP.md"}
    assert "birthday" not in text


def test_a_group_in_a_new_workspace_is_still_a_group() -> None:
    text = prompt("agent:main:telegram:group:5", files=set(NAMES))
    assert "## Group Chat Context" in text
    assert "birthday" not in text


def test_knowledge_is_ranked_by_what_is_asked_and_cut_to_its_share_of_the_window() -> None:
    small = 180  # tokens, of which knowledge may have 8 %: 56 characters, one note with its heading
    about_ann = prompt(MAIN, query="when is Ann's birthday?", window=small)
    about_money = prompt(MAIN, query="was the invoice paid?", window=small)
    assert ("birthday" in about_ann, "4711" in about_ann) == (True, False)
    assert ("birthday" in about_money, "4711" in about_money) == (False, True)
