"""`grep` and `find`: search in the workspace, bounded in time and output, links never followed.

`grep` runs in a child process: some regular expressions never end, and only a process can be stopped.
Under virtual time it runs in place, where scripts are trusted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.tools import scan
from perdure.edges.tools.confine import Refused, folder, locate, named, refusing
from perdure.edges.tools.outcome import failure, result
from perdure.edges.tools.process import Capture, run_process
from perdure.edges.tools.spec import flag, make_spec, number, text
from perdure.edges.tools.virtual import is_virtual

GREP_SECONDS = 20.0
OUTPUT_BYTES = 4 << 20
DEFAULT_MATCHES, MAX_MATCHES = 100, 2_000
DEFAULT_FILES, MAX_FILES = 200, 5_000

GREP = make_spec(
    "grep",
    "Search the lines of text files for a regular expression (Python syntax). Shows path:line:text, sorted "
    "by path. Skips binary files, .git, node_modules and the like.",
    "Search file contents by regular expression",
    {
        "pattern": text("Regular expression", minLength=1, maxLength=2_000),
        "path": text("Folder or file to search; default: the whole workspace"),
        "glob": text('Only files that fit, such as "*.py" or "src/**/*.ts"', maxLength=500),
        "ignore_case": flag("Take upper and lower case as the same"),
        "literal": flag("Take the pattern as plain text"),
        "context": number("Lines shown before and after each match", 0, 20),
        "limit": number("Most matches shown (default 100)", 1, MAX_MATCHES),
    },
    required=("pattern",),
)
FIND = make_spec(
    "find",
    'List files and folders by glob: "*.md" by name anywhere, "src/**/*.py" by path. Folders end in /',
    "List files by glob pattern",
    {
        "pattern": text('Glob; default "**", everything', maxLength=500),
        "path": text("Folder to start in; default: the workspace"),
        "limit": number("Most entries shown (default 200)", 1, MAX_FILES),
    },
)


class FindTool:
    """See the module."""

    spec = FIND

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        made = await context.run_blocking(lambda: _find(arguments, context.workspace))
        assert isinstance(made, ToolOutput)
        return made


class GrepTool:
    """See the module. `seconds` is how long one search may take."""

    spec = GREP

    def __init__(self, seconds: float = GREP_SECONDS) -> None:
        self._seconds = seconds

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        source = re.escape(arguments["pattern"]) if arguments.get("literal") else arguments["pattern"]
        try:
            re.compile(source)
        except (re.error, OverflowError, RecursionError) as error:
            return failure(f"The pattern is not a regular expression: {error}. Use literal for plain text.")
        try:
            base, job = _job(arguments, source, context.workspace)
        except Refused as error:
            return failure(str(error), path=arguments.get("path", "."))
        if is_virtual(context) or not sys.executable:
            rows, timed_out = (
                await context.run_blocking(lambda: _in_place(context.workspace, base, job)),
                False,
            )
        else:
            rows, timed_out = await self._in_child(context.workspace, base, job)
        return _matches(rows, base, timed_out, arguments)

    async def _in_child(
        self, root: Path, base: tuple[str, ...], job: dict[str, Any]
    ) -> tuple[list[list[Any]], bool]:
        capture = Capture(OUTPUT_BYTES, tail=0)
        try:
            with folder(root, base) as opened:
                ended = await run_process(
                    [sys.executable, "-I", "-S", scan.__file__],
                    cwd=named(opened, root, base),
                    env={"PATH": os.defpath, "PYTHONUTF8": "1"},
                    timeout=self._seconds,
                    capture=capture,
                    stdin=msgspec.json.encode(job) + b"\n",
                    errors=False,
                )
            return _rows(capture.whole()), ended.timed_out
        finally:
            capture.close()


def _job(arguments: Mapping[str, Any], source: str, root: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The folder to search (below the root) and what the searcher is told."""
    parts = locate(root, arguments.get("path") or ".")
    path = os.path.join(os.path.realpath(root), *parts)
    if not os.path.lexists(path):
        raise Refused(f"{arguments.get('path')}: no such file or folder")
    file = None if os.path.isdir(path) else parts[-1]
    job = {
        "pattern": source,
        "ignore_case": bool(arguments.get("ignore_case")),
        "glob": arguments.get("glob"),
        "context": arguments.get("context", 0),
        "limit": arguments.get("limit", DEFAULT_MATCHES),
        "file": file,
    }
    return (parts[:-1] if file else parts), job


def _in_place(root: Path, base: tuple[str, ...], job: dict[str, Any]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    with folder(root, base) as opened:
        scan.search(opened, job, rows.append)
    return rows


def _rows(data: bytes) -> list[list[Any]]:
    rows = []
    for line in data.split(b"\n"):
        try:
            rows.append(msgspec.json.decode(line, type=list))
        except msgspec.DecodeError:
            continue  # the last line of a killed child, or nothing
    return rows


def _matches(
    rows: list[list[Any]], base: tuple[str, ...], timed_out: bool, arguments: Mapping[str, Any]
) -> ToolOutput:
    prefix = "".join(f"{part}/" for part in base)
    totals: dict[str, Any] = {"files": 0, "full": False, "limited": False}
    lines, found = [], 0
    for row in rows:
        if len(row) == 4:
            path, at, line, is_match = row
            found += bool(is_match)
            mark = ":" if is_match else "-"
            lines.append(f"{prefix}{path}{mark}{at}{mark}{line}")
        elif row and isinstance(row[0], dict):
            totals = row[0]
        else:
            lines.append("--")
    notes = _notes(found, totals, timed_out, bool(rows), arguments)
    body = "\n".join([*lines, *(f"[{note}]" for note in notes)])
    return result(body, matches=found, files=totals["files"], timed_out=timed_out, limited=totals["limited"])


def _notes(
    found: int, totals: dict[str, Any], timed_out: bool, any_rows: bool, arguments: Mapping[str, Any]
) -> list[str]:
    notes = []
    if timed_out:
        notes.append(
            "The search took too long and was stopped; narrow path or glob, or simplify the pattern."
        )
    elif not any_rows:
        notes.append("The search ended without a result; the searcher may have been stopped.")
    elif found == 0:
        notes.append(f"No matches in {totals['files']:,} files.")
    if totals["limited"]:
        limit = arguments.get("limit", DEFAULT_MATCHES)
        notes.append(f"Stopped at {limit:,} matches; raise limit or narrow the search.")
    if totals["full"]:
        notes.append(f"Stopped after {scan.MAX_ENTRIES:,} entries; narrow the path.")
    return notes


def _find(arguments: Mapping[str, Any], root: Path) -> ToolOutput:
    limit = arguments.get("limit", DEFAULT_FILES)
    path = arguments.get("path") or "."
    pattern = arguments.get("pattern") or "**"
    fits = scan.glob_matcher(pattern)
    found: list[str] = []
    try:
        parts = locate(root, path)
        with refusing(path), folder(root, parts) as opened:
            walk = scan.Walk(opened)
            for name, is_folder, _ in walk.entries():
                if fits(name):
                    found.append(name + "/" * is_folder)
                if len(found) > limit:
                    break
    except Refused as error:
        return failure(str(error), path=path)
    prefix = "".join(f"{part}/" for part in parts)
    return _found([prefix + each for each in found], limit, walk.full, pattern)


def _found(found: list[str], limit: int, full: bool, pattern: str) -> ToolOutput:
    lines = found[:limit]
    if not found:
        lines = [f"[Nothing fits {pattern!r}.]"]
    if len(found) > limit:
        lines.append(f"[More than {limit:,} entries; narrow the pattern or raise limit.]")
    if full:
        lines.append(f"[Stopped after {scan.MAX_ENTRIES:,} entries; narrow the path.]")
    return result("\n".join(lines), entries=min(len(found), limit), limited=len(found) > limit or full)
