"""What tests of memories share: a memory with what it is lent, its tools as one call, crashes inside
SQLite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw

from helpers_tools import Context, facts, said
from perdure.contracts import MemoryContext
from perdure.contracts.memories import Recalled
from perdure.records import Assistant, Item, Items, Provenance, Text, ToolResult, User
from perdure.testing.lending import FakeRuntime

KEY = "agent:main:cli:dm:test"
NOW = 1_767_600_000_000  # 2026-01-05T08:00Z
DAY = 86_400_000


class ToolSession(Context):
    """A tool context of one session."""

    def __init__(self, workspace: Path, session: str = KEY, call_id: str = "call-1") -> None:
        super().__init__(workspace, virtual=True)
        self.session, self.call_id = session, call_id


class Kept:
    """A memory under test, made anew from its folder by `again` as after a restart."""

    def __init__(self, make: Callable[[FakeRuntime], Any], folder: Path, **settings: Any) -> None:
        self._make = make
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.runtime = FakeRuntime(folder / "store", settings)
        self.memory = make(self.runtime)

    def again(self) -> None:
        """The host restarts."""
        self.close()
        self.memory = self._make(self.runtime)

    def close(self) -> None:
        anyio.run(self.memory.dispose)

    def call(self, tool: str, session: str = KEY, call_id: str = "call-1", **arguments: Any) -> str:
        """What the model reads; a failed call begins with `ERROR`."""
        found = next(one for one in self.memory.tools() if one.spec.name == tool)
        output = anyio.run(found.run, arguments, ToolSession(self.workspace, session, call_id))
        return f"ERROR {said(output)}" if output.is_error else said(output)

    def details(self, tool: str, session: str = KEY, **arguments: Any) -> dict[str, Any]:
        """What programs read."""
        found = next(one for one in self.memory.tools() if one.spec.name == tool)
        return facts(anyio.run(found.run, arguments, ToolSession(self.workspace, session)))

    def context(self, session: str = KEY) -> MemoryContext:
        return MemoryContext(session.split(":")[1], session, self.workspace, self.runtime)

    def recall(self, query: str, chars: int = 4_000, session: str = KEY) -> tuple[Recalled, ...]:
        return anyio.run(self.memory.recall, self.context(session), query, chars)

    def capture(self, *items: Item, session: str = KEY) -> None:
        anyio.run(self.memory.capture, self.context(session), tuple(items))

    def forget(self, text: str, session: str = KEY) -> Any:
        return anyio.run(self.memory.forget, self.context(session), text)


def user(entry: str, text: str, *, at: int = NOW, foreign: bool = False) -> Item:
    provenance = Provenance("inter_session") if foreign else None
    return Item(entry, User((Text(text),), at, provenance))


def answer(entry: str, text: str, *, at: int = NOW) -> Item:
    return Item(entry, Assistant((Text(text),), timestamp=at))


def output(entry: str, text: str) -> Item:
    return Item(entry, ToolResult(f"call-{entry}", "web", (Text(text),)))


def turns(count: int, first: int = 0, words: str = "message") -> Items:
    """So many pairs of question and answer."""
    pairs = (
        (user(f"u{n}", f"{words} {n}"), answer(f"a{n}", f"reply {n}")) for n in range(first, first + count)
    )
    return tuple(item for pair in pairs for item in pair)


class Crash(BaseException):
    """The process is gone."""


@contextmanager
def crash_at(statement: int) -> Iterator[list[int]]:
    """Raise ahead of the n-th SQL statement of any connection that is opened now; counts what ran."""
    ran = [0]

    def hook(connection: apsw.Connection) -> None:
        def trace(cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
            if sql.lstrip().lower().startswith("rollback"):
                return True
            ran[0] += 1
            if ran[0] == statement:
                raise Crash
            return True

        connection.exec_trace = trace

    apsw.connection_hooks.append(hook)
    try:
        yield ran
    finally:
        apsw.connection_hooks.remove(hook)
