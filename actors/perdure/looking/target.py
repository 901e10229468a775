"""A command's target: a session file of any origin, or a key of a state folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perdure.edges import state as state_folder
from perdure.edges.session import keys
from perdure.edges.state import StateFolder
from perdure.errors import SessionNotFound, UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """Where it is; `key` is `None` for a bare file."""

    path: Path
    key: str | None


def find(target: str, state: Path | None) -> Target:
    """An existing file, else a key's file. Raises `SessionNotFound`, in one line, for neither."""
    if not target or "\0" in target:
        raise UsageError("give a session's key (agent:main:cli:dm:local) or a file")
    if os.path.lexists(target):
        return Target(Path(target), None)
    folder = state_folder.state_folder(state)
    path = folder.sessions / keys.relative_path(target)
    if os.path.lexists(path):
        if path.is_file() and not path.stat().st_size:
            raise SessionNotFound(f"{target}: not begun: its file {path} is empty, a message to it begins it")
        return Target(path, target)
    if target.endswith(keys.SUFFIX) or ("/" in target and not target.startswith("agent:")):
        raise SessionNotFound(f"{target}: no such file")
    raise SessionNotFound(f"{target}: no such session in {folder.root}: see `perdure sessions list`")


def existing(state: Path | None) -> StateFolder:
    """The state folder. Raises `UsageError` for one that was asked for and isn't there."""
    folder = state_folder.state_folder(state)
    if folder.path.is_dir():
        return folder
    if folder.path.exists():
        raise UsageError(f"{folder.root}: a file, not a state folder")
    if state is not None or os.environ.get("PERDURE_HOME"):
        raise UsageError(f"{folder.root}: no such state folder")
    return folder
