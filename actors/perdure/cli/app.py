"""The commands and their options; each body lives in a module of its own, imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Group, Parameter

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON object.", show_default=False)
]
State = Annotated[
    Path | None, Parameter(name="--state", help="State folder (default: PERDURE_HOME, else ~/.perdure).")
]
Window = Annotated[
    int | None, Parameter(name="--window", help="Context window in tokens (default: the model's own).")
]
Model = Annotated[
    str | None,
    Parameter(name="--model", help="Model as provider/id (default: the configured one, else scripted)."),
]
Backend = Annotated[
    Literal["asyncio", "uvloop", "trio"], Parameter(name="--loop", help="Event loop to run on.")
]
Force = Annotated[
    bool, Parameter(name="--force", negative="", help="Overwrite what is there.", show_default=False)
]


def version() -> str:
    """`perdure 1.2.3`."""
    from importlib.metadata import version

    return f"perdure {version('perdure')}"


app = App(
    name="perdure",
    help="Host LLM agent sessions that last for weeks, and look into their files.",
    version=version,
    version_flags=["--version"],
    help_format="plaintext",
    group_commands=Group("Options", sort_key=3),
)
_HOSTING, _CHANGING = Group("Run", sort_key=0), Group("Change one session", sort_key=1)
_LOOKING = Group("Look (changes nothing)", sort_key=2)
_LISTED, _BRANCHES = Group("Look (changes nothing)", sort_key=0), Group("Change one session", sort_key=1)
sessions = App(
    name="sessions",
    help="List and show sessions; go back in them, name and fork them.",
    version_flags=(),
    group=_LOOKING,
    group_commands="Commands",
)
config = App(
    name="config",
    help="Look at the configuration.",
    version_flags=(),
    group=_LOOKING,
    group_commands="Commands",
)
app.command(sessions)
app.command(config)


@app.command(group=_HOSTING)
def demo(
    *,
    sessions: Annotated[int, Parameter(help="How many sessions.")] = 200,
    days: Annotated[int, Parameter(help="How many virtual days.")] = 7,
    seed: Annotated[int, Parameter(help="The same seed gives the same days.")] = 0,
    loop: Backend = "asyncio",
    json: Json = False,
) -> int:
    """Host sessions through virtual days on the embedded model, and show what became of them."""
    from perdure.cli.demo import run

    return run(sessions=sessions, days=days, seed=seed, backend=loop, as_json=json)


@app.command(group=_HOSTING)
def chat(
    key: Annotated[str, Parameter(help="The session's key.")] = "agent:main:cli:dm:local",
    /,
    *,
    message: Annotated[
        str | None,
        Parameter(
            name=["-m", "--message"],
            help="Say this (`-`: what standard input says), print the reply, and exit.",
            allow_leading_hyphen=True,
        ),
    ] = None,
    attach: Annotated[
        list[Path] | None, Parameter(name="--attach", negative="", help="Attach a file (may be repeated).")
    ] = None,
    state: State = None,
    model: Model = None,
    window: Window = None,
    workspace: Annotated[Path | None, Parameter(name="--workspace", help="Where file tools work.")] = None,
    loop: Backend = "asyncio",
    json: Json = False,
) -> int:
    """Talk to a session. Without a key in the environment the embedded scripted model answers."""
    from perdure.cli.chat import run

    return run(
        key, message=message, attach=attach or [], state=state, model=model, window=window,
        workspace=workspace, backend=loop, as_json=json,
    )  # fmt: skip


@app.command(group=_HOSTING)
def replay(
    paths: Annotated[list[Path], Parameter(help="Scenario files, or folders of them.")],
    /,
    *,
    window: Window = None,
    seed: Annotated[int | None, Parameter(help="Order of equal instants.")] = None,
    loop: Backend = "asyncio",
    keep: Annotated[Path | None, Parameter(name="--keep", help="Keep the state folder here.")] = None,
    json: Json = False,
) -> int:
    """Run scenario scripts in virtual time and check what they expect."""
    from perdure.cli.replay import run

    return run(paths, window=window, seed=seed, backend=loop, keep=keep, as_json=json)


@app.command(name="import", group=_HOSTING)
def import_(
    file: Annotated[Path, Parameter(help="A pi, OpenClaw, Claude Code, Codex or nanobot session.")],
    /,
    *,
    out: Annotated[
        Path | None,
        Parameter(name=["-o", "--out"], help="Where the scenario goes (default: ./NAME.scenario.jsonl)."),
    ] = None,
    window: Annotated[
        int | None, Parameter(name="--window", help="Window of the scenario's model, in tokens.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Make a scenario from a recorded session file. What doesn't come through is counted."""
    from perdure.cli.importing import run

    return run(file, out=out, window=window, force=force, as_json=json)


Key = Annotated[str, Parameter(help="The session's key.")]
Entry = Annotated[str, Parameter(help="An entry: its id, the beginning of it, or a label.")]


@app.command(group=_CHANGING)
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


@app.command(group=_CHANGING)
def undo(key: Key, /, *, model: Model = None, state: State = None, json: Json = False) -> int:
    """Take a session's latest compaction back; what was said since is kept.

    Exit code: 0 done, 1 not done: there is none, or the result can't fit the window.
    """
    from perdure.cli.shrinking import run_undo

    return run_undo(key, model=model, state=state, as_json=json)


@app.command(group=_CHANGING)
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


@app.command(group=_LOOKING)
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


@app.command(group=_LOOKING)
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


@app.command(group=_LOOKING)
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


@sessions.command(name="list", group=_LISTED)
def sessions_list(*, state: State = None, json: Json = False) -> int:
    """List the sessions of a state folder, the latest first."""
    from perdure.cli.sessions import run_list

    return run_list(state=state, as_json=json)


@sessions.command(name="show", group=_LISTED)
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


@sessions.command(name="tree", group=_LISTED)
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


@sessions.command(name="switch", group=_BRANCHES)
def sessions_switch(key: Key, entry: Entry, /, *, state: State = None, json: Json = False) -> int:
    """Go on behind another entry. Nothing is deleted; entries in segments come back."""
    from perdure.cli.branches import run_switch

    return run_switch(key, entry, state=state, as_json=json)


@sessions.command(name="label", group=_BRANCHES)
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


@sessions.command(name="rename", group=_BRANCHES)
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


@sessions.command(name="fork", group=_BRANCHES)
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
