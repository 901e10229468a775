"""A disk that fails at any call: a note is whole, nothing is lost, and the same call completes it."""

import errno
import os
from contextlib import suppress

import pytest

from helpers_memory_core import Notes
from perdure.edges import disk
from perdure.errors import StorageFailed

pytestmark = pytest.mark.anyio
NOTE = "The codeword is zebracorn. The sky was grey.\n"


@pytest.fixture
def anyio_backend():
    return "asyncio"


class FailsAt:
    """Refuses the call of this number."""

    def __init__(self, number):
        self.left = number

    def __call__(self, op, path):
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


async def test_a_full_disk_while_forgetting_leaves_the_note_as_it_was_or_as_it_should_be(tmp_path):
    for number in range(1, 60):
        notes = Notes(tmp_path / str(number))
        path = notes.write("memory/2026-01-03.md", NOTE)
        await notes.search("codeword")
        fault = FailsAt(number)
        with disk.faults(fault), suppress(OSError, StorageFailed):
            await notes.memory.forget(notes.context(), "zebracorn")
        assert path.read_text() in (NOTE, "The sky was grey.\n")
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        await notes.memory.forget(notes.context(), "zebracorn")
        left = b"".join(each.read_bytes() for each in (tmp_path / str(number)).rglob("*") if each.is_file())
        assert b"zebracorn" not in left
        assert await notes.snippets("sky") == ["The sky was grey."]
        await notes.memory.dispose()
        if fault.left > 0:  # no call was refused any more
            return
    raise AssertionError("never came to an end")


async def test_a_full_disk_while_indexing_is_told_and_made_up_for(tmp_path):
    notes = Notes(tmp_path)
    notes.write("MEMORY.md", "- The port is 5432.\n")
    await notes.search("port")
    notes.write("MEMORY.md", "- The port is 6000.\n")
    with disk.faults(FailsAt(1)):
        told = await notes.call("memory_search", query="port")
    assert told["unavailable"]
    assert "No space left" in told["error"]
    assert await notes.snippets("port") == ["- The port is 6000."]
    await notes.memory.dispose()


async def test_what_is_appended_while_a_note_is_rewritten_is_kept(tmp_path):
    notes = Notes(tmp_path)
    path = notes.write("memory/2026-01-03.md", NOTE)

    def append(op, where):
        if op == "rename" and where == os.fspath(path):
            with path.open("a") as file:
                file.write("Late words.\n")

    with disk.faults(append):
        await notes.memory.forget(notes.context(), "zebracorn")
    assert path.read_text() == "The sky was grey.\nLate words.\n"
    await notes.memory.dispose()
