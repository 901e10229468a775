"""Workspace knowledge in a session: ranked by the request, still while a cache may live, last to go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers_host import KEY, Play, ask, hosted, notices, virtual
from perdure.host import Host
from perdure.kernel.virtual import VirtualClock
from perdure.records import ModelInfo

INFO = ModelInfo("scripted", "test", window=8_000, cache_minimum=16)
TOPICS = ("birthday", "invoice", "garden", "server")


def notes(folder: Path) -> None:
    """A memory of four passages, of which knowledge has room for two."""
    (folder / "workspace").mkdir(exist_ok=True)
    passages = [f"# {topic}\n\nThe {topic} matters: " + "more words on it " * 60 for topic in TOPICS]
    (folder / "workspace" / "MEMORY.md").write_text("\n\n".join(passages))


def known(body: dict[str, Any]) -> set[str]:
    """What of the memory stands in a request."""
    system = "".join(block["text"] for block in body["system"])
    return {topic for topic in TOPICS if f"The {topic} matters" in system}


def system_texts(play: Play) -> list[str]:
    return ["".join(b["text"] for b in json.loads(body)["system"]) for body in play.bodies[KEY]]


def test_the_first_request_ranks_it_and_nothing_changes_it_while_a_cache_may_live(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        notes(tmp_path)
        play = Play()
        async with hosted(tmp_path, play, clock, info=INFO) as host:
            await ask(host, "was the invoice paid?")
            assert "invoice" in known(play.last())
            assert len(known(play.last())) < len(TOPICS)
            await ask(host, "and what of the garden and the server?")
        again = Play()
        async with hosted(tmp_path, again, clock, info=INFO) as host:
            await ask(host, "tell me of the garden")
        assert len({*system_texts(play), *system_texts(again)}) == 1

    virtual(main)


def test_a_compaction_ranks_it_anew_by_the_request_at_hand(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        notes(tmp_path)
        play = Play()
        async with hosted(tmp_path, play, clock, info=INFO) as host:
            await ask(host, "was the invoice paid? " + "some talk " * 400)
            await ask(host, "some talk " * 300)
            await ask(host, "how does the garden do?")
            assert "garden" not in known(play.last())
            assert "Compacted" in await host.command(KEY, "/compact")
            await ask(host, "thank you")
            assert "garden" in known(play.last())
        again = Play()
        async with hosted(tmp_path, again, clock, info=INFO) as host:
            await ask(host, "bye")
        assert system_texts(again)[-1] == system_texts(play)[-1]

    virtual(main)


def test_it_is_given_up_where_nothing_else_can_make_room_and_the_user_is_told(tmp_path: Path) -> None:
    async def main(clock: VirtualClock) -> None:
        notes(tmp_path)
        play = Play()
        async with hosted(tmp_path, play, clock, info=INFO) as host:
            told = notices(host)
            room = _room(host)
            reply = await ask(host, ("some more words on it " * room)[: 4 * room])
            assert reply.stop == "stop", reply
            assert known(play.last()) == set()
            assert any(note.kind == "knowledge" for note in told)

    virtual(main)


def _room(host: Host) -> int:
    """Tokens of a message that fits without the knowledge and not with it."""
    env = host.resolver.environment(KEY, INFO, "off")
    assert env.knowledge_tokens > 400
    return env.limits.overflow - env.fixed_tokens + env.knowledge_tokens // 2
