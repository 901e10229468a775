"""Peers that pip can't bring: pi's SessionManager, installed by npm into a cache folder of its own."""

from __future__ import annotations

import shutil
import subprocess

from benchmarks.runner import ROOT

PI = "@mariozechner/pi-coding-agent"
PI_VERSION = "0.66.1"
FOLDER = ROOT / ".venv" / "peers"  # never in the tree; `make clean` takes it along
MANAGER = FOLDER / "node_modules" / PI / "dist" / "core" / "session-manager.js"
INSTALL_SECONDS = 300.0


def find_pi() -> tuple[str | None, str]:
    """The program that runs pi's scripts, else `None` and why it is skipped. Installs pi on first use."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None:
        return None, "pi is skipped: there is no node on this machine"
    if MANAGER.exists():
        return node, ""
    if npm is None:
        return None, "pi is skipped: there is no npm on this machine"
    why = _install(npm)
    return (node, "") if MANAGER.exists() else (None, f"pi is skipped: npm could not install it ({why})")


def _install(npm: str) -> str:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", f"{PI}@{PI_VERSION}"]
    try:
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"not done within {INSTALL_SECONDS:g} s"
    return (done.stderr.strip().splitlines() or ["no message"])[0][:160]
