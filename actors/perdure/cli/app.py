"""The whole command line: importing this module adds every command to `app`."""

from perdure.cli.commands import change, look, parked, run, sessions
from perdure.cli.commands.apps import app

__all__ = ["app", "change", "look", "parked", "run", "sessions"]
