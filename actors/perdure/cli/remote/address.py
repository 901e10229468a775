"""Where a running host is reached: by the state folder's `serve.json`, or as a person says."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from perdure.edges import served
from perdure.edges.served import Served
from perdure.edges.state import state_folder
from perdure.errors import UsageError

Address: TypeAlias = Served
TOKEN = "PERDURE_TOKEN"
KNOCK = 2.0  # seconds within which a server on this machine takes a connection


def running(state: Path | None) -> Address | None:
    """The running server of a state folder; `None` where there is none, or nobody answers any more."""
    told = served.read(state_folder(state))
    return told if told is not None and _answers(told.url) else None


def elsewhere(url: str) -> Address:
    """A server anywhere; its token is in the environment. Raises `UsageError`."""
    where = urlsplit(url)
    if where.scheme not in ("http", "https") or not where.hostname or where.username is not None:
        raise UsageError(f"--connect {url}: give a URL such as https://perdure.example.org:8787")
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise UsageError(f"--connect: {TOKEN} is not set: put the token there, never on the command line")
    if not token.isascii() or not token.isprintable():
        raise UsageError(f"{TOKEN}: not printable ASCII: no token is like that")
    return Served(url.rstrip("/"), token, 0)


def _answers(url: str) -> bool:
    where = urlsplit(url)
    try:
        with socket.create_connection((where.hostname or "", where.port or 80), KNOCK):
            return True
    except TimeoutError:
        return True  # somebody is there, and slow
    except OSError:
        return False
