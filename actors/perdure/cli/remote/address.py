"""Where a running host is reached: by the state folder's `serve.json`, or as a person says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from perdure.edges import served
from perdure.edges.served import Served
from perdure.edges.state import state_folder
from perdure.errors import UsageError

Address: TypeAlias = Served
TOKEN = "PERDURE_TOKEN"
KNOCK = 10.0  # seconds within which a server on this machine says that it lives


def running(state: Path | None) -> Address | None:
    """The running server of a state folder; `None` where there is none, or nobody listens any more.

    Raises `UsageError` for one that takes the connection and says nothing.
    """
    told = served.read(state_folder(state))
    return told if told is not None and _answers(told) else None


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


def _answers(told: Served) -> bool:
    import httpx2

    try:
        httpx2.get(f"{told.url}/healthz", timeout=KNOCK, trust_env=False)
    except httpx2.TimeoutException:
        why = f"has not answered for {KNOCK:g} s"
        raise UsageError(
            f"{told.url}: the host (pid {told.pid}) {why}: is it stopped, or does something block it?"
        ) from None
    except httpx2.TransportError:
        return False
    return True
