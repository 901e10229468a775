"""Recorded sessions of others, where a folder of them is named, taken in and compacted in a 32k window."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from helpers_lossless import Bench, entries_below, run
from perdure.edges.models.summaries import CONVERSATION, summarise
from perdure.edges.session.history import History
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.engine import Lossless
from perdure.plugins.engines.lossless.pieces import Node
from perdure.records import Items, Text
from perdure.testing.lending import FakeRuntime

FOLDER = Path(os.environ.get("PERDURE_SESSIONS") or "/nonexistent")
SESSIONS = sorted([*FOLDER.glob("oc-*.jsonl"), *FOLDER.glob("pi-*.jsonl")])
BUDGET = 24_000  # of a window of 32k

pytestmark = pytest.mark.skipif(not SESSIONS, reason="PERDURE_SESSIONS names no folder of recorded sessions")


def extract(prompt: str, system: str) -> str:
    found = CONVERSATION.search(prompt)
    text = (found[1] if found else prompt).strip()
    return summarise(text, "", max(600, len(text) // 8))


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.name)
def test_a_recorded_session_is_kept_whole_in_a_small_window(path: Path, tmp_path: Path) -> None:
    async def main() -> None:
        runtime = FakeRuntime(tmp_path, answer=extract)
        b = Bench(runtime, Lossless(runtime), budget=BUDGET)
        items = History(path).messages("", 1_000_000)
        over = 0
        for start in range(0, len(items), 10):
            await b.say(*items[start : start + 10])
            sent = await b.sent()
            if runtime.estimate(sent) > BUDGET:  # results that no call has shown are never touched
                over += 1
            if start % 100 == 0:
                await b.compact()
        view = await b.sound()
        store = await b.engine.sessions.store()
        with store.db.reading() as db:
            session = rows.session(db, b.id)
            assert session is not None
            nodes = {node.id: node for node in rows.nodes(db, session.no)}
        assert entries_below(view, nodes) == [item.entry for item in items]
        assert over <= len(items) // 50
        for item in items[:: max(1, len(items) // 40)]:
            assert not (await b.output("describe", id=item.entry)).is_error
        if any(isinstance(piece, Node) for piece in view):
            found = await b.use("grep", pattern=_word(items), scope="messages")
            assert re.match(r"\[", found)
        await b.engine.rebuild(b.context)
        assert await b.sound() == view

    run(main)


def _word(items: Items) -> str:
    """A long word of the first texts."""
    blocks = [block for item in items[:9] for block in getattr(item.message, "content", ())]
    text = " ".join(block.text for block in blocks if isinstance(block, Text))
    return max(re.findall(r"[A-Za-z]{4,12}", text), key=len)
