"""A host that runs keeps its state folder as `[retention]` says, off the loop, once in a while."""

from __future__ import annotations

from perdure.actors.directory import Directory
from perdure.actors.services import Services
from perdure.edges import retention
from perdure.edges.blobs import LocalBlobs
from perdure.edges.erasing import Eraser
from perdure.edges.retention import Doomed, Plan, Removed
from perdure.edges.session.discarding import discarder
from perdure.edges.settings_hosting import RetentionSettings
from perdure.edges.state import StateFolder
from perdure.errors import PerdureError
from perdure.hosting.deleting import STOPPED_WITHIN

FIRST = 300.0  # seconds after the start: others have more to do then
BATCH = 50  # sessions barred at once, so that an archive never holds many of them up


class Retaining:
    """A supervised service. `removed`: how many things went since the start, by kind; `unmet`: what can't."""

    def __init__(
        self,
        services: Services,
        directory: Directory,
        eraser: Eraser,
        blobs: LocalBlobs,
        folder: StateFolder,
        wanted: RetentionSettings,
    ) -> None:
        self._services, self._directory, self._eraser = services, directory, eraser
        self._blobs, self._folder, self._wanted = blobs, folder, wanted
        self.removed: dict[str, int] = {}
        self.unmet: tuple[str, ...] = ()

    async def run(self) -> None:
        """Look again and again, until the host stops."""
        clock, wait = self._services.clock, FIRST
        while True:
            await clock.sleep(wait)
            wait = self._wanted.every_hours * 3600.0
            try:
                await self.apply()
            except PerdureError as error:
                self._services.log.error("retention.failed", error=str(error))

    async def apply(self) -> Plan:
        """Make the plan and carry it out, a batch after the other. Raises `StorageFailed`."""
        plan = await self._services.io.run(self._plan)
        self.unmet = plan.unmet
        for text in plan.unmet:
            self._services.log.warning("retention.unmet", rule=text)
        for at in range(0, len(plan.doomed), BATCH):
            await self._batch(plan.doomed[at : at + BATCH])
        return plan

    def _plan(self) -> Plan:
        now = self._services.clock.wall_ms()
        referred = self._eraser.referred if self._wanted.evidence_mb else frozenset
        found = retention.survey(self._folder, now, self._busy(), referred)
        return retention.plan(found, self._wanted, now)

    def _busy(self) -> dict[str, str]:
        """Awake here, or with work or a timer that waits."""
        found = dict.fromkeys(list(self._directory.awake), "awake")
        index = self._services.upkeep.index
        for row in index.rows() if index is not None else ():
            if row.pending or row.open_turn:
                found.setdefault(row.key, "messages wait in it")
            elif row.next_timer is not None:
                found.setdefault(row.key, "a timer is set")
        return found

    async def _batch(self, doomed: tuple[Doomed, ...]) -> None:
        keys = {each.name for each in doomed if each.kind == "session"} | self._of_segments(doomed)
        barred = []
        try:
            for key in sorted(keys):
                if key not in self._directory.awake:  # woken since the plan was made: it stays
                    barred.append(key)
                    await self._directory.bar(key, STOPPED_WITHIN)
            free = tuple(each for each in doomed if self._owner(each) in (None, *barred))
            done = await self._services.io.run(self._carry_out, free)
        finally:
            for key in barred:
                self._directory.unbar(key, gone=not self._services.files.exists(key))
        self._told(done)

    def _carry_out(self, doomed: tuple[Doomed, ...]) -> Removed:
        now = self._services.clock.wall_ms()
        discard = discarder(self._services.files, now)
        return retention.carry_out(self._folder, doomed, self._eraser, self._blobs, now, discard)

    def _owner(self, each: Doomed) -> str | None:
        if each.kind == "session":
            return each.name
        if each.kind != "segment":
            return None
        home = (self._folder.path / each.name).parent
        return self._services.files.key(home.with_name(home.name.removesuffix(".segments")))

    def _of_segments(self, doomed: tuple[Doomed, ...]) -> set[str]:
        return {key for each in doomed if each.kind == "segment" and (key := self._owner(each)) is not None}

    def _told(self, done: Removed) -> None:
        log = self._services.log
        for each in done.done:
            self.removed[each.kind] = self.removed.get(each.kind, 0) + 1
            if each.kind == "session":
                self._services.upkeep.erased(each.name)
            log("retention.removed", kind=each.kind, name=each.name, bytes=each.bytes, why=each.why)
        for each, why in done.failed:
            log.warning("retention.not_removed", kind=each.kind, name=each.name, error=why)
