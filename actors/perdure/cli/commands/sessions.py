"""`perdure sessions …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from perdure.cli.commands.apps import BRANCHES, LISTED, sessions
from perdure.cli.commands.options import Entry, Force, Json, Key, State


@sessions.command(name="list", group=LISTED)
def sessions_list(
    *,
    agent: Annotated[str | None, Parameter(name="--agent", help="Only this agent's sessions.")] = None,
    limit: Annotated[int | None, Parameter(name="--limit", help="At most so many, the latest.")] = None,
    children: Annotated[
        bool, Parameter(name="--children", negative="", help="Subagents, too.", show_default=False)
    ] = False,
    every: Annotated[
        bool,
        Parameter(name="--all", negative="", help="Subagents, and what /new put aside.", show_default=False),
    ] = False,
    state: State = None,
    json: Json = False,
) -> int:
    """List the sessions of a state folder, the latest first. What isn't shown is counted on stderr."""
    from perdure.cli.sessions import Wanted, run_list

    return run_list(wanted=Wanted(agent, limit, children, every), state=state, as_json=json)


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


@sessions.command(name="search", group=LISTED)
def sessions_search(
    text: Annotated[str, Parameter(help="What was said; case is ignored.")],
    /,
    *,
    limit: Annotated[int, Parameter(name="--limit", help="At most so many places, the latest.")] = 20,
    agent: Annotated[str | None, Parameter(name="--agent", help="Only this agent's sessions.")] = None,
    state: State = None,
    json: Json = False,
) -> int:
    """Find where something was said, in every session, what truncation moved out and /new put aside included.

    Exit code: 0 found, 1 nowhere.
    """
    from perdure.cli.searching import run

    return run(text, limit=limit, agent=agent, state=state, as_json=json)


@sessions.command(name="export", group=LISTED)
def sessions_export(
    target: Annotated[str, Parameter(help="A session's key, or a session file of any origin.")],
    /,
    *,
    out: Annotated[
        Path | None, Parameter(name=["-o", "--out"], help="Where it goes (default: standard output).")
    ] = None,
    format: Annotated[
        Literal["jsonl", "markdown"],
        Parameter(name="--format", help="Every entry as a session file, or the branch for people."),
    ] = "jsonl",
    force: Force = False,
    state: State = None,
    json: Json = False,
) -> int:
    """Write a session as one file, what truncation moved out included.

    Exit code: 0, or 1 where segments are gone and their entries are not in it.
    """
    from perdure.cli.exporting import run

    return run(target, out=out, format=format, force=force, state=state, as_json=json)


@sessions.command(name="stop", group=BRANCHES)
def sessions_stop(
    key: Key,
    /,
    *,
    tree: Annotated[
        bool,
        Parameter(
            name="--tree", negative="", help="All subagents below it as well, theirs too.", show_default=False
        ),
    ] = False,
    state: State = None,
    json: Json = False,
) -> int:
    """Stop what a session does just now, in the host that runs it.

    A subagent that is stopped has ended, and its parent is told. Exit code: 0 stopped, 1 nothing ran.
    """
    from perdure.cli.stopping import run

    return run(key, tree=tree, state=state, as_json=json)


@sessions.command(name="delete", group=BRANCHES)
def sessions_delete(
    key: Key,
    /,
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
    """Delete a session for good, its subagents first: files, segments, evidence of its own, index.

    The agent's workspace stays. There is no archive: `sessions export` makes a copy, `cleanup` archives.
    """
    from perdure.cli.deleting import run

    return run(key, dry_run=dry_run, state=state, as_json=json)
