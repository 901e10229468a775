"""What comes when, for all sessions of a host: one alarm, however many sleep.

The timers themselves stand in the sessions' files, and only a session acts on its own (`alarms`). Here is
known when to look: of sessions that are awake in memory, of sleeping ones in the index, so that they cost
nothing. What is due is told to its sessions (`ring`), which wake for it, at a stated rate: after a long stop
ten thousand may be due at once. Whoever was rung answers with what comes next, or is rung again later.

Timers mean the wall's time, the alarm runs by the kernel's: it looks again every minute where the two may
part (suspend, a clock that is set).
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from perdure.actors.beats import Beats
from perdure.actors.prompting import agent_of
from perdure.edges.index import SessionIndex
from perdure.edges.log import Log
from perdure.edges.schedule import DAY
from perdure.edges.session.files import Listed
from perdure.edges.session.survey import next_timer
from perdure.edges.session.tail import open_session
from perdure.edges.settings import Settings
from perdure.edges.settings_timers import ScheduleSettings
from perdure.errors import PerdureError
from perdure.events import Reply
from perdure.kernel.deadlines import Timer as Alarm
from perdure.kernel.errors import Closed
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel

LOOK = 60.0  # seconds after which the wall clock is looked at again
PARTED = 2_000  # ms between the two clocks that are no drift
AGAIN = 60_000  # ms until a session that could not be rung is rung again; doubles up to …
AT_LAST = 3_600_000
SOON = 1_000  # ms until one is rung again that could not act yet

Ring = Callable[[str, int], Awaitable[int | None]]
Beat = Callable[[str, int], Awaitable[object]]


class Timers:
    """One for a host. `on_result(key, source, reply)` hears what a heartbeat had to say."""

    def __init__(self, kernel: Kernel, io: IoPolicy, index: SessionIndex | None, log: Log) -> None:
        self._kernel, self._clock, self._io, self._index, self._log = kernel, kernel.clock, io, index, log
        self.settings = Settings()
        self.beats = Beats(())
        self.on_result: Callable[[str, str, Reply], None] = lambda _key, _source, _reply: None
        self._ring: Ring
        self._beat: Beat
        self._known: dict[str, int] = {}  # what comes next for those awake, or not in the index yet
        self._heap: list[tuple[int, str]] = []
        self._failed: dict[str, int] = {}  # how often in a row one could not be rung
        self._stored: int | None = None  # the earliest in the index
        self._alarm: Alarm | None = None
        self._at = 0  # wall ms that the alarm is for
        self._parting = self._clock.wall_ms() - self._clock.now() * 1000
        self._reset = False  # the clock was set back far: what was written of later times means nothing
        self._busy = False
        self._since = self._clock.wall_ms()  # from when on this host could act: its start, or the last jump
        self.fired = self.skipped = self.jumps = self.beaten = 0
        self.beats_cost = 0.0  # USD that heartbeats took, silent and failed ones included

    # --- life -------------------------------------------------------------------------------------

    def begin(
        self, settings: Settings, ring: Ring, beat: Beat, files: Callable[[], Iterable[Listed]]
    ) -> None:
        """The sessions can be rung. Without an index their files are looked at, from the tail."""
        self._ring, self._beat = ring, beat
        if self._clock.virtual:  # inline, as all I/O is then: no task more in the order of things
            self._scan(files)
        elif self._index is None:
            self._kernel.start("timers", self._io.run, self._scan, files)
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """Another configuration: heartbeats follow it at once, sessions with schedules are told to look."""
        now, before = self._clock.wall_ms(), self.settings
        self.settings = settings
        self.beats = Beats.of(settings, now)
        for key in sorted({target(s) for s in (*before.schedules, *settings.schedules)}):
            self.note(key, now)
        self._arm()

    def stored(self, earliest: int | None, keys: Iterable[str] = (), awake: Iterable[str] = ()) -> None:
        """The index holds these now; those that sleep need no place here."""
        for key in set(keys) - set(awake):
            self._known.pop(key, None)
        if earliest is not None and (self._stored is None or earliest < self._stored):
            self._stored = earliest
        self._arm()

    def _scan(self, files: Callable[[], Iterable[Listed]]) -> None:
        for listed in files():
            try:
                due = next_timer(open_session(listed.path, search=False)) if listed.key else None
            except (PerdureError, OSError):
                continue  # whoever opens it is told
            if listed.key is not None and due is not None and listed.key not in self._known:
                self.note(listed.key, due)

    # --- told by the sessions -----------------------------------------------------------------------

    def note(self, key: str, due: int | None) -> None:
        """What comes next for a session (wall ms)."""
        if due is None:
            self._known.pop(key, None)
        elif self._known.get(key) != due:
            self._known[key] = due
            heapq.heappush(self._heap, (due, key))
            if len(self._heap) > 64 + 4 * len(self._known):
                self._heap = [(at, name) for name, at in self._known.items()]
                heapq.heapify(self._heap)
            self._arm()

    def went(self, key: str, *, well: bool, now: int) -> None:
        """How a heartbeat went: one that fails comes less often."""
        self.beats.went(key, well=well, now=now)
        self._arm()

    # --- the alarm ----------------------------------------------------------------------------------

    @property
    def next(self) -> int | None:
        """When the earliest comes (wall ms)."""
        while self._heap and self._known.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        found = [self._heap[0][0]] if self._heap else []
        found += [at for at in (self._stored, self.beats.next) if at is not None]
        return min(found, default=None)

    def _arm(self) -> None:
        due = self.next
        if due is None or self._busy or (self._alarm is not None and self._alarm.fn and self._at <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._at = due
        wait = max(0.0, (due - self._clock.wall_ms()) / 1000)
        self._alarm = self._clock.call_after(wait if self._clock.steady else min(wait, LOOK), self._look)

    def _look(self) -> None:
        self._alarm = None
        self._compare()
        due = self.next
        if self._reset or (due is not None and due <= self._clock.wall_ms()):
            self._busy = True
            try:
                self._kernel.start("timers", self._release, on_end=lambda *_: self._released())
            except Closed:
                return  # the host stops
        self._arm()

    def _released(self) -> None:
        self._busy = False
        self._arm()

    def _compare(self) -> None:
        """Whether the wall's clock and the machine's have parted: suspended, or set."""
        parting = self._clock.wall_ms() - self._clock.now() * 1000
        moved, self._parting = parting - self._parting, parting
        if abs(moved) > PARTED:
            self.jumps += 1
            self._log.warning("timer.clock_jumped", seconds=round(moved / 1000, 3))
            now = self._since = self._clock.wall_ms()
            self.beats = Beats.of(self.settings, now, self.beats)
            if moved < -DAY:
                self._reset = self._index is not None
                for key in list(self._known):
                    self.note(key, now)

    # --- what is due --------------------------------------------------------------------------------

    async def _release(self) -> None:
        """Ring what is due, so many a second, until nothing is."""
        rate, rung = self.settings.timers.per_second, 0
        await self._start_over()
        while True:
            now = self._clock.wall_ms()
            beats = self.beats.due(now, rate)
            keys = self._due(now, rate - len(beats))
            rows = await self._rows(now, rate - len(beats) - len(keys))
            work = [partial(self._one, key) for key in (*keys, *rows)]
            work += [partial(self._one_beat, key, at) for at, key in beats]
            if not work:
                break
            await self._kernel.gather(f"timers.{rung}", *work)
            rung += len(work)
            await self._settle(rows)
            if len(work) < rate:
                break
            await self._clock.sleep(1.0)
        await self._look_up()

    async def _start_over(self) -> None:
        reset, self._reset = self._reset, False
        if reset and self._index is not None:
            now = self._clock.wall_ms()
            with suppress(PerdureError):
                await self._io.run(self._index.all_due, now)
                self._stored = now

    def _due(self, until: int, most: int) -> list[str]:
        found: list[str] = []
        while self._heap and self._heap[0][0] <= until and len(found) < most:
            at, key = heapq.heappop(self._heap)
            if self._known.get(key) == at:
                del self._known[key]  # it will say what comes next
                found.append(key)
        return found

    async def _rows(self, until: int, most: int) -> list[str]:
        if self._index is None or most <= 0 or self._stored is None or self._stored > until:
            return []
        try:
            rows = await self._io.run(self._index.due, until, most)
        except PerdureError as error:
            self._index_failed(error)
            return []
        return [row.key for row in rows]

    async def _one(self, key: str) -> None:
        try:
            due = await self._ring(key, self._clock.wall_ms() if key in self._failed else self._since)
        except Exception as error:  # it can't be opened, is parked, or does not answer: nobody else suffers
            fails = self._failed[key] = self._failed.get(key, 0) + 1
            wait = min(AT_LAST, AGAIN * 2 ** min(fails - 1, 10))
            self._log.warning("timer.not_rung", session=key, error=str(error), again_s=wait // 1000)
            self.note(key, self._clock.wall_ms() + wait)
        else:
            self._failed.pop(key, None)
            now, told = self._clock.wall_ms(), self._known.get(key)  # by itself, since it was rung
            due = min((each for each in (due, told) if each is not None), default=None)
            self.note(key, due if due is None or due > now else now + SOON)

    async def _one_beat(self, key: str, due: int) -> None:
        try:
            await self._beat(key, due)
        except Exception as error:
            self._log.warning("heartbeat.not_rung", session=key, error=str(error))

    async def _settle(self, rows: list[str]) -> None:
        """Those of the index are awake: their rows say what comes next, until they sleep again."""
        if self._index is None or not rows:
            return
        try:
            await self._io.run(self._index.set_timers, [(key, self._known.get(key)) for key in rows])
        except PerdureError as error:
            self._index_failed(error)

    async def _look_up(self) -> None:
        if self._index is None or self._stored is None or self._stored > self._clock.wall_ms():
            return
        try:
            self._stored = await self._io.run(self._index.next_timer)
        except PerdureError as error:
            self._index_failed(error)

    def _index_failed(self, error: PerdureError) -> None:
        """Whoever sleeps is known to it alone: it is asked again."""
        self._log.warning("index.failed", error=str(error))
        self._stored = self._clock.wall_ms() + AGAIN

    # --- told to people -----------------------------------------------------------------------------

    def line(self) -> dict[str, object]:
        """As `status` shows it."""
        soon = heapq.nsmallest(5, ((at, key) for key, at in self._known.items()))
        return {
            "next": self.next,
            "soon": [{"key": key, "due": at} for at, key in soon],
            "heartbeats": [{"key": key, "due": at} for at, key in self.beats.soon(5)],
            "fired": self.fired,
            "skipped": self.skipped,
            "heartbeats_done": self.beaten,
            "heartbeats_cost_usd": round(self.beats_cost, 6),
            "clock_jumps": self.jumps,
        }


def target(schedule: ScheduleSettings) -> str:
    """The session that a configured schedule is a timer of."""
    return isolated(schedule.session, schedule.name) if schedule.isolated else schedule.session


def isolated(key: str, name: str) -> str:
    """A session of its own for what is scheduled."""
    return f"agent:{agent_of(key)}:cron:{name}"
