"""What plugins have yet to forget: one small file for each deleted session, beside the plugin's own folder.

A deletion may come from a command, with no plugin loaded: the file stays until its plugin has done it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from perdure.edges import disk

PLUGINS = "plugins"  # the folder of plugins' stores in the state folder
DUE = ".forget"


def note_gone(state: Path, key: str, ids: Iterable[str]) -> None:
    """Sessions of these header ids are deleted for good: every plugin that has a store is to be told."""
    for store in _listed(state / PLUGINS):
        if not store.is_dir() or store.name.endswith(DUE):
            continue
        due = store.with_name(store.name + DUE)
        due.mkdir(mode=0o700, exist_ok=True)
        for id in ids:
            path = due / quote(id, safe="")
            if not path.exists():
                disk.make(path, key.encode("utf-8", "surrogatepass"))


def waiting(state: Path) -> tuple[str, ...]:
    """The plugins that have something yet to forget."""
    return tuple(each.name.removesuffix(DUE) for each in _listed(state / PLUGINS) if each.name.endswith(DUE))


def due(state: Path, plugin: str) -> list[tuple[str, str]]:
    """`(key, session id)` of what a plugin has yet to forget."""
    files = _listed(state / PLUGINS / (plugin + DUE))
    return [(each.read_bytes().decode("utf-8", "surrogatepass"), unquote(each.name)) for each in files]


def forgotten(state: Path, plugin: str, id: str) -> None:
    """A plugin has done it."""
    folder = state / PLUGINS / (plugin + DUE)
    disk.unlink(folder / quote(id, safe=""), missing_ok=True)
    if not _listed(folder):
        folder.rmdir()


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
