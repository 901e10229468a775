"""`perdure backup` and `perdure restore`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from perdure.cli.output import emit, fail, refuse_taken, say, size, warn
from perdure.cli.owning import now_ms
from perdure.context.text.plural import counted
from perdure.edges.backup import back_up
from perdure.edges.bundle import Manifest
from perdure.edges.restoring import Waiting, restore
from perdure.edges.session.lines import iso
from perdure.looking.target import existing

SHOWN = 50  # lines for a person


def run_backup(out: Path, *, workspaces: bool, force: bool, state: Path | None, as_json: bool) -> int:
    """Exit 0, or 1 where evidence was damaged already: it is in the backup as it is."""
    folder = existing(state)
    refuse_taken(out, force=force)
    if folder.path in (out.resolve(), *out.resolve().parents):
        fail(f"{out}: lies in the state folder itself: put it elsewhere")
    if not out.resolve().parent.is_dir():  # made by itself, it would hide that a disk is not mounted
        fail(f"{out}: there is no such folder: make it, or mount it, first")
    done = back_up(folder, out, now_ms(), workspaces=workspaces)
    for problem in done.problems:
        warn(f"perdure: {problem}")
    if as_json:
        emit(_dict(out, done.manifest) | {"state": folder.root, "problems": list(done.problems)})
    else:
        packed = size(out.stat().st_size)
        say(f"{folder.root}: {_told(done.manifest)} → {out}, {packed}, read back and verified")
    return 1 if done.problems else 0


def run_restore(file: Path, *, state: Path, answer: bool, as_json: bool) -> int:
    """Exit 0, or 1 where a session could not be settled: it is there as it was."""
    target = Path(os.path.abspath(state))
    done = restore(file, target, now_ms(), answer=answer)
    for problem in done.problems:
        warn(f"perdure: left as it is: {problem}")
    if as_json:
        more = {"interrupted": list(done.interrupted), "problems": list(done.problems), "epoch": done.epoch}
        waiting = [_letter(each) for each in done.waiting]
        emit(_dict(file, done.manifest) | {"state": os.fspath(target), "waiting": waiting} | more)
        return 1 if done.problems else 0
    say(f"{target}: {_told(done.manifest)}, every byte verified")
    if done.waiting:
        say(f"{counted(len(done.waiting), 'message')} waited and will not be answered here (--answer would):")
    for each in done.waiting[:SHOWN]:
        say(f"  {each.key}  of {each.sender}, {iso(each.arrived)[:19]}Z  [{each.mid}]")
    for key in done.interrupted[:SHOWN]:
        say(f"  {key}  a turn had been cut off: it is not taken up")
    if max(len(done.waiting), len(done.interrupted)) > SHOWN:
        say(f"  … only {SHOWN} of each are listed: --json lists all")
    return 1 if done.problems else 0


def _told(manifest: Manifest) -> str:
    return (
        f"{counted(len(manifest.files), 'file')}, {size(manifest.bytes)}, as of {iso(manifest.made_ms)[:19]}Z"
    )


def _dict(file: Path, manifest: Manifest) -> dict[str, Any]:
    sessions = sum(1 for each in manifest.files if each.path.startswith("sessions/"))
    return {
        "file": os.fspath(file),
        "made": iso(manifest.made_ms),
        "files": len(manifest.files),
        "session_files": sessions,
        "bytes": manifest.bytes,
    }


def _letter(each: Waiting) -> dict[str, Any]:
    return {"key": each.key, "sender": each.sender, "mid": each.mid, "arrived": iso(each.arrived)}
