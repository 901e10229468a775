"""`perdure import`: a recorded session file becomes a scenario; what doesn't come through is counted."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from msgspec.structs import replace

from perdure.cli.output import emit, patience, say
from perdure.errors import StorageFailed, UsageError
from perdure.replay.importer import Imported, convert, write

ENDING = ".scenario.jsonl"


def run(file: Path, *, out: Path | None, window: int | None, force: bool, as_json: bool) -> int:
    """Write the scenario and print the account of it."""
    if window is not None and window < 1:
        raise UsageError(f"--window {window}: a window is a positive number of tokens, such as 32000")
    if not file.is_file():
        raise UsageError(f"{file}: {'not a regular file' if file.exists() else 'no such file'}")
    target = out or Path(_name(file))
    _refuse(target, file, force)
    patience(file)
    imported = convert(file)
    if window is not None:
        scenario = imported.scenario
        imported = replace(
            imported, scenario=replace(scenario, header=replace(scenario.header, window=window))
        )
    _save(target, write(imported), force)
    if as_json:
        emit(imported.report(str(target)))
    else:
        _print(imported, target)
    return 0


def _name(file: Path) -> str:
    stem = file.name[: -len(".jsonl")] if file.name.endswith(".jsonl") else file.name
    return f"{stem.removesuffix('.scenario') or 'session'}{ENDING}"


def _refuse(target: Path, file: Path, force: bool) -> None:
    """What would be lost is never overwritten in passing; the recording itself not at all."""
    if target.is_dir():
        raise UsageError(f"{target}: a folder: name the file with -o")
    if target.exists() and os.path.samefile(target, file):
        raise UsageError(f"{target}: that is the recording itself: name another file with -o")
    if os.path.lexists(target) and not force:
        raise UsageError(
            f"{target}: is there already: name another file with -o, or overwrite it with --force"
        )
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such folder: make it, or name another with -o")


def _save(target: Path, data: bytes, force: bool) -> None:
    """Whole or not at all: through a file beside it."""
    try:
        fd, beside = tempfile.mkstemp(prefix=f".{target.name[:100]}.", dir=target.parent)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.chmod(beside, 0o666 & ~_umask())
            if force:
                os.replace(beside, target)
            else:
                os.link(beside, target)  # refuses what came into being meanwhile
        finally:
            if os.path.lexists(beside):
                os.unlink(beside)
    except FileExistsError:
        raise UsageError(f"{target}: is there already: name another file with -o, or use --force") from None
    except OSError as error:
        raise StorageFailed(
            f"{target}: can't be written ({error.strerror}): make room, or name another place with -o"
        ) from None


def _umask() -> int:
    told = os.umask(0o077)
    os.umask(told)
    return told


def _print(imported: Imported, target: Path) -> None:
    say(
        f"{imported.source} ({imported.format}): {imported.kept:,} of {imported.entries:,} entries → {target}"
    )
    for row in imported.lost:
        say(f"not kept: {row.count:,} × {row.what}")
    say(f"run it with `perdure replay {target}`")
