"""`perdure schedules …`."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.commands.apps import schedules
from perdure.cli.commands.options import Json, Key, State


@schedules.command(name="list")
def schedules_list(
    key: Annotated[str | None, Parameter(help="One session's key (default: all sessions).")] = None,
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """List what is scheduled, the next first; of a stopped folder, too. Changes nothing.

    Exit code: 0, or 1 where a session's file could not be read.
    """
    from perdure.cli.schedules import run_list

    return run_list(key, state=state, as_json=json)


@schedules.command(name="add")
def schedules_add(
    key: Key,
    message: Annotated[str, Parameter(help="What the session is sent.")],
    /,
    *,
    every: Annotated[str, Parameter(help="So often: 30m, 4h, 1d12h.")] = "",
    cron: Annotated[str, Parameter(help="Five fields: '30 8 * * 1-5'.")] = "",
    at: Annotated[str, Parameter(help="Once: 2026-03-29T08:00.")] = "",
    timezone: Annotated[str, Parameter(help="IANA name for --cron and --at (default: UTC).")] = "",
    isolated: Annotated[
        bool, Parameter(negative="", help="In a session of its own.", show_default=False)
    ] = False,
    catch_up: Annotated[
        Literal["once", "skip"], Parameter(name="--catch-up", help="What to do about a missed instant.")
    ] = "once",
    id: Annotated[str, Parameter(help="Its name; one that is there already is set anew.")] = "",
    state: State = None,
    json: Json = False,
) -> int:
    """Schedule a message, while no host has the state folder. Give one of --every, --cron, --at.

    Exit code: 0 done, 2 it can't be.
    """
    from perdure.cli.schedules import run_add
    from perdure.hosting.scheduling import Wish

    wish = Wish(key, message, every, cron, at, timezone, "", isolated, catch_up, id)
    return run_add(wish, state=state, as_json=json)


@schedules.command(name="remove")
def schedules_remove(
    key: Key,
    id: Annotated[str, Parameter(help="Its id, as the list shows it.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Take a schedule away, while no host has the state folder.

    Exit code: 0 done, 1 there was none.
    """
    from perdure.cli.schedules import run_remove

    return run_remove(key, id, state=state, as_json=json)
