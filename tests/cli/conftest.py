"""No test of a command sees the developer's own folders, settings or keys."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _at_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "ANTHROPIC_", "OPENAI_")) and name != "PERDURE_SESSIONS":
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("traces")))


@pytest.fixture
def home() -> Path:
    """The home folder of this test."""
    return Path(os.environ["HOME"])
