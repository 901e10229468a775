"""What every command does that changes a session: take the state folder and the file, or say who has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.cli.owning import Shop, now_ms, owning
from perdure.context.compaction.size import view_tokens
from perdure.context.environment import Environment
from perdure.context.tokens.estimator import estimator_of
from perdure.edges.log import Log
from perdure.edges.models import catalog
from perdure.edges.session.facts import Opened
from perdure.edges.session.files import Held, SessionFiles
from perdure.edges.session.load import load as load_file
from perdure.errors import ConfigError, UsageError
from perdure.looking.resolving import resolve
from perdure.looking.target import Target, find


@dataclass(frozen=True, slots=True)
class Desk:
    """A session in our hands, and what goes with it."""

    target: Target
    held: Held
    shop: Shop

    @property
    def files(self) -> SessionFiles:
        return self.shop.files

    @property
    def log(self) -> Log:
        return self.shop.log

    @property
    def key(self) -> str:
        assert self.target.key is not None
        return self.target.key

    def environment(self, model: str | None = None, window: int | None = None) -> Environment:
        """What the next request would be made under: the session's own model, where it can be had."""
        opened = self.held.opened
        model = model or _recorded(opened)
        return resolve(self.target, opened, self.shop.settings, self.shop.folder, model=model, window=window)[
            0
        ]

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


def session(key: str, state: Path | None) -> Target:
    """The session of a key. Raises `UsageError` for a bare file: those are looked at, never changed."""
    found = find(key, state)
    if found.key is None:
        raise UsageError(f"{key}: a file; commands that change a session take its key, and --state")
    return found


@contextmanager
def owned(key: str, state: Path | None) -> Iterator[Desk]:
    """Own the folder and the session's file while the block runs. Raises `Locked` with the holder."""
    target = session(key, state)
    with owning(state) as shop:
        held = shop.files.open(key, now_ms())
        try:
            yield Desk(target, held, shop)
        finally:
            held.close(handover=True)
            shop.changed.add(key)


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
