"""The whole command line: importing this module adds every command to `app`."""

from perdure.cli.commands import change, engines, keep, look, memory, outbox, parked, run, schedules, sessions
from perdure.cli.commands.apps import app

__all__ = [
    "app",
    "change",
    "engines",
    "keep",
    "look",
    "memory",
    "outbox",
    "parked",
    "run",
    "schedules",
    "sessions",
]
