"""Forty ways to break a prompt cache, each done to a running session: the log names each one rightly."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from helpers_cache import INFO, KEY, LONG, OTHER, Lab, Meddler, Meddling, first_result, first_said, in_lab
from helpers_host import Fn, calls, tells
from helpers_sessions import line
from perdure.context.cache.blame import DECLARED
from perdure.contracts import ToolOutput
from perdure.edges.models.reply import fail, say
from perdure.edges.settings import (
    ChannelSettings,
    CompactionSettings,
    GuardSettings,
    ModelSettings,
    PromptSettings,
    Settings,
)
from perdure.records import Image, Item, Text, ToolSpec, User

Injection: TypeAlias = Callable[[Lab], Awaitable[None]]
HOUR = 3600.0
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def warm(lab: Lab, **options: Any) -> None:
    """Four turns, one of them with tools: everything is cached, and nothing has broken."""
    await lab.start(**options)
    await lab.say()
    lab.play.then(calls("look"), say("seen"))
    for _ in range(3):
        await lab.say()
    assert lab.breaks == []


# --- the prompt -----------------------------------------------------------------------------------


def adds(before: str, after: str) -> Injection:
    """What an engine adds to the prompt changes."""

    async def inject(lab: Lab) -> None:
        engine = Meddler()
        engine.addition = before
        await warm(lab, engine=engine)
        engine.addition = after
        await lab.say()

    return inject


def edits(name: str, *, options: dict[str, Any] | None = None) -> Injection:
    """A file of the workspace changes, and the host is started again within the cache's life."""

    async def inject(lab: Lab) -> None:
        file = lab.workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("---\nname: trees\ndescription: before\n---\nBefore.\n")
        await warm(lab)
        file.write_text("---\nname: trees\ndescription: afterwards\n---\nAfterwards.\n")
        await lab.start(**(options or {}))
        await lab.say()

    return inject


def restarts(**options: Any) -> Injection:
    """The host is started again within the cache's life, configured in another way."""

    async def inject(lab: Lab) -> None:
        await warm(lab)
        await lab.start(**options)
        await lab.say()

    return inject


def other_tools() -> list[Any]:
    other = tells("look", LONG)
    other.spec = ToolSpec("look", "Another description.", b'{"type":"object"}', "look")
    return [other, tells("peek", LONG)]


def other_schema() -> list[Any]:
    other = tells("look", LONG)
    other.spec = ToolSpec("look", other.spec.description, b'{"type":"object","required":[]}', "look")
    return [other, tells("peek", LONG)]


# --- model and settings ---------------------------------------------------------------------------


def commanded(command: str) -> Injection:
    async def inject(lab: Lab) -> None:
        await warm(lab, info=replace(INFO, thinking="adaptive"))
        await lab.host.command(KEY, command)
        await lab.say()

    return inject


async def another_program_chooses_the_model(lab: Lab) -> None:
    await warm(lab)
    leaf = json.loads(lab.path.read_bytes().splitlines()[-1])["id"]
    entry = {
        "type": "model_change",
        "id": "f0f0f0f0",
        "parentId": leaf,
        "timestamp": "2026-01-05T08:10:00.000Z",
    }
    with lab.path.open("ab") as file:
        file.write(line(entry | {"provider": OTHER.provider, "modelId": OTHER.id}) + b"\n")
    await lab.say()


# --- time and the provider ------------------------------------------------------------------------


def rests(seconds: float, *, restart: bool = False, cache: str = "short") -> Injection:
    async def inject(lab: Lab) -> None:
        await warm(lab, settings=lab.settings(models=ModelSettings(cache=cache)))  # type: ignore[arg-type]
        await lab.clock.sleep(seconds)
        if restart:
            await lab.start()
        await lab.say()

    return inject


def forgets(*, restart: bool = False, unknown: bool = False) -> Injection:
    """The provider drops what it had, for reasons of its own."""

    async def inject(lab: Lab) -> None:
        await warm(lab)
        lab.books._cache.clear()
        if restart or unknown:
            await lab.stop()
            if unknown:
                rows = [json.loads(row) for row in lab.path.read_bytes().splitlines()]
                for row in rows:
                    row.get("perdure", {}).pop("sent", None)
                lab.path.write_bytes(b"".join(line(row) + b"\n" for row in rows))
            await lab.start()
        await lab.say()

    return inject


# --- engines and hooks ----------------------------------------------------------------------------


def engine(change: Callable[[Any], Any]) -> Injection:
    async def inject(lab: Lab) -> None:
        made = Meddler()
        await warm(lab, engine=made)
        made.change = change
        await lab.say()

    return inject


def hook(change: Callable[[Any], Any], first: Callable[[Any], Any] = lambda items: items) -> Injection:
    async def inject(lab: Lab) -> None:
        made = Meddling()
        made.change = first
        await warm(lab, hooks=(made,))
        made.change = change
        await lab.say()

    return inject


async def an_engine_breaks_down(lab: Lab) -> None:
    made = Meddler()
    made.change = first_said(LONG + "as the engine tells it")
    await warm(lab, engine=made)

    def broken(items: Any) -> Any:
        raise RuntimeError("the store is gone")

    made.change = broken
    await lab.say()


def recalled(items: Any) -> Any:
    return (Item("", User((Text("Relevant: row seven."),))), *items)


# --- the view -------------------------------------------------------------------------------------


async def compacts_on_command(lab: Lab) -> None:
    await warm(lab)
    for _ in range(6):
        await lab.say()
    assert (await lab.host.command(KEY, "/compact")).startswith("Compacted")
    await lab.say()


async def compacts_with_an_edited_prompt(lab: Lab) -> None:
    (lab.folder / "workspace").mkdir(exist_ok=True)
    (lab.workspace / "SOUL.md").write_text("Be brief.")
    await warm(lab)
    (lab.workspace / "SOUL.md").write_text("Be long-winded.")
    for _ in range(6):
        await lab.say()
    assert lab.breaks == []
    await lab.host.command(KEY, "/compact")
    await lab.say()


async def compacts_on_overflow(lab: Lab) -> None:
    await warm(lab)
    for _ in range(6):
        await lab.say()
    lab.play.then(fail("overflow"))
    await lab.say()


async def compacts_at_the_threshold(lab: Lab) -> None:
    settings = lab.settings(compaction=CompactionSettings(threshold_tokens=12_000, keep_tokens=3_000))
    await warm(lab, settings=settings)
    for _ in range(12):
        await lab.say()
        if lab.breaks:
            return


async def another_program_compacts(lab: Lab) -> None:
    await warm(lab)
    await lab.say()
    rows = [json.loads(row) for row in lab.path.read_bytes().splitlines()]
    entry = {
        "type": "compaction",
        "id": "f0f0f0f1",
        "parentId": rows[-1]["id"],
        "timestamp": rows[-1]["timestamp"],
    }
    entry |= {"summary": "They spoke of a tree.", "firstKeptEntryId": rows[-2]["id"], "tokensBefore": 9_000}
    with lab.path.open("ab") as file:
        file.write(line(entry) + b"\n")
    await lab.say()


async def a_channel_limits_its_history(lab: Lab) -> None:
    limited = (ChannelSettings("cli", dm_history_limit=4),)
    await lab.start(settings=lab.settings(channels=limited))
    for _ in range(12):
        await lab.say()
        if lab.breaks:
            return


async def the_guard_makes_room(lab: Lab) -> None:
    """Results that were shown are blanked when the window fills, the newest first."""
    info = replace(INFO, window=24_000)
    never = lab.settings(compaction=CompactionSettings(trigger="manual"), guard=GuardSettings(total=0.5))
    lab.options["info"] = info
    await lab.start(settings=never, tools=[tells("look", LONG * 2)])
    for _ in range(9):
        lab.play.then(calls("look"), say("seen"))
        await lab.say("look again")
        if lab.breaks:
            return


async def a_file_is_edited_while_the_host_is_down(lab: Lab) -> None:
    await warm(lab)
    await lab.stop()
    rows = [json.loads(row) for row in lab.path.read_bytes().splitlines()]
    first = next(row for row in rows if row["type"] == "message")
    first["message"]["content"][0]["text"] = "Something else."
    lab.path.write_bytes(b"".join(line(row) + b"\n" for row in rows))
    await lab.start()
    await lab.say()


async def an_entry_is_rewritten_under_a_running_host(lab: Lab) -> None:
    """As one with the same id and another text, by a program that then appends behind our leaf."""
    await warm(lab)
    items = lab.host.directory.awake[KEY].transcript.items
    items[0] = Item(items[0].entry, User((Text("Something else."),)))
    await lab.say()


async def the_view_goes_along_another_branch(lab: Lab) -> None:
    await warm(lab)
    del lab.host.directory.awake[KEY].transcript.items[2:6]
    await lab.say()


async def an_image_comes(lab: Lab) -> None:
    await warm(lab)
    await lab.say(attachments=[Image(PIXEL, "image/png")])


async def a_tool_shows_an_image(lab: Lab) -> None:
    async def shoot(arguments: Any, context: Any) -> ToolOutput:
        return ToolOutput((Image(PIXEL, "image/png"),))

    await warm(lab, tools=[tells("look", LONG), Fn("shoot", shoot)])
    lab.play.then(calls("shoot"), say("seen"))
    await lab.say()


async def the_model_is_switched_while_a_clock_ticks(lab: Lab) -> None:
    made = Meddler()
    made.addition = "It is 10:00."
    await warm(lab, engine=made)
    made.addition = "It is 10:01."
    await lab.host.command(KEY, f"/model {OTHER.ref}")
    await lab.say()


async def a_clock_ticks_while_the_call_fails(lab: Lab) -> None:
    """The request that parted was refused; the one that goes through pays."""
    made = Meddler()
    made.addition = "It is 10:00."
    await warm(lab, engine=made)
    made.addition = "It is 10:01."
    lab.play.then(fail("overloaded"))
    await lab.say()


def settings(**tables: Any) -> dict[str, Any]:
    return {"settings": Settings(**tables)}


LASTING = settings(models=ModelSettings(cache="long"))
CAUSES: dict[str, tuple[str, str, Injection]] = {
    "a clock in an engine's addition": ("clock", "system", adds("It is 10:00.", "It is 10:01.")),
    "a date in an engine's addition": ("clock", "system", adds("Today: 2026-01-05", "Today: 2026-01-06")),
    "a weekday in an engine's addition": ("clock", "system", adds("On Monday.", "On Tuesday.")),
    "epoch seconds in an engine's addition": ("clock", "system", adds("t=1767600000", "t=1767600061")),
    "a date in Chinese": ("clock", "system", adds("今天是1月5日", "今天是1月6日")),
    "usage figures in an engine's addition": ("engine", "system", adds("12% used", "13% used")),
    "an engine that finds other memories": ("engine", "system", adds("He likes tea.", "He likes cats.")),
    "an engine that begins to add": ("engine", "system", adds("", "He likes cats.")),
    "AGENTS.md edited before a restart": ("prompt", "system", edits("AGENTS.md")),
    "MEMORY.md edited before a restart": ("prompt", "system", edits("MEMORY.md")),
    "a skill edited before a restart": ("prompt", "system", edits("skills/trees/SKILL.md")),
    "the prompt configured anew": (
        "prompt", "system", restarts(**settings(prompt=PromptSettings(override="Be kind."))),
    ),
    "a tool more": ("tools", "tools", restarts(tools=[tells(n, LONG) for n in ("look", "peek", "hear")])),
    "a tool less": ("tools", "tools", restarts(tools=[tells("look", LONG)])),
    "a tool described in another way": ("tools", "tools", restarts(tools=other_tools())),
    "a tool with another schema": ("tools", "tools", restarts(tools=other_schema())),
    "/model": ("model", "model", commanded(f"/model {OTHER.ref}")),
    "another program that chooses the model": ("model", "model", another_program_chooses_the_model),
    "a model switched while a clock ticks": ("model", "model", the_model_is_switched_while_a_clock_ticks),
    "/think": ("thinking", "system", commanded("/think high")),
    "a cache of five minutes at rest for six": ("expired", "", rests(360)),
    "a cache of five minutes over a restart of an hour": ("expired", "", rests(HOUR, restart=True)),
    "a cache of an hour at rest for two": ("expired", "", rests(2 * HOUR, cache="long")),
    "a provider that forgets": ("provider", "", forgets()),
    "a provider that forgets during a restart": ("provider", "", forgets(restart=True)),
    "a restart after which nothing is known of what was sent": ("restart", "", forgets(unknown=True)),
    "an engine that rewrites the first message": ("engine", "messages", engine(first_said("Hello."))),
    "an engine that drops the oldest messages": ("engine", "messages", engine(lambda items: items[2:])),
    "an engine that puts recalled text in front": ("engine", "messages", engine(recalled)),
    "an engine that rewrites a result": ("engine", "messages", engine(first_result("(short)"))),
    "an engine that breaks down": ("engine", "messages", an_engine_breaks_down),
    "a hook that rewrites the first message": ("hook", "messages", hook(first_said("Hello."))),
    "a hook that drops the first turn": ("hook", "messages", hook(lambda items: items[2:])),
    "a hook that rewrites a result": ("hook", "messages", hook(first_result("(short)"))),
    "a hook that stamps the time on a message": (
        "clock", "messages", hook(first_said("[10:01] Hello."), first_said("[10:00] Hello.")),
    ),
    "/compact": ("compaction", "messages", compacts_on_command),
    "/compact with a file edited meanwhile": ("compaction", "system", compacts_with_an_edited_prompt),
    "an overflow that compacts": ("compaction", "messages", compacts_on_overflow),
    "a threshold that compacts": ("compaction", "messages", compacts_at_the_threshold),
    "another program that compacts": ("compaction", "messages", another_program_compacts),
    "a channel's limit that jumps": ("limit", "messages", a_channel_limits_its_history),
    "the guard": ("guard", "messages", the_guard_makes_room),
    "a file edited while the host is down": ("edited", "messages", a_file_is_edited_while_the_host_is_down),
    "an entry rewritten under a running host": (
        "edited", "messages", an_entry_is_rewritten_under_a_running_host,
    ),
    "another branch": ("branch", "messages", the_view_goes_along_another_branch),
    "the first image": ("images", "", an_image_comes),
    "the first image that a tool shows": ("images", "", a_tool_shows_an_image),
    "a clock that ticks while a call fails": ("clock", "system", a_clock_ticks_while_the_call_fails),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_a_broken_cache_is_attributed_to(name: str, tmp_path: Path) -> None:
    cause, part, inject = CAUSES[name]
    (tmp_path / "workspace").mkdir()

    async def main(lab: Lab) -> None:
        await inject(lab)
        told = lab.breaks[0]
        assert (told["cause"], told["part"]) == (cause, part), told
        assert told["declared"] is (cause in DECLARED)
        assert told["level"] == ("info" if told["declared"] else "warning")
        assert told["lost"] == told["previous"] - told["read"] >= 1_000
        assert told["cost_usd"] > 0
        assert {each["code"] for each in told["changes"]} >= CODES.get(part, set())
        assert len(lab.breaks) == 1
        await lab.say()
        assert len(lab.breaks) == 1, "what broke once is not told again"

    in_lab(tmp_path, main)


CODES = {"model": {"model"}, "system": {"systemPrompt"}, "tools": {"tools"}, "messages": {"messages"}}
