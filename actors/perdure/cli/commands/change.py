"""Commands that change one session."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import CHANGING, app
from perdure.cli.commands.options import Json, Key, Model, State, Window


@app.command(group=CHANGING)
def compact(
    key: Key,
    /,
    *,
    preview: Annotated[
        bool,
        Parameter(
            negative="",
            help="Show what would be covered and kept, and the summary; store nothing. Costs model calls.",
            show_default=False,
        ),
    ] = False,
    focus: Annotated[str, Parameter(help="What the summary should look at above all.")] = "",
    model: Model = None,
    window: Window = None,
    state: State = None,
    json: Json = False,
) -> int:
    """Summarise the older part of a session now.

    Exit code: 0 done (or previewed), 1 not done: the reason is told.
    """
    from perdure.cli.compacting import run

    return run(
        key, preview=preview, focus=focus, model=model, window=window, state=state, as_json=json
    )  # fmt: skip


@app.command(group=CHANGING)
def undo(
    key: Key, /, *, model: Model = None, window: Window = None, state: State = None, json: Json = False
) -> int:
    """Take a session's latest compaction back; what was said since is kept.

    Exit code: 0 done, 1 not done: there is none, or the result can't fit the window.
    """
    from perdure.cli.shrinking import run_undo

    return run_undo(key, model=model, window=window, state=state, as_json=json)


@app.command(group=CHANGING)
def truncate(
    key: Key,
    /,
    *,
    dry_run: Annotated[
        bool,
        Parameter(
            name="--dry-run", negative="", help="Say what would be done, change nothing.", show_default=False
        ),
    ] = False,
    discard_segments: Annotated[
        bool,
        Parameter(
            name="--discard-segments",
            negative="",
            help="Move nothing; delete what earlier truncations moved out, for good.",
            show_default=False,
        ),
    ] = False,
    state: State = None,
    json: Json = False,
) -> int:
    """Move what compactions cover out of a session's file into a segment beside it. No view changes."""
    from perdure.cli.shrinking import run_truncate

    return run_truncate(
        key, dry_run=dry_run, discard_segments=discard_segments, state=state, as_json=json
    )  # fmt: skip
