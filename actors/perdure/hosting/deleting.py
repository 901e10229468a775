"""Deletes sessions of a running host: each is stopped by its own actor, and mail is refused meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from perdure.actors.directory import Directory
from perdure.actors.services import Services
from perdure.actors.subagents.mail import Look
from perdure.edges.erasing import Erased, Eraser
from perdure.edges.forgetting import waiting
from perdure.edges.session import links
from perdure.edges.session.lock import holder_of
from perdure.errors import Locked, SessionNotFound

STOPPED_WITHIN = 60.0  # seconds that a turn has to end once it is told to


class Deleting:
    """One for a host. Where the disk fails midway, mail stays refused until the deletion is repeated."""

    def __init__(self, services: Services, directory: Directory, eraser: Eraser) -> None:
        self._services, self._directory, self.eraser = services, directory, eraser
        self.forget_parked: Callable[[str], None] = lambda _key: None
        self.deleted = 0

    async def delete(self, key: str) -> tuple[Erased, ...]:
        """The session and its subagents, theirs first. Raises as `Host.delete`."""
        root = self.eraser.root
        below = await self._services.io.run(lambda: links.spawned(key, links.keyed(root)))
        every = (*reversed(below), key)
        barred: list[str] = []
        try:
            for each in every:
                barred.append(each)
                await self._directory.bar(each, STOPPED_WITHIN)
            self._refuse_locked(every)
        except BaseException:
            for each in barred:
                self._directory.unbar(each)
            raise
        parent = self._services.family.open.get(key)
        found = [await self._erase(each) for each in every]
        if parent is not None:  # it has lost a child that had not ended
            self._services.family.tell(parent, Look())
        await self._services.engines.forget()
        if not found[-1].files:
            raise SessionNotFound(f"{key}: no such session: see `perdure sessions list`")
        left = set(await self._services.io.run(waiting, self._services.state))
        return tuple(replace(each, pending=tuple(n for n in each.pending if n in left)) for each in found)

    async def finish(self) -> None:
        """Complete what a kill interrupted, before any session wakes."""
        for erased in await self._services.io.run(self.eraser.finish):
            self._told(erased)
        await self._services.engines.forget()

    def _refuse_locked(self, every: Sequence[str]) -> None:
        now = self._services.clock.wall_ms()
        for key in every:
            path = self._services.files.path(key)
            if pid := holder_of(path, now):
                raise Locked(f"session file locked: pid={pid} {path}: stop that program, or wait for it")

    async def _erase(self, key: str) -> Erased:
        self.forget_parked(key)
        erased = await self._services.io.run(self.eraser.erase, key)
        self._services.upkeep.erased(key)
        self._services.timers.note(key, None)
        self._services.family.closed(key)
        self._directory.unbar(key, gone=True)
        if erased.files:
            self._told(erased)
        return erased

    def _told(self, erased: Erased) -> None:
        self.deleted += 1
        self._services.log(
            "session.deleted", session=erased.key, files=len(erased.files), evidence=len(erased.evidence),
            kept=erased.kept, bytes=erased.bytes, unread=erased.unread,
        )  # fmt: skip
