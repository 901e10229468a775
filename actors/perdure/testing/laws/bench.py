"""Where one law is checked: engines of one factory, their stores, sessions, time, a model, a trap."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import anyio

from perdure.contracts import ContextEngine
from perdure.plugins.registry import takes_one
from perdure.testing.laws.driver import Session, Situation, timed
from perdure.testing.laws.histories import HISTORIES, START
from perdure.testing.laws.law import Broken
from perdure.testing.laws.runtime import LawRuntime, Trap

AnyFactory: TypeAlias = Callable[..., Any]
WIDE: tuple[tuple[str, Situation], ...] = tuple((name, "room") for name in HISTORIES)
NARROW: tuple[tuple[str, Situation], ...] = (
    ("text", "little"), ("text", "covered"), ("parallel calls", "covered"), ("CJK", "covered"),
)  # fmt: skip
MAIN = "agent:main:cli:dm:test"


class Bench:
    """One for each law that is checked. `root` is empty; the engines' stores lie in it."""

    def __init__(
        self, factory: AnyFactory, root: Path, *, settings: Mapping[str, Any], deadline: float
    ) -> None:
        self.factory, self.root, self.deadline = factory, root, deadline
        self.settings = dict(settings)
        self.now, self.virtual, self.no_model = START, False, False
        self.answer: Callable[[str, str], str] = lambda prompt, system: prompt[:200]
        self.trap = Trap()
        self.misplaced: list[tuple[str, ...]] = []
        self._open: list[ContextEngine] = []

    def folder(self, store: str) -> Path:
        """The folder of a store, made on first use."""
        path = self.root / store
        path.mkdir(parents=True, exist_ok=True)
        return path

    def engine(self, store: str = "store") -> ContextEngine:
        """A new engine on that store, as at the start of a host."""
        lent = LawRuntime(self, self.folder(store))
        made = self.factory(lent) if takes_one(self.factory) else self.factory()
        self._open.append(made)
        return made  # type: ignore[no-any-return]

    def session(
        self,
        engine: ContextEngine,
        id: str = "session-1",
        *,
        key: str = MAIN,
        store: str = "store",
        history: str = "",
    ) -> Session:
        return Session(self, engine, key, id, store, history)

    async def histories(self, engine: ContextEngine | None = None) -> list[Session]:
        """A session of every history, and some in other situations; delivered up to the running turn."""
        made, sessions = self.engine() if engine is None else engine, []
        for n, (name, situation) in enumerate((*WIDE, *NARROW)):
            told = name if situation == "room" else f"{name}, {situation}"
            session = self.session(made, f"h{n}", key=f"agent:a{n}:cli:dm:test", history=told)
            session.situation = situation
            await session.live(HISTORIES[name])
            await session.settle()
            sessions.append(session)
        return sessions

    def crashed(self, store: str = "store") -> str:
        """The store of a process that was killed now: a copy of what it left."""
        name = f"{store}-crashed"
        shutil.copytree(self.folder(store), self.root / name)
        return name

    def again(self, session: Session, engine: ContextEngine, store: str = "store") -> Session:
        """The same session in a host that started later."""
        later = Session(self, engine, session.key, session.id, store, session.name)
        later.log, later.cursor, later._ids = list(session.log), session.cursor, session._ids
        later.situation = session.situation
        return later

    async def dispose(self, engine: ContextEngine) -> None:
        """As a host closes it: within the deadline."""
        self._open = [each for each in self._open if each is not engine]
        if callable(getattr(engine, "dispose", None)):
            await timed(self, engine, "dispose", "")

    async def close(self) -> None:
        """Dispose what a law left open; what goes wrong here is the matter of other laws."""
        self.trap.set(0)
        with anyio.CancelScope(shield=True):
            for engine in list(self._open):
                try:
                    await self.dispose(engine)
                except Broken:
                    pass
