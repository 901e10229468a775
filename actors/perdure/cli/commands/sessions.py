"""`perdure sessions …`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import BRANCHES, LISTED, sessions
from perdure.cli.commands.options import Entry, Json, Key, State


@sessions.command(name="list", group=LISTED)
def sessions_list(*, state: State = None, json: Json = False) -> int:
    """List the sessions of a state folder, the latest first."""
    from perdure.cli.sessions import run_list

    return run_list(state=state, as_json=json)


@sessions.command(name="show", group=LISTED)
def sessions_show(
    target: Annotated[str, Parameter(help="A session's key, or a session file of any origin.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Show what a session remembers word for word: its latest summary and the messages since."""
    from perdure.cli.sessions import run_show

    return run_show(target, state=state, as_json=json)


@sessions.command(name="tree", group=LISTED)
def sessions_tree(
    target: Annotated[str, Parameter(help="A session's key, or a session file of any origin.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Show every branch of a session: where it forks, what is labelled, where it stands."""
    from perdure.cli.tree import run

    return run(target, state=state, as_json=json)


@sessions.command(name="switch", group=BRANCHES)
def sessions_switch(key: Key, entry: Entry, /, *, state: State = None, json: Json = False) -> int:
    """Go on behind another entry. Nothing is deleted; entries in segments come back."""
    from perdure.cli.branches import run_switch

    return run_switch(key, entry, state=state, as_json=json)


@sessions.command(name="label", group=BRANCHES)
def sessions_label(
    key: Key,
    entry: Entry,
    text: Annotated[str, Parameter(help="The label; an empty one takes it away.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Name an entry, to find it again and to keep it from being moved out."""
    from perdure.cli.branches import run_label

    return run_label(key, entry, text, state=state, as_json=json)


@sessions.command(name="rename", group=BRANCHES)
def sessions_rename(
    key: Key,
    name: Annotated[str, Parameter(help="The name.")],
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """Name a session. Its key stays."""
    from perdure.cli.branches import run_rename

    return run_rename(key, name, state=state, as_json=json)


@sessions.command(name="fork", group=BRANCHES)
def sessions_fork(
    key: Key,
    entry: Annotated[
        str | None, Parameter(help="Up to this entry: an id, the beginning of it, or a label (default: all).")
    ] = None,
    /,
    *,
    new_key: Annotated[str, Parameter(name="--as", help="The new session's key.")],
    state: State = None,
    json: Json = False,
) -> int:
    """Make a new session of a session's history. The old one stays as it is."""
    from perdure.cli.branches import run_fork

    return run_fork(key, entry, new_key=new_key, state=state, as_json=json)
