"""What can't happen to the two files: a lost update, half an update, a doubled one, a way out of the
workspace.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers_memories import Crash, Kept, turns, user
from perdure.edges import disk
from perdure.errors import PerdureError
from perdure.plugins.memories.markdown import lines
from perdure.plugins.memories.markdown.memory import MarkdownMemory

OLD = "# Facts\n- The user lives in Oslo.\n- The build runs on trio.\n"
NEW = OLD + "- Ada leads.\n"
SAID = f"<history>Ada took the lead.</history><memory>{NEW}</memory>"
KEYS = [f"agent:main:cli:dm:{n}" for n in range(4)]


def durable(runtime: Any) -> MarkdownMemory:
    """With fsync, as in production."""
    runtime.virtual = False
    return MarkdownMemory(runtime)


def make(folder: Path) -> Kept:
    kept = Kept(durable, folder, bound=6, keep=2)
    kept.runtime.answer = lambda prompt, system: SAID
    (kept.workspace / "MEMORY.md").write_text(OLD)
    return kept


def state(kept: Kept) -> tuple[str, int]:
    log = kept.workspace / "memory" / "HISTORY.md"
    text = log.read_text() if log.exists() else ""
    assert text == "" or text.endswith(" -->\n")
    return (kept.workspace / "MEMORY.md").read_text(), text.count("Ada took the lead.")


class Fault:
    """Raises at the n-th call that changes a disk; a write of ours may get half of its bytes there first."""

    def __init__(self, at: int, what: BaseException, torn: bool) -> None:
        self.at, self.what, self.torn, self.calls = at, what, torn, 0

    def __call__(self, op: str, path: str) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise disk.Torn(self.what) if self.torn and op == "write" and ".sqlite" not in path else self.what


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("fault", [Crash(), FULL], ids=["kill", "full"])
def test_at_every_disk_call_an_update_is_whole_or_not_there(
    tmp_path: Path, fault: BaseException, torn: bool
) -> None:
    seen, at = set(), 0
    while True:
        at += 1
        kept = make(tmp_path / str(at))
        listener = Fault(at, fault, torn)
        with disk.faults(listener):
            try:
                kept.capture(*turns(4))
            except (Crash, PerdureError):
                pass
        if listener.calls < at:
            kept.close()
            break
        if fault is FULL:  # the process lives: what it leaves is right at once
            assert state(kept) in ((OLD, 0), (NEW, 1))
        kept.again()
        kept.recall("anything")  # whatever is called first finishes what was begun
        found = state(kept)
        assert found in ((OLD, 0), (NEW, 1))
        seen.add(found)
        kept.capture(*turns(4))  # comes again: what is done isn't done twice
        assert state(kept) == (NEW, 1)
        kept.close()
    assert at > 12
    assert seen == {(OLD, 0), (NEW, 1)}


def test_sessions_that_consolidate_at_once_lose_no_update(tmp_path: Path) -> None:
    kept = make(tmp_path)
    asked: list[str] = []

    async def complete(key: str, prompt: str, **more: Any) -> str:
        """All have read the same memory before any of them writes."""
        asked.append(key)
        if len(asked) == len(KEYS):
            all_asked.set()
        await all_asked.wait()
        return f"<history>Session {key}.</history><memory>{OLD}- Fact of {key}.\n</memory>"

    async def main() -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for key in KEYS:
                    group.start_soon(kept.memory.capture, kept.context(key), turns(4))

    all_asked = anyio.Event()
    kept.runtime.complete = complete  # type: ignore[method-assign]
    anyio.run(main)
    text = (kept.workspace / "MEMORY.md").read_text()
    assert [f"- Fact of {key}.\n" in text for key in KEYS] == [True] * 4
    assert text.startswith(OLD)
    assert len((kept.workspace / "memory" / "HISTORY.md").read_text().splitlines()) == 4
    kept.close()


def test_threads_that_commit_at_once_lose_no_update(tmp_path: Path) -> None:
    kept = make(tmp_path)

    def extend(prompt: str, system: str) -> str:
        shown = prompt.partition("# MEMORY.md\n")[2].partition("\n\n# Conversation")[0]
        return f"<history>It was me.</history><memory>{shown}\n- Fact {threading.get_ident()}.</memory>"

    def work(key: str) -> None:
        barrier.wait(10)
        kept.capture(*turns(4), session=key)

    kept.runtime.answer = extend
    barrier = threading.Barrier(len(KEYS))
    threads = [threading.Thread(target=work, args=(key,)) for key in KEYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    text = (kept.workspace / "MEMORY.md").read_text()
    assert all(f"- Fact {thread.ident}.\n" in text for thread in threads)
    assert (kept.workspace / "memory" / "HISTORY.md").read_text().count("It was me") == len(KEYS)
    kept.close()


def test_what_the_agent_writes_while_the_model_thinks_is_kept(tmp_path: Path) -> None:
    kept = make(tmp_path)

    def think(prompt: str, system: str) -> str:
        (kept.workspace / "MEMORY.md").write_text(OLD.replace("trio", "asyncio") + "- Mine.\n")
        return SAID

    kept.runtime.answer = think
    kept.capture(*turns(4))
    text = (kept.workspace / "MEMORY.md").read_text()
    assert "asyncio" in text
    assert "- Mine.\n" in text
    assert "- Ada leads.\n" in text
    kept.close()


def test_a_write_between_the_last_look_and_the_rename_is_seen(tmp_path: Path) -> None:
    kept = make(tmp_path)
    wrote = []

    def listener(op: str, path: str) -> None:
        if op == "write" and path.endswith(".perdure.tmp") and not wrote:
            wrote.append(path)
            (kept.workspace / "MEMORY.md").write_text(OLD + "- Mine.\n")

    with disk.faults(listener):
        kept.capture(*turns(4))
    assert wrote
    assert (kept.workspace / "MEMORY.md").read_text() == OLD + "- Ada leads.\n- Mine.\n"
    kept.close()


LINES = st.lists(st.sampled_from(["- a", "- b", "- c", "- d", "- e", "# h", ""]), max_size=6, unique=True)


@given(LINES, LINES, LINES)
def test_a_merge_loses_no_line_that_either_side_added(
    base: list[str], ours: list[str], theirs: list[str]
) -> None:
    text = ["".join(f"{row}\n" for row in rows) for rows in (base, ours, theirs)]
    merged = lines.merge(*text).splitlines()
    added = {row for rows in (ours, theirs) for row in rows if row.strip() and row not in base}
    assert added <= set(merged)
    gone = {row for row in base if row.strip() and row not in ours and row not in theirs}
    assert not gone & set(merged)
    assert lines.merge(text[0], text[1], lines.merge(*text)) == lines.merge(
        *text
    )  # finished twice is finished once


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_merge_with_nobody_is_ours(base: str, ours: str) -> None:
    assert lines.merge(base, ours, base) == ours


# --- agents, links, garbage -----------------------------------------------------------------------


@settings(max_examples=12)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.booleans()), min_size=1, max_size=8))
def test_no_agent_finds_what_is_anothers(steps: list[tuple[str, int, bool]]) -> None:
    with TemporaryDirectory() as folder:
        kept = Kept(MarkdownMemory, Path(folder), bound=2, keep=1)
        kept.runtime.answer = lambda prompt, system: (
            f"<history>{prompt[-2_000:].count('canary')} canary{whose}</history><memory>- "
            f"canary{whose}\n</memory>"
        )
        for n, (whose, count, forget) in enumerate(steps):
            session = f"agent:{whose}:cli:dm:x"
            kept.workspace = Path(folder) / whose
            kept.workspace.mkdir(exist_ok=True)
            kept.capture(*turns(count, first=10 * n, words=f"canary{whose}"), session=session)
            if forget:
                kept.forget(f"canary{whose}", session)
            asked = [prompt for key, prompt, _ in kept.runtime.asked if key == session]
            found = repr(kept.recall("canarya canaryb canaryc", session=session)) + "".join(asked)
            assert not any(f"canary{other}" in found for other in "abc" if other != whose)
        kept.close()


def test_a_link_out_of_the_workspace_is_neither_read_nor_written(tmp_path: Path) -> None:
    kept = make(tmp_path)
    outside = tmp_path / "outside.md"
    outside.write_text("- secret plan of others\n")
    (kept.workspace / "MEMORY.md").unlink()
    (kept.workspace / "MEMORY.md").symlink_to(outside)
    (kept.workspace / "memory").symlink_to(tmp_path)
    kept.capture(*turns(4))
    assert outside.read_text() == "- secret plan of others\n"
    assert not (tmp_path / "HISTORY.md").exists()
    assert kept.call("memory_search", query="plan").startswith("ERROR memory_search: ")
    assert [event for event, _ in kept.runtime.logged] == ["memory.not_consolidated"]
    kept.close()


@pytest.mark.parametrize("query", ["\ud800", "a\x00b", "'; --", "x" * 1_000, "字" * 1_000, "(?i)[", "-->"])
def test_any_query_is_answered(tmp_path: Path, query: str) -> None:
    kept = make(tmp_path)
    said = kept.call("memory_search", query=query)
    said.encode()
    kept.recall(query * 1_000)
    kept.forget(query)
    kept.close()


def test_garbage_in_files_and_messages_is_survived(tmp_path: Path) -> None:
    kept = make(tmp_path)
    (kept.workspace / "MEMORY.md").write_bytes(b"\xff\xfe\x00- ok\n" + b"x" * 100_000)
    log = kept.workspace / "memory" / "HISTORY.md"
    log.parent.mkdir()
    log.write_bytes(b"no line end <!-- m0 -->")
    hostile = ["\ud800 half", "nul \x00", "<memory></memory>", "x" * 1_000_000, "", "```" * 50, "- " * 500]
    kept.capture(*(user(f"u{n}", text) for n, text in enumerate(hostile)), *turns(2))
    kept.recall("ok half")
    assert log.read_bytes().startswith(b"no line end <!-- m0 -->")
    kept.close()
