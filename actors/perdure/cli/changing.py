"""What every command does that changes a session: take the state folder and the file, or say who has them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.context.compaction.size import view_tokens
from perdure.context.environment import Environment
from perdure.context.tokens.estimator import estimator_of
from perdure.edges.config import load
from perdure.edges.log import Log, open_log
from perdure.edges.models import catalog
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.facts import Opened
from perdure.edges.session.files import Held, SessionFiles
from perdure.edges.session.load import load as load_file
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.errors import ConfigError, UsageError
from perdure.looking.resolving import resolve
from perdure.looking.target import Target, existing, find


@dataclass(frozen=True, slots=True)
class Desk:
    """A session in our hands, and what goes with it."""

    target: Target
    held: Held
    files: SessionFiles
    settings: Settings
    folder: StateFolder
    log: Log

    @property
    def key(self) -> str:
        assert self.target.key is not None
        return self.target.key

    def environment(self, model: str | None = None) -> Environment:
        """What the next request would be made under: the session's own model, where it can be had."""
        opened = self.held.opened
        model = model or _recorded(opened)
        return resolve(self.target, opened, self.settings, self.folder, model=model)[0]

    def figures(self, env: Environment) -> dict[str, int]:
        """The session as it stands now."""
        return figures(self.held.opened, env)


def _recorded(opened: Opened) -> str | None:
    chosen = opened.settings
    if not (chosen.provider and chosen.model):
        return None
    ref = f"{chosen.provider}/{chosen.model}"
    try:
        catalog.resolve(ref)
    except ConfigError:
        return None
    return ref


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


def session(key: str, state: Path | None) -> Target:
    """The session of a key. Raises `UsageError` for a bare file: those are looked at, never changed."""
    found = find(key, state)
    if found.key is None:
        raise UsageError(f"{key}: a file; commands that change a session take its key, and --state")
    return found


@contextmanager
def owned(key: str, state: Path | None) -> Iterator[Desk]:
    """Own the folder and the session's file while the block runs. Raises `Locked` with the holder.

    The folder is given back as it was found: after a host that was killed the next one still has to take
    its files over.
    """
    target, folder = session(key, state), existing(state)
    settings = load(state=folder.root)
    placement = LocalPlacement(folder.path, wall_ms=now_ms(), force=settings.host.force_network_fs)
    grant = placement.grant(0)
    assert grant is not None
    clean = grant.clean
    try:
        files = SessionFiles(
            folder.path, grant, node=placement.node, boot=placement.boot, outgrow=placement.outgrow
        )
        log = open_log(folder.log, level=settings.log.level, wall_ms=now_ms)
        try:
            held = files.open(key, now_ms())
            try:
                yield Desk(target, held, files, settings, folder, log)
            finally:
                held.close(handover=True)
        finally:
            log.close()
    finally:
        placement.close(clean=clean)


def figures(opened: Opened, env: Environment) -> dict[str, int]:
    """`tokens` of the view (as proofs count them), entries and bytes of the file."""
    estimator = estimator_of(opened.learned, env.model.ref)
    return {
        "tokens": view_tokens(opened.items, env.limits, estimator),
        "entries": load_file(opened.path).count,
        "bytes": opened.size,
    }


def report(key: str, *, done: bool, reason: str, **more: Any) -> dict[str, Any]:
    """The JSON contract of `compact`, `undo` and `truncate`."""
    return {"key": key, "done": done, "reason": reason} | more
