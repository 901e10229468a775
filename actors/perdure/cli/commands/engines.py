"""Commands on context engines."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from perdure.cli.commands.apps import LOOKING, app
from perdure.cli.commands.options import Json, State

engines = App(
    name="engines",
    help="Context engines: which there are, and whether one keeps the laws of the contract.",
    version_flags=(),
    group=LOOKING,
    group_commands="Commands",
)
app.command(engines)


@engines.command(name="list")
def list_(*, state: State = None, json: Json = False) -> int:
    """List the engines that can be chosen, whose they are, which one is, and how it does in a running host.

    Exit code: 0, or 1 where the configuration names an engine that isn't there.
    """
    from perdure.cli.engines import run_list

    return run_list(state=state, as_json=json)


@engines.command
def check(
    name: Annotated[str, Parameter(help="An engine's id, or module:factory.")],
    /,
    *,
    laws: Annotated[
        list[str] | None,
        Parameter(name="--law", negative="", help="Only this law, or group of laws."),
    ] = None,
    deadline: Annotated[float, Parameter(name="--deadline", help="Seconds that one call may take.")] = 10.0,
    state: State = None,
    json: Json = False,
) -> int:
    """Check an engine against every law of the contract, without a host.

    It gets its own settings from the state folder's configuration, and a store of its own that is gone
    afterwards.

    Exit code: 0 all laws kept, 1 one is broken, 2 no such engine.
    """
    from perdure.cli.engines import run_check

    return run_check(name, laws=laws or [], deadline=deadline, state=state, as_json=json)
