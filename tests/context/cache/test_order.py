"""One order of everything that stands before the conversation, however it was found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helpers_messages import SONNET
from perdure.context.environment import Environment, resolve
from perdure.context.numbers import limits
from perdure.context.prompt.bootstrap import NAMES
from perdure.context.prompt.boundary import capability_ids
from perdure.context.prompt.skills import Skill
from perdure.context.prompt.system import TOOL_ORDER, ContextFile, PromptParts, Runtime, build
from perdure.records import ToolSpec

NAMED = st.sampled_from([*TOOL_ORDER, "mcp__a__z", "mcp__b__a", "Zebra", "apple", "émile", "read_file"])
TOOLS = st.lists(NAMED, unique=True, max_size=12)
PATHS = st.lists(st.sampled_from([*NAMES, "docs/NOTES.md", "a.md", "B.md"]), unique=True, max_size=9)
SKILLS = st.lists(st.sampled_from(["oaks", "elms", "Figs", "äpfel", "z"]), unique=True, max_size=5)
CAPABILITIES = st.lists(st.sampled_from(["React", "react ", "inline", "files", "Ünicode", ""]), max_size=8)


def environment(
    tools: list[str], paths: list[str], skills: list[str], capabilities: list[str]
) -> Environment:
    """As a session gets it from what was registered and found in this order."""
    specs = tuple(ToolSpec(name, f"Does {name}.", b'{"type":"object"}') for name in tools)
    parts = PromptParts(
        tools=specs,
        skills=tuple(Skill(name, f"for {name}", f"skills/{name}/SKILL.md") for name in skills),
        files=tuple(ContextFile(path, f"What {path} says.") for path in paths),
        runtime=Runtime(channel="cli", capabilities=tuple(capabilities)),
    )
    return resolve("s", SONNET, build(parts), specs, limits(200_000))


@given(TOOLS, PATHS, SKILLS, CAPABILITIES, st.randoms(use_true_random=False))
def test_tools_files_skills_and_capabilities_stand_in_one_order(
    tools: list[str], paths: list[str], skills: list[str], capabilities: list[str], random: object
) -> None:
    one = environment(tools, paths, skills, capabilities)
    for found in (tools, paths, skills, capabilities):
        random.shuffle(found)  # type: ignore[attr-defined]
    other = environment(tools, paths, skills, capabilities)
    assert other == one
    assert sorted(tool.name for tool in one.tools) == sorted(tools)


@given(TOOLS)
def test_the_tools_of_a_request_stand_in_the_order_of_the_prompt(tools: list[str]) -> None:
    env = environment(tools, [], [], [])
    places = [env.system.index(f"- {tool.name}:") for tool in env.tools]
    assert places == sorted(places)


@given(CAPABILITIES)
def test_capabilities_are_a_set(capabilities: list[str]) -> None:
    assert capability_ids(capabilities) == capability_ids(reversed(capabilities * 2))
