"""SIGHUP reads the configuration again, for commands that serve: to be run beside what they do."""

from __future__ import annotations

import signal

import anyio
from anyio.abc import TaskStatus

from perdure.cli.output import warn
from perdure.errors import PerdureError
from perdure.host import Host


async def reload_on_hangup(host: Host, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Until cancelled. What applies and what waits is told on stderr, a line for each key."""
    with anyio.open_signal_receiver(signal.SIGHUP) as received:
        task_status.started()
        async for _ in received:
            try:
                lines = (await host.reload()).lines()
            except PerdureError as error:
                lines = [f"not reloaded, nothing has changed: {error}"]
            for line in lines:
                warn(f"perdure: {line}")


__all__ = ["reload_on_hangup"]
