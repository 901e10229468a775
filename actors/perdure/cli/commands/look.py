"""Commands that look and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import LOOKING, app, config
from perdure.cli.commands.options import Json, Model, State, Window


@app.command(group=LOOKING)
def context(
    target: Annotated[str, Parameter(help="A session's key, or a session file of any origin.")],
    /,
    *,
    window: Window = None,
    model: Model = None,
    message: Annotated[
        str | None,
        Parameter(
            name=["-m", "--message"], help="The next message (default: a stand-in, marked synthesised)."
        ),
    ] = None,
    why: Annotated[
        str | None, Parameter(name="--why", help="Say what became of this entry, and by which rule.")
    ] = None,
    state: State = None,
    json: Json = False,
) -> int:
    """Show the request that the next message of a session would make, and what became of every entry.

    Exit code: 0, or 1 where the request can't fit the window (overflow).
    """
    from perdure.cli.context import run

    return run(target, window=window, model=model, message=message, why=why, state=state, as_json=json)


@app.command(group=LOOKING)
def doctor(
    target: Annotated[str, Parameter(help="A session's key, or a session file of any origin.")],
    /,
    *,
    fix: Annotated[
        bool,
        Parameter(name="--fix", negative="", help="Rewrite damaged lines; the old file is kept beside it."),
    ] = False,
    state: State = None,
    json: Json = False,
) -> int:
    """Examine a session file, without changing a byte unless told to mend it.

    Exit code: 0 healthy (notes may be there), 1 damage, 2 unreadable.
    """
    from perdure.cli.doctor import run

    return run(target, fix=fix, state=state, as_json=json)


@app.command(group=LOOKING)
def status(
    *,
    state: State = None,
    deep: Annotated[
        bool,
        Parameter(name="--deep", negative="", help="Look into every session as well.", show_default=False),
    ] = False,
    json: Json = False,
) -> int:
    """Say what a state folder holds, and which host holds it."""
    from perdure.cli.status import run

    return run(state=state, deep=deep, as_json=json)


@config.command(name="check")
def config_check(
    file: Annotated[Path | None, Parameter(help="A perdure.toml (default: the state folder's).")] = None,
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Check the configuration: unknown keys, wrong values, and what would be accepted.

    Exit code: 0 nothing found, 1 findings, 2 no such file.
    """
    from perdure.cli.config import run

    return run(file, state=state, as_json=json)
