"""What a user installs: one namespace, typed, with its command; nothing generic in site-packages."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_no_source_root_makes_the_namespace_a_package() -> None:
    assert not list(ROOT.glob("*/perdure/__init__.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(out.glob("perdure-*.whl"))


def test_the_wheel_holds_the_namespace_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"perdure"}
    assert "perdure/__init__.py" not in names
    for name in ("records", "kernel/kernel", "plugins/engines/legacy", "actors/session", "host", "cli/app"):
        assert f"perdure/{name}.py" in names
    assert names.count("perdure/py.typed") == 1
    assert len(set(names)) == len(names)


def test_a_checker_takes_the_types_of_an_editable_install(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text("from perdure.host import Host\nhost: Host\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=skip", "program.py"]
    command += ["--cache-dir", os.devnull]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "py.typed" not in done.stdout  # "installed, but missing … py.typed marker"
    assert not done.stderr
    for root in ("runtime", "plugins", "actors"):
        assert (ROOT / root / "perdure" / "py.typed").is_file()


def test_the_installed_wheel_runs_its_command_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # its dependencies come from this environment, the code from the wheel
    mine = next(p for p in sys.path if p.endswith("site-packages"))
    done = subprocess.run(
        [str(python), "-c", "from perdure.cli import main; main()", "chat", "-m", "hello", "--json"],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "PERDURE_HOME": str(tmp_path / "home"),
            "PYTHONPATH": f"{site}:{mine}",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert '"stop": "stop"' in done.stdout
