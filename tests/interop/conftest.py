"""These tests need node and pi (`make interop` installs it); without them they say why they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import helpers_pi
from helpers_pi import Pi


@pytest.fixture(scope="session")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pi]:
    """The reference program, started once."""
    if why := helpers_pi.why_not():
        pytest.skip(why)
    running = Pi(tmp_path_factory.mktemp("home"))
    yield running
    running.close()


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
