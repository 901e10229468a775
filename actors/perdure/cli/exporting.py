"""`perdure sessions export`: a session as one file, exactly (JSON Lines) or for people (Markdown)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from perdure.cli.markdown import markdown
from perdure.cli.output import emit, fail, hidden_escaped, patience, refuse_taken, say, size, warn
from perdure.context.text.plural import counted
from perdure.edges.session.load import Loaded, load
from perdure.edges.session.whole import whole
from perdure.looking.target import Target, find

Format: TypeAlias = Literal["jsonl", "markdown"]


def run(
    target: str, *, out: Path | None, format: Format, force: bool, state: Path | None, as_json: bool
) -> int:
    """Exit 0, or 1 where segments are gone: the rest is exported, and what is missing is named."""
    if as_json and out is None:
        fail("--json tells what was written: name a file with -o")
    found = find(target, state)
    patience(found.path)
    loaded = load(found.path)
    lost = loaded.past.lost
    lines = whole(loaded) if format == "jsonl" else markdown(loaded, found.key or found.path.name)
    if out is None:
        _print(lines)
    else:
        _refuse(out, found, force=force)
        _write(out, lines, loaded, exact=format == "jsonl")
        count = sum(1 for node in loaded.past.graph.nodes if node.type != "session")
        _tell(found, out, format, count, lost, as_json=as_json)
    if lost:
        gone = ", ".join(lost)
        warn(f"perdure: {counted(len(lost), 'segment')} can't be read ({gone}): their entries are not in it")
    return 1 if lost else 0


def _print(lines: Iterable[bytes]) -> None:
    """To a terminal with what acts on it escaped (the same JSON); to anything else byte by byte."""
    sys.stdout.flush()
    shown = sys.stdout.isatty()
    for line in lines:
        sys.stdout.buffer.write(hidden_escaped(line) if shown else line)
    sys.stdout.buffer.flush()


def _refuse(out: Path, found: Target, *, force: bool) -> None:
    if out.exists() and os.path.samefile(out, found.path):
        fail(f"{out}: that is the session file itself: name another with -o")
    refuse_taken(out, force=force)


def _write(out: Path, lines: Iterable[bytes], loaded: Loaded, *, exact: bool) -> None:
    """The whole file or none; an exact one is read back and shows what the session shows."""
    fd, name = tempfile.mkstemp(dir=out.parent or None, prefix=f".{out.name[:100]}.", suffix=".tmp")
    try:
        with os.fdopen(fd, "wb") as file:
            _lines_to(file, lines)
        if exact:
            _check(loaded, Path(name))
        os.replace(name, out)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _lines_to(file: BinaryIO, lines: Iterable[bytes]) -> None:
    file.writelines(lines)
    file.flush()
    os.fsync(file.fileno())


def _check(loaded: Loaded, made: Path) -> None:
    then, now = _shown(loaded), _shown(load(made))
    if then != now:
        fail(f"{loaded.path}: damage stands in the way of an exact copy; `perdure doctor` says more", 1)


def _shown(loaded: Loaded) -> list[str]:
    return [item.entry for item in loaded.opened().items if item.entry]


def _tell(found: Target, out: Path, format: Format, entries: int, lost: list[str], *, as_json: bool) -> None:
    name, count = found.key or os.fspath(found.path), out.stat().st_size
    if as_json:
        head = {"key": found.key, "file": os.fspath(found.path), "out": os.fspath(out)}
        emit(head | {"format": format, "entries": entries, "bytes": count, "lost_segments": lost})
    else:
        say(f"{name}: {counted(entries, 'entry')}, {size(count)} → {out}")
