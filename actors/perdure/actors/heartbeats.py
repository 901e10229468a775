"""Heartbeats of one session: now and then the agent looks whether something needs attention.

It looks aside, with little context and perhaps a cheap model. When it has nothing to say, nothing of it
stays: no line in the file, no entry in the view. When it has, question and answer enter the conversation.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.actors.aside import Aside
from perdure.actors.messages import Beat, Probed, Rested, Snapshot
from perdure.actors.services import Services
from perdure.context.safety.heartbeat import says_nothing, spoken
from perdure.context.tokens.estimator import Estimator
from perdure.edges.session.facts import Origin
from perdure.edges.settings_timers import Heartbeat
from perdure.errors import PerdureError
from perdure.events import Reply, TurnFinished
from perdure.kernel.errors import Closed, DeadlineExceeded
from perdure.kernel.jobs import Job
from perdure.kernel.mailbox import Ref
from perdure.kernel.outcome import Returned, describe
from perdure.records import Assistant, Item, Provenance, Text, User

if TYPE_CHECKING:
    from perdure.actors.session import Session

SENDER = "perdure.heartbeat"
EMPTY = "HEARTBEAT.md asks for nothing"
PROMPT = """\
This is a heartbeat: nobody wrote to you. If HEARTBEAT.md is shown above, do what it asks; don't take up old \
tasks of the conversation. If nothing needs attention, reply HEARTBEAT_OK and nothing else."""
_SAYS = re.compile(r"^(?!\s*(?:#|<!--.*-->\s*$|[-*+]\s*(?:\[[ xX]?\]\s*)?$)).*\S", re.MULTILINE)


class Heart:
    """At most one heartbeat is under way; one that finds a turn running is skipped."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._job: Job | None = None
        self._words: list[Probed] = []  # what was said while a turn ran

    @property
    def under_way(self) -> bool:
        """A heartbeat runs, or waits to be written."""
        return self._job is not None or bool(self._words)

    def beat(self, mail: Beat) -> None:
        """Begin one, or say why not."""
        session, services = self.session, self.session.services
        rule = services.timers.beats.rules.get(session.key)
        why = "no longer configured" if rule is None else ""
        why = why or ("" if session.state == "idle" else "a turn is running")
        why = why or ("the one before is not over" if self.under_way else "")
        mail.done.set(not why)
        if why or rule is None:
            self._skipped(why)
            return
        view, post, due = session.snapshot(), session.ref.post, mail.due

        def ended(_job: object, outcome: object) -> None:
            found = outcome.value if isinstance(outcome, Returned) else None
            post(found if isinstance(found, Probed) else Probed(due, why=describe(outcome)))

        try:
            work = partial(probe, services, session.ref, view, rule.told, due)
            self._job = services.kernel.start(f"{session.key}#heartbeat", work, on_end=ended)
        except Closed:
            return

    def probed(self, mail: Probed) -> None:
        """It is over: back off where it failed, keep what was said."""
        session, timers = self.session, self.session.services.timers
        self._job = None
        log, now = session.services.log, session.services.clock.wall_ms()
        quiet = mail.why == EMPTY
        timers.beaten += 1
        timers.beats_cost += mail.usage.cost_usd
        timers.went(session.key, well=quiet or not mail.why, now=now)
        if quiet:
            self._skipped(EMPTY)
        elif mail.why:
            log.warning("heartbeat.failed", session=session.key, error=mail.why)
        elif mail.said is None:
            cost = mail.usage.cost_usd
            log("heartbeat.silent", session=session.key, steps=mail.steps, cost_usd=round(cost, 6))
        else:
            self._words.append(mail)
            self.speak()

    def speak(self) -> None:
        """Between turns, what was said enters the conversation."""
        session = self.session
        while self._words and session.state == "idle":
            try:
                self._write(self._words.pop(0))
            except PerdureError as error:
                session.not_written(error)
                session.services.log.error("heartbeat.not_written", session=session.key, error=str(error))

    def stop(self) -> None:
        """The session leaves."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
        self._words.clear()

    def _write(self, mail: Probed) -> None:
        session, services = self.session, self.session.services
        assert mail.said is not None
        t, now, text = session.transcript, services.clock.wall_ms(), _text(mail.said)
        rule = services.timers.beats.rules.get(session.key)
        prompt = (rule.told.prompt if rule is not None else "") or PROMPT
        asked = User((Text(prompt),), now, Provenance("internal_system", source_session=SENDER))
        origin = Origin(SENDER, str(mail.due), now)
        answer = replace(mail.said, content=(Text(text),), usage=None, timestamp=now)
        items = (t.append(asked, origin=origin), t.append(answer))
        entries = tuple(item.entry for item in items)
        reply = Reply(session.key, text, "stop", mail.steps, mail.usage, entries)
        services.log("heartbeat.spoke", session=session.key, entry=entries[-1])
        services.events.publish(TurnFinished(session.key, reply))
        services.timers.on_result(session.key, "heartbeat", reply)

    def _skipped(self, why: str) -> None:
        self.session.services.timers.skipped += 1
        self.session.services.log("heartbeat.skipped", session=self.session.key, why=why)


async def probe(services: Services, session: Ref, view: Snapshot, told: Heartbeat, due: int) -> Probed:
    """Ask the model aside. `Probed.said` is None where it has nothing to say."""
    info = services.resolver.model_info(told.model) if told.model else view.environment.model
    info = services.fallbacks.choose(view.key, info)
    text, light = await services.io.run(services.resolver.heartbeat, view.key, info)
    if text is not None and not _SAYS.search(text):
        return Probed(due, why=EMPTY)
    now = services.clock.wall_ms()
    asked = Item("asked", User((Text(told.prompt or PROMPT),), now))
    full = told.context == "full" and not told.model
    history = view.items if full else view.items[max(0, len(view.items) - told.history) :]
    aside = replace(
        view,
        key=f"{view.key}#heartbeat",
        items=(*history, asked),
        environment=view.environment if full else light,
        estimator=view.estimator if full else Estimator(),
        cache_age=None,
    )
    turn = Aside(aside, session, services)
    try:
        with services.clock.fail_after(told.timeout_seconds):
            end = await turn.run()
    except DeadlineExceeded:
        why = f"it took more than {told.timeout_seconds:g} s"
        return Probed(due, None, turn.tally.usage, turn.tally.steps, why)
    if not isinstance(end, Rested) or end.stop not in ("stop", "length"):
        why = end.error or end.stop if isinstance(end, Rested) else end.why
        return Probed(due, None, turn.tally.usage, turn.tally.steps, why)
    silent = says_nothing(end.text, told.ack_chars)
    said = None if silent or turn.said is None else replace(turn.said, content=(Text(spoken(end.text)),))
    return Probed(due, said, turn.tally.usage, turn.tally.steps)


def _text(message: Assistant) -> str:
    return "".join(block.text for block in message.content if isinstance(block, Text))
