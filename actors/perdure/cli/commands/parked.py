"""Commands on what broke a session and was put aside."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from perdure.cli.commands.apps import CHANGING, app
from perdure.cli.commands.options import Json, State

parked = App(
    name="parked",
    help="Messages that broke their session, and sessions that can't be opened.",
    version_flags=(),
    group=CHANGING,
    group_commands="Commands",
)
app.command(parked)


@parked.command(name="list")
def list_(*, state: State = None, json: Json = False) -> int:
    """List them, without any message's text.

    Exit code: 0 nothing is parked, 1 something is.
    """
    from perdure.cli.parked import desk, run_list

    return run_list(desk(state), as_json=json)


@parked.command
def retry(
    what: Annotated[str, Parameter(help="A number of the list, or the key of a session that can't open.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Try one again.

    Exit code: 0 done, 1 not done: the reason is told.
    """
    from perdure.cli.parked import desk, run_retry

    return run_retry(desk(state), what, as_json=json)


@parked.command
def drop(
    number: Annotated[str, Parameter(help="A number of the list.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Forget a parked message for good.

    Exit code: 0 done, 1 not done: the reason is told.
    """
    from perdure.cli.parked import desk, run_drop

    return run_drop(desk(state), number, as_json=json)
