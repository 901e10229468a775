"""`perdure outbox …`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.apps import outbox
from perdure.cli.commands.options import Json, Key, State

Which = Annotated[str, Parameter(help="The answer's entry, as the list shows it (default: all).")]


@outbox.command(name="list")
def outbox_list(
    key: Annotated[str | None, Parameter(help="One session's key (default: all sessions).")] = None,
    /,
    *,
    state: State = None,
    json: Json = False,
) -> int:
    """List answers on their way out, and those that went nowhere. Changes nothing.

    Exit code: 0 nothing waits for you, 1 some failed, expired, or may have arrived or not.
    """
    from perdure.cli.outbox import run_list

    return run_list(key, state=state, as_json=json)


@outbox.command(name="retry")
def outbox_retry(key: Key, entry: Which = "", /, *, state: State = None, json: Json = False) -> int:
    """Let answers that went nowhere be sent again by the next host. One that may have arrived may then
    arrive twice.

    Exit code: 0 done, 1 there was none.
    """
    from perdure.cli.outbox import run_move

    return run_move(key, "retry", entry, state=state, as_json=json)


@outbox.command(name="drop")
def outbox_drop(key: Key, entry: Which = "", /, *, state: State = None, json: Json = False) -> int:
    """Forget answers on their way out; they stay in the session.

    Exit code: 0 done, 1 there was none.
    """
    from perdure.cli.outbox import run_move

    return run_move(key, "drop", entry, state=state, as_json=json)
