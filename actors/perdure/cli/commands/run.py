"""Commands that run something: the demo, a conversation, scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import HOSTING, app
from perdure.cli.commands.options import Backend, Connect, Force, Json, Model, State, Window


@app.command(group=HOSTING)
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


@app.command(group=HOSTING)
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
    connect: Connect = None,
    loop: Backend = "asyncio",
    json: Json = False,
) -> int:
    """Talk to a session, through the host that serves the state folder where one runs.

    Without a key in the environment the embedded scripted model answers."""
    from perdure.cli.chat import run

    return run(
        key, message=message, attach=attach or [], state=state, model=model, window=window,
        workspace=workspace, backend=loop, connect=connect, as_json=json,
    )  # fmt: skip


@app.command(group=HOSTING)
def serve(
    *,
    host: Annotated[
        str | None, Parameter(name="--host", help="Address to listen on (default: 127.0.0.1).")
    ] = None,
    port: Annotated[int | None, Parameter(name="--port", help="Port (default: 8787; 0: a free one).")] = None,
    state: State = None,
    loop: Backend = "asyncio",
    json: Json = False,
) -> int:
    """Host the sessions of a state folder and serve its HTTP API, until SIGTERM."""
    from perdure.cli.serving import run

    return run(host=host, port=port, state=state, backend=loop, as_json=json)


@app.command(group=HOSTING)
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


@app.command(name="import", group=HOSTING)
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
