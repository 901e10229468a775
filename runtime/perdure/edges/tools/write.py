"""`write` and `edit`: whole files and exact replacements, atomically, inside the workspace.

Edits of one file wait for each other (calls of one batch run in parallel), so none is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.tools.confine import Refused, read_whole, replace, shown
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.spec import make_spec, text

MAX_BYTES = 32 * 1024 * 1024  # what one call may write, and the largest file an edit loads
_LOCKS = tuple(threading.Lock() for _ in range(64))  # striped by file: bounded, whatever is edited

WRITE = make_spec(
    "write",
    "Create a file or replace it wholly. Missing folders are made. Use edit to change part of a file.",
    "Create or overwrite a file",
    {"path": text("File to write, relative to the workspace"), "content": text("The whole new content")},
    required=("path", "content"),
)
EDIT = make_spec(
    "edit",
    "Replace one exact piece of text in a file. old_text must occur exactly once: include enough of the "
    "lines around it. Whitespace counts.",
    "Replace an exact, unique piece of text in a file",
    {
        "path": text("File to change, relative to the workspace"),
        "old_text": text("Exact text to find, occurring once", minLength=1),
        "new_text": text("Text to put in its place"),
    },
    required=("path", "old_text", "new_text"),
)


class WriteTool:
    """See the module."""

    spec = WRITE

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        made = await context.run_blocking(lambda: _guarded(_write, arguments, context))
        assert isinstance(made, ToolOutput)
        return made


class EditTool:
    """See the module."""

    spec = EDIT

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        made = await context.run_blocking(lambda: _guarded(_edit, arguments, context))
        assert isinstance(made, ToolOutput)
        return made


def _guarded(work: Any, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    path = arguments["path"]
    try:
        name = shown(context.workspace, path)
        with _LOCKS[hash((str(context.workspace), name)) % len(_LOCKS)]:
            made = work(name, arguments, context)
    except (Refused, OSError) as error:
        return failure(str(error), path=path)
    except UnicodeEncodeError:
        return failure(
            f"{path}: the text holds half of a surrogate pair, which no file can store; send it again"
        )
    assert isinstance(made, ToolOutput)
    return made


def _write(name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    data = arguments["content"].encode("utf-8")
    if len(data) > MAX_BYTES:
        return failure(f"{name}: {len(data):,} bytes, over the limit of {MAX_BYTES:,}", path=name)
    existed = replace(context.workspace, arguments["path"], data)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    verb = "Replaced" if existed else "Created"
    return result(
        f"{verb} {name} ({lines:,} lines, {len(data):,} bytes).",
        path=name,
        bytes=len(data),
        created=not existed,
    )


def _edit(name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    before = read_whole(context.workspace, arguments["path"], MAX_BYTES)
    old, new = arguments["old_text"].encode("utf-8"), arguments["new_text"].encode("utf-8")
    if old not in before and b"\r\n" in before and b"\r" not in old:
        old, new = old.replace(b"\n", b"\r\n"), new.replace(b"\n", b"\r\n")
    problem = _problem(before, old, new, name)
    if problem:
        return failure(problem, path=name, matches=before.count(old))
    at = before.index(old)
    after = before[:at] + new + before[at + len(old) :]
    if len(after) > MAX_BYTES:
        return failure(f"{name}: would grow over the limit of {MAX_BYTES:,} bytes", path=name)
    replace(context.workspace, arguments["path"], after)
    line = before.count(b"\n", 0, at) + 1
    change = f"-{_lines(old)} +{_lines(new)} lines"
    return result(f"Edited {name} at line {line} ({change}).", path=name, line=line, bytes=len(after))


def _lines(data: bytes) -> int:
    return data.count(b"\n") + 1 if data else 0


def _problem(before: bytes, old: bytes, new: bytes, name: str) -> str:
    if old == new:
        return f"{name}: old_text and new_text are the same; nothing was changed."
    found = before.count(old)
    if found == 1 and before.find(old, before.index(old) + 1) < 0:
        return ""
    if found == 0:
        return f"{name}: old_text was not found; nothing was changed.{_hint(before, old)}"
    return (
        f"{name}: old_text occurs {max(found, 2)} times (lines {_places(before, old)}); nothing was changed. "
        "Include more of the surrounding lines so that it is unique."
    )


def _places(before: bytes, old: bytes) -> str:
    places: list[str] = []
    at = before.find(old)
    while at >= 0 and len(places) < 5:
        places.append(str(before.count(b"\n", 0, at) + 1))
        at = before.find(old, at + 1)
    return ", ".join(places) + (", …" if at >= 0 else "")


def _hint(before: bytes, old: bytes) -> str:
    """Where the first telling line of `old` stands when only whitespace differs."""
    wanted = next((b"".join(line.split()) for line in old.split(b"\n") if line.strip()), b"")
    if len(wanted) >= 4:
        for n, line in enumerate(before.split(b"\n"), 1):
            if b"".join(line.split()) == wanted:
                return f" Line {n} differs only in whitespace: read the file again and copy it exactly."
    return " Read the file again: it may have changed."
