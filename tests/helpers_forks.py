"""Child processes forked from a server that has loaded what they need: they start in no time."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path

import pytest

FORKS = multiprocessing.get_context("forkserver")


def ensure_forks() -> None:
    """Start the server that children are forked from, able to load what they need (it forgets sys.path)."""
    FORKS.set_forkserver_preload(["helpers_killed", "helpers_killed_server"])
    here = str(Path(__file__).parent)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))))
        forkserver.ensure_running()
