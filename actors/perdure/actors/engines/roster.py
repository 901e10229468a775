"""Which engines a host has, and which of them a session is given."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from perdure.actors.engines.actor import EngineActor
from perdure.actors.engines.forgetting import forget, keeps
from perdure.actors.engines.shadow import Shadow
from perdure.actors.services import Services
from perdure.contracts import ContextEngine
from perdure.edges.forgetting import waiting
from perdure.errors import PerdureError, UsageError

LEGACY = "legacy"


class Roster:
    """`make(id)` gives an engine; `slot` is the configured choice, `given` a program's own engine in its
    place. A missing or broken one is loudly replaced by legacy, or refused (`strict`).
    """

    def __init__(
        self,
        make: Callable[[str], ContextEngine],
        slot: str,
        given: ContextEngine | None,
        services: Callable[[], Services],
        *,
        strict: bool,
        log: Callable[..., None],
        replaced: Callable[[str], None],
        memories: Callable[[], Container[str]] = lambda: (),
    ) -> None:
        self._make, self._given, self._services = make, given, services
        self.strict, self._log, self._replaced, self._memories = strict, log, replaced, memories
        self._actors: dict[str, EngineActor] = {}
        self.shadow: Shadow | None = None
        self._begun = False
        self._refused: dict[str, str] = {}  # ids that can't be had, and why: each is told once
        self.slot = given.info.id if given is not None else slot
        self.slot = self.chosen(None)

    def chosen(self, choice: str | None) -> str:
        """The id of the engine that a session with this choice of its own is given (`None`: the slot's).

        Raises `PerdureError` where it can't be had and nothing may stand in for it.
        """
        id = choice or self.slot
        try:
            return self.of(id).id
        except PerdureError as error:
            if self.strict:
                raise
            if id not in self._refused:
                self._refused[id] = str(error)
                self._log("engine.fallback", engine=id, error=str(error))
                if choice is None:
                    self._replaced(f"{error}; legacy is in use instead")
            return self.of(LEGACY).id if choice is None else self.chosen(None)

    def of(self, id: str) -> EngineActor:
        """The engine of that id, made on first use. Raises `PerdureError` where it can't be had."""
        if id not in self._actors:
            if id in self._refused and not self.strict:
                raise UsageError(self._refused[id])
            self._actors[id] = self._made(id)
        return self._actors[id]

    def _made(self, id: str) -> EngineActor:
        own = self._given
        if own is not None and own.info.id == id:
            return EngineActor(id, lambda: own, self._services)
        try:
            made = EngineActor(id, lambda: self._make(id), self._services, passes_through=id == LEGACY)
        except PerdureError:
            raise
        except Exception as error:  # somebody else's factory
            raise PerdureError(f"context engine {id!r} can't be made: {error!r}") from error
        if self._begun:
            services = self._services()
            services.kernel.start(f"{id}.forget", forget, services, made)
        return made

    def left(self, key: str) -> None:
        """A session sleeps or closes: nothing is kept for it."""
        for actor in self._actors.values():
            actor.left(key)

    async def forget(self) -> None:
        """Sessions were deleted, or the host begins: engines forget what they have yet to."""
        self._begun = True
        services = self._services()
        for id in await services.io.run(waiting, services.state):
            try:
                await forget(services, self.of(id))
            except PerdureError as error:
                if id in self._memories():
                    await keeps(services, id)
                else:  # it isn't installed any more
                    services.log.error("engine.not_forgotten", engine=id, error=str(error))

    async def dispose(self) -> None:
        """The host closes."""
        for actor in list(self._actors.values()):
            if not actor.passes_through:
                await actor.dispose()

    def cast(self, id: str, share: float) -> None:
        """Let another engine assemble beside the chosen one. Raises `PerdureError` where it can't be had."""
        self.shadow = Shadow(self.of(id), share)

    def lines(self) -> list[dict[str, Any]]:
        """For `status`: the slot's first."""
        first = [self._actors[self.slot]] if self.slot in self._actors else []
        actors = [*first, *(each for id, each in sorted(self._actors.items()) if id != self.slot)]
        told = [actor.line() | {"slot": actor.id == self.slot} for actor in actors]
        return [*told, *([{"shadow": self.shadow.line()}] if self.shadow is not None else [])]
