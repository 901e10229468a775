"""The state folder: where a host keeps everything it owns, and the paths inside it.

`--state`, else `PERDURE_HOME`, else `~/.perdure`. Created with mode 0700: transcripts are private.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from perdure.errors import ConfigError
from perdure.records import Record

FOLDERS = ("sessions", "evidence", "archive", "journal", "workspaces")


class StateFolder(Record):
    """Paths of one state folder (one shard). Nothing is read or created by naming them."""

    root: str

    @property
    def path(self) -> Path:
        return Path(self.root)

    @property
    def sessions(self) -> Path:
        return self.path / "sessions"

    @property
    def evidence(self) -> Path:
        return self.path / "evidence"

    @property
    def archive(self) -> Path:
        return self.path / "archive"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def workspaces(self) -> Path:
        return self.path / "workspaces"

    @property
    def index(self) -> Path:
        return self.path / "index.sqlite"

    @property
    def log(self) -> Path:
        return self.path / "runtime.log"

    @property
    def config(self) -> Path:
        return self.path / "perdure.toml"

    def workspace(self, agent: str) -> Path:
        """The folder an agent works in when nothing else is configured (not created here)."""
        return self.workspaces / agent


def state_folder(told: str | Path | None = None, environ: Mapping[str, str] | None = None) -> StateFolder:
    """The folder in force, absolute; nothing is created."""
    environ = os.environ if environ is None else environ
    chosen = str(told or environ.get("PERDURE_HOME") or "~/.perdure")
    if "\0" in chosen:
        raise ConfigError("the state folder's name holds a NUL byte: give a plain path")
    try:
        return StateFolder(os.path.abspath(os.path.expanduser(chosen)))
    except RuntimeError:
        raise ConfigError(f"{chosen}: the home directory is unknown: give --state") from None


def create(folder: StateFolder) -> StateFolder:
    """Make the folder and its parts where missing, private to the user; what exists is left as it is."""
    try:
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in FOLDERS:
            (folder.path / name).mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder.root}: the state folder can't be made ({error.strerror}): "
            "choose another with --state or PERDURE_HOME"
        ) from None
    return folder


def make_workspace(folder: StateFolder, agent: str) -> Path:
    """The agent's default workspace, created private. `agent` is a plain name (no separators)."""
    if not agent or agent in (".", "..") or "/" in agent or "\\" in agent or "\0" in agent:
        raise ConfigError(f"{agent!r}: not an agent's name: use letters, digits, - and _")
    path = folder.workspace(agent)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: the workspace can't be made ({error.strerror})") from None
    return path
