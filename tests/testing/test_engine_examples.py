"""The examples are packages: installed into a fresh environment, chosen by one line, used."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "my-package"
version = "1.2.3"
[project.entry-points."perdure.plugins"]
recent = "my_package:register"
[tool.hatch.build.targets.wheel]
packages = ["my_package.py"]
"""


def fifteen_lines() -> str:
    return block("engine")


def block(name: str) -> str:
    """A piece of code of the README, by the mark before it."""
    text = (ROOT / "README.md").read_text()
    found = re.search(rf"<!-- {name} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


@dataclass(frozen=True)
class Environment:
    """A fresh one: perdure and its dependencies come from this one, packages are installed into it."""

    root: Path

    @property
    def python(self) -> str:
        return str(self.root / "bin" / "python")

    def install(self, package: Path) -> None:
        """As a user would, without a network; built from a copy, for a build leaves traces."""
        copy = self.root / "source" / package.name
        shutil.copytree(package, copy)
        command = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-deps"]
        done = self.run([*command, "--no-index", "--no-build-isolation", "--no-compile", str(copy)])
        assert done.returncode == 0, done.stderr

    def perdure(self, *words: str, engine: str) -> subprocess.CompletedProcess[str]:
        """A command, with one line of configuration."""
        state = self.root / f"state-{engine}"
        state.mkdir(exist_ok=True)
        (state / "perdure.toml").write_text(f'[plugins.slots]\ncontext_engine = "{engine}"\n')
        program = "from perdure.cli import main; main()"
        return self.run([self.python, "-c", program, *words, "--state", str(state)])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        keep = ("PATH", "HOME", "LANG", "TMPDIR")
        env = {name: os.environ[name] for name in keep if name in os.environ}
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    root = tmp_path_factory.mktemp("env")
    venv.create(root, with_pip=False)
    site = next((root / "lib").glob("python*/site-packages"))
    here = [path for path in sys.path if path.endswith("site-packages")]
    (site / "here.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in here))
    made, mine = Environment(root), root / "mine" / "my-package"
    mine.mkdir(parents=True)
    (mine / "pyproject.toml").write_text(PYPROJECT)
    (mine / "my_package.py").write_text(fifteen_lines())
    actor = root / "mine" / "my-actor"
    actor.mkdir()
    told = PYPROJECT.replace("my-package", "my-actor").replace("my_package", "my_actor")
    (actor / "pyproject.toml").write_text(told.replace("recent", "porter"))
    (actor / "my_actor.py").write_text(block("actor"))
    for package in (mine, actor, EXAMPLES / "perdure-keyword-engine", EXAMPLES / "perdure-clerk"):
        made.install(package)
    return made


def test_the_engine_of_the_readme_has_fifteen_lines() -> None:
    assert len([line for line in fifteen_lines().splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize("engine", ["recent", "porter", "keyword", "clerk", "clerk-apart"])
def test_one_line_of_configuration_chooses_an_installed_engine(engine: str, environment: Environment) -> None:
    done = environment.perdure("chat", "-m", "hello", "--json", engine=engine)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stop"] == "stop"
    log = (environment.root / f"state-{engine}" / "runtime.log").read_text()
    assert "engine.fallback" not in log
    assert "engine.failed" not in log
    if engine == "porter":
        assert '"counted"' in log
    if engine.startswith("clerk"):
        assert '"noted"' in log  # the actor's own word, from this process or from its own


def test_installed_engines_are_listed_with_their_package(environment: Environment) -> None:
    done = environment.perdure("engines", "list", "--json", engine="keyword")
    lines = {line["id"]: line for line in json.loads(done.stdout)["engines"]}
    assert lines["recent"]["from"] == "my-package 1.2.3"
    assert lines["keyword"] == {
        "id": "keyword", "owner": "plugin:keyword", "from": "perdure-keyword-engine 0.1.0", "selected": True,
        "default": False, "health": None,
    }  # fmt: skip
    assert {"clerk", "clerk-apart", "legacy"} <= set(lines)


@pytest.mark.parametrize("engine", ["recent", "keyword"])
def test_an_installed_engine_is_checked_by_its_id(engine: str, environment: Environment) -> None:
    words = [word for group in ("shape", "pairs", "budget", "order") for word in ("--law", group)]
    done = environment.perdure("engines", "check", engine, *words, engine=engine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{engine}: all laws are kept" in done.stdout


def test_the_tests_of_the_example_pass(environment: Environment) -> None:
    folder = environment.root / "source" / "perdure-keyword-engine"
    command = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    done = environment.run([*command, "-c", str(folder / "pyproject.toml"), str(folder / "tests")])
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr
    assert " passed" in done.stdout
