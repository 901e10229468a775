"""`perdure memory …`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import memory
from perdure.cli.commands.options import Json, State


@memory.command(name="forget")
def memory_forget(
    text: Annotated[str, Parameter(help="What they say, or where it stands (memory/2026-01-05.md#L3).")],
    /,
    *,
    agent: Annotated[str, Parameter(name="--agent", help="Whose memory.")] = "main",
    state: State = None,
    json: Json = False,
) -> int:
    """Take what says a text out of an agent's memory: notes, index, vectors and all else made of them.

    There is no way back. What was said in a session stays there. While a host runs, the folder is its own.
    Exit code: 0 something went, 1 nothing said that.
    """
    from perdure.cli.forgetting import run

    return run(text, agent=agent, state=state, as_json=json)
