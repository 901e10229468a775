"""Commands that keep a state folder: backups, and what is removed by plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import KEEPING, app
from perdure.cli.commands.options import Force, Json, State


@app.command(group=KEEPING)
def backup(
    out: Annotated[Path, Parameter(help="Where the backup goes.")],
    /,
    *,
    workspaces: Annotated[
        bool,
        Parameter(name="--workspaces", negative="", help="The agents' workspaces, too.", show_default=False),
    ] = False,
    force: Force = False,
    state: State = None,
    json: Json = False,
) -> int:
    """Copy a state folder into one verified file, while a host runs or not. Changes nothing.

    Exit code: 0, or 1 where evidence was damaged before.
    """
    from perdure.cli.backing import run_backup

    return run_backup(out, workspaces=workspaces, force=force, state=state, as_json=json)


@app.command(group=KEEPING)
def restore(
    file: Annotated[Path, Parameter(help="A backup.")],
    /,
    *,
    state: Annotated[
        Path, Parameter(name="--state", help="The folder to be made; it must not hold anything.")
    ],
    answer: Annotated[
        bool,
        Parameter(
            name="--answer",
            negative="",
            help="Answer what waited in the backup: only where the original is gone for good.",
            show_default=False,
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Make a state folder of a backup, every byte compared before it is there at all.

    Exit code: 0, 1 where a session was left unsettled, 2 where the backup is damaged: file by file.
    """
    from perdure.cli.backing import run_restore

    return run_restore(file, state=state, answer=answer, as_json=json)


@app.command(group=KEEPING)
def cleanup(
    *,
    dry_run: Annotated[
        bool,
        Parameter(
            name="--dry-run", negative="", help="Say what would go, change nothing.", show_default=False
        ),
    ] = False,
    state: State = None,
    json: Json = False,
) -> int:
    """Remove what `[retention]` in perdure.toml doesn't keep, archived and verified first.

    Exit code: 0, or 1 where the limits don't hold afterwards: what is in use is never removed.
    """
    from perdure.cli.cleaning import run

    return run(dry_run=dry_run, state=state, as_json=json)
