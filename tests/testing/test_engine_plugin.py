"""The laws as a plugin of pytest: three lines are a test file, each law is a test of its sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLAIN = """
from perdure.testing.engines import EngineLaws
from perdure.plugins.engines.legacy import LegacyEngine
laws = EngineLaws(LegacyEngine)
"""
FAULTY = """
from perdure.contracts import Assembled
from perdure.testing.engines import EngineLaws
from perdure.plugins.engines.legacy import LegacyEngine

class Forgets(LegacyEngine):
    async def assemble(self, context, messages):
        return Assembled(messages[:-1])

laws = EngineLaws(Forgets, groups=["order"])
"""


def ran(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "perdure.testing.engines", "-p", "no:cacheprovider"]
    command += ["-W", "error", "-c", "/dev/null", "--rootdir", str(folder), *arguments, "test_mine.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others cost seconds
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, env=env)


def test_each_law_is_a_test_that_bears_its_sentence(tmp_path: Path) -> None:
    done = ran(tmp_path, PLAIN, "--collect-only", "-q")
    assert "test_mine.py::laws::Calls and results that are sent are paired\n" in done.stdout
    assert "test_mine.py::laws::It works on asyncio and on trio (trio)\n" in done.stdout


def test_a_group_of_laws_is_chosen_by_its_name(tmp_path: Path) -> None:
    done = ran(tmp_path, PLAIN, "-q", "-k", "pairs")
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout  # one sentence of another group has the word


def test_a_broken_law_is_told_in_one_line_and_its_sentence(tmp_path: Path) -> None:
    done = ran(tmp_path, FAULTY, "-q")
    assert done.returncode == 1
    assert "order.newest-last: What is newest in the view stands last" in done.stdout
    assert "expected h0-000007 to stand last; h0-000006 did, in the history `text`" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_it_may_be_named_though_it_is_there_already(tmp_path: Path) -> None:
    done = ran(tmp_path, f'pytest_plugins = ["perdure.testing.engines"]\n{PLAIN}', "-q", "-k", "shape")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_without_laws_pays_nothing_for_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_sessionfinish():\n    assert 'perdure.records' not in sys.modules\n"
    )
    done = ran(tmp_path, "def test_nothing(): pass\n", "-q")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_entry_point_bears_the_name_of_its_module() -> None:
    """So that naming it in `pytest_plugins`, too, registers it once."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\n"perdure.testing.engines" = "perdure.testing.engines"' in text
