"""`<state>/serve.json`: where a state folder's running host is reached, for commands on the same machine.

Mode 0600: who can read it owns the folder anyway, and may do everything with the host.
"""

from __future__ import annotations

import os
import secrets

import msgspec

from perdure.edges.session.lock import is_alive
from perdure.edges.state import StateFolder
from perdure.errors import StorageFailed
from perdure.records import Record

NAME = "serve.json"
LARGEST = 64 * 1024


class Served(Record):
    """A running server: its address, the local operator's token, and whose process it is."""

    url: str
    token: str
    pid: int


def write(folder: StateFolder, told: Served) -> Served:
    """Write the file, whole or not at all. Raises `StorageFailed`."""
    path = folder.path / NAME
    temp = path.with_name(f"{NAME}.{secrets.token_hex(4)}.tmp")
    try:
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(told) + b"\n")
        os.replace(temp, path)
    except OSError as error:
        temp.unlink(missing_ok=True)
        raise StorageFailed(f"{path}: can't be written ({error.strerror}): make room") from None
    return told


def read(folder: StateFolder) -> Served | None:
    """The running server of the folder; `None` where there is none, or its process is gone."""
    try:
        with open(folder.path / NAME, "rb") as file:
            told = msgspec.json.decode(file.read(LARGEST), type=Served)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return told if is_alive(told.pid) else None


def remove(folder: StateFolder, told: Served) -> None:
    """Remove the file, if it is still ours."""
    try:
        with open(folder.path / NAME, "rb") as file:
            ours = msgspec.json.decode(file.read(LARGEST), type=Served) == told
        if ours:
            os.unlink(folder.path / NAME)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        pass  # gone, or another's: nothing to do
