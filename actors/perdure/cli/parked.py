"""`perdure parked`: messages that broke their session, and sessions that can't be opened; retried or dropped.

Whoever knows them is a `Desk`: a running host's, or the state folder of a stopped one.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from perdure.cli import folder as looking
from perdure.cli.output import emit, one_line, say, table
from perdure.cli.remote.address import Address, running
from perdure.cli.remote.client import asked
from perdure.edges.parked import ParkedLetters
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError, UsageError
from perdure.looking.target import existing


class Desk(Protocol):
    """What `list`, `retry` and `drop` need. `retry` and `drop` say why nothing was done; empty: done."""

    def parked(self) -> dict[str, Any]: ...
    def retry(self, what: int | str) -> str: ...
    def drop(self, number: int) -> str: ...


class FolderDesk:
    """What a stopped host left: letters that it never acknowledged."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder
        self._letters = ParkedLetters(folder.path / "parked")

    def parked(self) -> dict[str, Any]:
        lines = [
            {
                "number": number,
                "session": parked.letter.key,
                "mail": "deliver",
                "error": parked.error,
                "at": parked.at,
                "whole": False,
            }
            for number, parked in self._letters.all()
        ]
        return {"parked": lines, "quarantined": []}

    def retry(self, what: int | str) -> str:
        return self._held() or "no host runs that could deliver it: start one, and say it again"

    def drop(self, number: int) -> str:
        return self._held() or ("" if self._letters.forget(number) else f"nothing is parked as {number}")

    def _held(self) -> str:
        holder = looking.holder(self._folder)
        if holder is None or not holder.held:
            return ""
        return f"a host has the state folder (node {holder.node}, pid {holder.pid}): only it can do that"


class HostDesk:
    """What a running host has put aside."""

    def __init__(self, at: Address) -> None:
        self._at = at

    def parked(self) -> dict[str, Any]:
        found = asked(self._at, lambda remote: remote.get("/v1/status"))
        return {name: found[name] for name in ("parked", "quarantined")}

    def retry(self, what: int | str) -> str:
        return self._do(f"{quote(str(what), safe='')}/retry")

    def drop(self, number: int) -> str:
        return self._do(f"{number}/drop")

    def _do(self, path: str) -> str:
        try:
            found = asked(self._at, lambda remote: remote.post(f"/v1/parked/{path}", {}))
        except PerdureError as error:
            return str(error)
        return "" if found.get("done", True) else str(found.get("reason") or "nothing is parked as that")


def desk(state: Path | None) -> Desk:
    """Of that state folder, or of the host that serves it."""
    folder, at = existing(state), running(state)
    return FolderDesk(folder) if at is None else HostDesk(at)


def run_list(at: Desk, *, as_json: bool) -> int:
    """Print all. Exit 0 where nothing is parked, else 1."""
    found = at.parked()
    if as_json:
        emit(found)
    else:
        show(found)
    return int(bool(found["parked"] or found["quarantined"]))


def run_retry(at: Desk, what: str, *, as_json: bool) -> int:
    """A number, or a session's key. Exit 0 done, 1 not."""
    return _done(what, at.retry(int(what) if what.isdecimal() else what), as_json=as_json)


def run_drop(at: Desk, number: str, *, as_json: bool) -> int:
    """A number. Exit 0 done, 1 not."""
    if not number.isdecimal():
        raise UsageError(f"{number}: the number of a parked message is expected (`perdure parked list`)")
    return _done(number, at.drop(int(number)), as_json=as_json)


def _done(what: str, reason: str, *, as_json: bool) -> int:
    if as_json:
        emit({"what": what, "done": not reason, "reason": reason})
    else:
        say(reason or f"{what}: done")
    return int(bool(reason))


def show(found: dict[str, Any]) -> None:
    """For a person: no message's text, only what it is and what it broke on."""
    rows: list[tuple[str, ...]] = [("number", "session", "mail", "since", "error")]
    for line in found["parked"]:
        whole = " (the session with it)" if line["whole"] else ""
        since = _when(line["at"])
        rows.append((str(line["number"]), line["session"], line["mail"] + whole, since, line["error"]))
    rows += [
        ("-", line["session"], "can't be opened", _when(line["since"]), line["error"])
        for line in found["quarantined"]
    ]
    if len(rows) == 1:
        say("nothing is parked")
        return
    say(table([tuple(one_line(cell) for cell in row) for row in rows], frozenset({0})))


def _when(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000).astimezone().isoformat(" ", "seconds")
