"""`perdure sessions stop`: what a running host does for a session ends, with `--tree` for all below it."""

from __future__ import annotations

from pathlib import Path

from perdure.actors.arguments import a_key
from perdure.cli.folder import holder
from perdure.cli.output import emit, say
from perdure.cli.remote.address import running
from perdure.cli.remote.client import LONG, asked
from perdure.cli.remote.client import session as path_of
from perdure.context.text.plural import counted
from perdure.looking.target import existing


def run(key: str, *, tree: bool, state: Path | None, as_json: bool) -> int:
    """Exit 0 where something was stopped, else 1: nothing ran, or no host serves the state folder."""
    a_key(key)
    at = running(state)
    if at is None:
        by = holder(existing(state))
        why = "no host runs here: nothing runs"
        if by is not None and by.held:
            why = f"a host without an API has it (pid {by.pid}): Host.stop_tree in that program stops it"
        return _tell(key, False, [], why, as_json=as_json)
    body = {"tree": tree}
    found = asked(at, lambda remote: remote.post(f"{path_of(key)}/stop", body, seconds=LONG))
    below = [str(each) for each in found["below"]]
    return _tell(
        key, bool(found["stopped"]), below, "" if found["stopped"] else "nothing runs", as_json=as_json
    )


def _tell(key: str, stopped: bool, below: list[str], why: str, *, as_json: bool) -> int:
    if as_json:
        emit({"key": key, "done": stopped, "reason": why, "below": below})
    elif stopped:
        say(f"{key}: stopped" + (f", and {counted(len(below), 'subagent')} below it" if below else ""))
        for each in below:
            say(f"  {each}")
    else:
        say(f"{key}: {why}")
    return 0 if stopped else 1
