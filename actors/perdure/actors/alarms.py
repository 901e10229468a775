"""The session's side of its timers: it alone acts on them, and writes down what is to come.

A `message` timer that is due becomes a letter to the session itself, whose id is the timer and the instant:
however often it is rung, before or after a crash, there is one letter for each instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.actors.heartbeats import Heart
from perdure.actors.messages import Beat, Deliver, Probed, Rested, Ring, Timely, Timetable
from perdure.actors.timers import target
from perdure.contracts import Letter
from perdure.edges import schedule as times
from perdure.edges.schedule import Timer, came, due_of, next_due, phase
from perdure.edges.session.facts import TIMERS
from perdure.edges.settings_timers import ScheduleSettings
from perdure.errors import PerdureError, UsageError
from perdure.records import Assistant, Text

if TYPE_CHECKING:
    from perdure.actors.session import Session

CONFIGURED = "config:"
RESUME = "resume"  # the one timer that takes up a turn
GRACE = 300_000  # ms that the host may have been away without an instant counting as missed
MOST_TRIES = 8  # waits in a row that a provider may ask for


class Alarms:
    """What of a session has to do with time, its heartbeats included."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.heart = Heart(session)

    @property
    def under_way(self) -> bool:
        """Something runs beside the conversation."""
        return self.heart.under_way

    @property
    def carried(self) -> tuple[Timer, ...]:
        """What `/new` takes along: timers are the session's, not its file's."""
        return tuple(t for t in self.session.transcript.timers.values() if t.kind == "message")

    @property
    def due(self) -> int | None:
        """When the next comes (wall ms)."""
        now, session = self.session.services.clock.wall_ms(), self.session
        may = [
            t for t in session.transcript.timers.values() if t.kind == "message" or session.state == "idle"
        ]
        found = [session.keeping.due_at, session.subagents.due, *(due_of(timer, now) for timer in may)]
        return min((due for due in found if due is not None), default=None)

    def handle(self, mail: Timely) -> None:
        """Never waits."""
        match mail:
            case Ring():
                self._ring(mail)
            case Timetable():
                self._change(mail)
            case Beat():
                self.heart.beat(mail)
            case Probed():
                self.heart.probed(mail)

    # --- what the session does --------------------------------------------------------------------

    def woken(self) -> None:
        """The file is open: what the configuration says now holds, and the host knows what comes next."""
        if self.session.state == "idle":
            self.session.keeping.woken()
        try:
            self._configure()
        except PerdureError as error:
            self._not_set(error)
        self.told()

    def told(self) -> None:
        """Tell the host what comes next."""
        try:
            self.session.services.timers.note(self.session.key, self.due)
        except PerdureError as error:  # a zone that this machine does not know
            self._not_set(error)

    def leave(self) -> int | None:
        """The session leaves: nothing runs on; what comes next."""
        self.heart.stop()
        try:
            return self.due
        except (PerdureError, AttributeError):
            return None

    def turn_over(self, rested: Rested) -> None:
        """A turn has ended: a provider that told it to wait is asked again then, by a timer."""
        self.heart.speak()
        t, clock = self.session.transcript, self.session.services.clock
        before = t.timers.get(RESUME)
        try:
            if rested.later and (before is None or before.tries < MOST_TRIES):
                at = clock.wall_ms() + int(rested.later * 1000)
                tries = 1 if before is None else before.tries + 1
                t.set_timer(Timer(RESUME, times.Schedule(at=at), at, "resume", origin="host", tries=tries))
                self.session.notice("retry", f"{rested.error}; taken up again in {rested.later:.0f} s")
            elif before is not None:
                t.set_timer(None, RESUME)
        except PerdureError as error:
            self._not_set(error)

    def _not_set(self, error: PerdureError) -> None:
        self.session.not_written(error)
        self.session.services.log.error("timer.not_set", session=self.session.key, error=str(error))

    # --- due --------------------------------------------------------------------------------------

    def _ring(self, mail: Ring) -> None:
        session, now = self.session, self.session.services.clock.wall_ms()
        try:
            self._configure()
            found = [(due_of(timer, now), timer) for timer in session.transcript.timers.values()]
            for due, timer in sorted(((d, t) for d, t in found if d is not None), key=lambda each: each[0]):
                if due <= now:
                    self._act(timer, due, now, mail.since)
            session.subagents.ring(now)
            mail.done.set(self.due)
        except PerdureError as error:
            session.not_written(error)
            mail.done.fail(error)

    def _act(self, timer: Timer, due: int, now: int, since: int) -> None:
        session, timers = self.session, self.session.services.timers
        if timer.kind == "resume":
            self._resume(timer)
            return
        t = session.transcript
        missed = since - due > GRACE
        if missed and timer.catch_up == "skip":
            timers.skipped += 1
            session.services.log("timer.skipped", session=session.key, timer=timer.id, due=due, why="missed")
        else:
            letter = Letter(
                session.key, TIMERS, f"{timer.id}@{due}", (Text(timer.text),), now, "internal_system"
            )
            ack, repeated = session.services.clock.waiter("a timer's letter"), t.seen(letter) is not None
            session.letters.deliver(Deliver(letter, ack))
            if ack.done:  # else it waits for the journal: the line is in the file all the same
                ack.result()
            if not repeated:
                timers.fired += 1
                late = (now - due) // 1000
                session.services.log("timer.fired", session=session.key, timer=timer.id, due=due, late_s=late)
        t.timers[timer.id] = passed = came(timer, due, now)
        if due_of(passed, now) is None:
            del t.timers[timer.id]

    def _resume(self, timer: Timer) -> None:
        """Take the turn up again, if nobody has since."""
        session = self.session
        if session.state != "idle":
            return
        last = session.transcript.items[-1].message if session.transcript.items else None
        if isinstance(last, Assistant) and last.stop == "error":
            session.services.timers.fired += 1
            session.services.log("timer.fired", session=session.key, timer=timer.id, tries=timer.tries)
            session.turns.start()
        else:
            session.transcript.set_timer(None, timer.id)

    # --- set and taken away -----------------------------------------------------------------------

    def _change(self, mail: Timetable) -> None:
        session, t = self.session, self.session.transcript
        try:
            if mail.timer is not None:
                most = session.services.timers.settings.timers.per_session
                if mail.timer.id not in t.timers and len(t.timers) >= most:
                    raise UsageError(f"{session.key}: {most} timers are set already: take one away first")
                self._choose(mail.model)
                t.set_timer(mail.timer)
            if mail.gone:
                if mail.gone not in t.timers:
                    raise UsageError(f"{session.key}: no timer {mail.gone!r} (`perdure schedules list`)")
                t.set_timer(None, mail.gone)
            mail.done.set(tuple(t.timers.values()))
        except PerdureError as error:
            session.not_written(error)
            mail.done.fail(error)
        self.told()

    def _choose(self, ref: str) -> None:
        session = self.session
        info = session.services.resolver.model_info(ref) if ref else session.environment.model
        if info.ref != session.environment.model.ref:
            session.transcript.choose_model(info.provider, info.id)
            session.surroundings.adopt(session.transcript.settings, "model")

    def _configure(self) -> None:
        """Schedules of the configuration: set what is new or another, take away what is no longer there."""
        session, t = self.session, self.session.transcript
        settings = session.services.timers.settings
        told = {
            f"{CONFIGURED}{s.name}": s for s in settings.schedules if s.enabled and target(s) == session.key
        }
        gone = [id for id, timer in t.timers.items() if timer.origin == "config" and id not in told]
        if gone:
            t.set_timer(None, *gone)
        for id, schedule in told.items():
            wanted = configured(id, schedule, session.services.clock.wall_ms())
            had = t.timers.get(id)
            if wanted is None or (had is not None and _same(had, wanted)):
                continue
            if had is not None and had.schedule == wanted.schedule:  # only what it says is another
                wanted = replace(wanted, due=had.due, fired=had.fired, acted=had.acted)
            self._choose(schedule.model)
            t.set_timer(wanted)


def configured(id: str, told: ScheduleSettings, now: int) -> Timer | None:
    """The timer of a configured schedule; `None` where it never comes again. Raises `ConfigError`."""
    schedule = times.schedule(every=told.every, cron=told.cron, at=told.at, timezone=told.timezone, anchor=0)
    if schedule.every:  # equal ones of many sessions are spread
        schedule = replace(schedule, anchor=phase(f"{told.session} {told.name}", schedule.every))
    due = next_due(schedule, now)
    if due is None:
        return None
    return Timer(id, schedule, due, text=told.message, origin="config", catch_up=told.catch_up)


def _same(had: Timer, wanted: Timer) -> bool:
    parts = (had.schedule, had.text, had.catch_up)
    return parts == (wanted.schedule, wanted.text, wanted.catch_up)
