"""The README tells the truth: its example runs, its commands exist, its files are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_example_runs_as_printed(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"<!-- example -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    names: dict[str, Any] = {}
    exec(compile(found[1], "README.md", "exec"), names)
    anyio.run(names["main"], backend=backend)
    assert "hello" in capsys.readouterr().out
    assert list((tmp_path / "state" / "sessions").rglob("*.jsonl"))


def test_every_command_it_names_has_a_help_page() -> None:
    program = "from perdure.cli import main; main()"
    for name in sorted(set(re.findall(r"`perdure (\w+)", README))):
        done = subprocess.run([sys.executable, "-c", program, name, "--help"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert name in done.stdout


def test_every_file_it_names_exists() -> None:
    for name in re.findall(r"`((?:[\w/]+/)?[\w/]+\.(?:py|md))`", README):
        places = [ROOT / name, *(ROOT / root / "perdure" / name for root in ("runtime", "plugins", "actors"))]
        places.append(ROOT / "actors/perdure/actors" / name)
        assert any(place.exists() for place in places), name


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)  ", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
