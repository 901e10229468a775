"""Keeps a resting session's cached prefix alive while that is cheaper than writing it again.

A refresh is the last request once more with room for one token: it reads the prefix, which renews it. It is
sent only where it has the very bytes of that request, and never stands in the transcript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.actors.assembling import assemble
from perdure.actors.messages import KeepAlive, Kept, Snapshot
from perdure.actors.model_call import answer_of
from perdure.actors.pictures import Pictures
from perdure.actors.services import Services
from perdure.actors.view import unseen
from perdure.context import pipeline
from perdure.context.cache.keepalive import Advice, advise, period, usual_pause
from perdure.context.cache.prefix import Prefix
from perdure.context.pipeline import Scratch
from perdure.contracts import Request
from perdure.errors import PerdureError
from perdure.kernel.deadlines import Timer
from perdure.kernel.outcome import Returned, describe
from perdure.records import Assistant, Usage

if TYPE_CHECKING:
    from perdure.actors.session import Session


class Keeping:
    """The refreshes of one session: a timer while it rests, counts of what was sent and paid."""

    def __init__(self, session: Session, kept: tuple[int, int] = (0, 0)) -> None:
        self.session = session
        self.sent, self._refreshed = kept  # in this rest, and when it was last
        self.due_at: int | None = None  # wall ms
        self.total, self.cost = 0, 0.0
        self.under_way = False
        self._timer: Timer | None = None

    @property
    def advice(self) -> Advice | None:
        """What the session's rhythm and the prices say; None where nothing is watched."""
        session, watch = self.session, self.session.turns.watch
        if watch is None:
            return None
        env = session.environment
        expected = usual_pause(tuple(session.transcript.items[-LOOKED_AT:]))
        most = session.services.keep_alive or RECOMMENDED
        return advise(watch.left, env.model, env.retention, expected=expected, most=most)

    @property
    def kept_alive(self) -> tuple[int, int]:
        """What a waking must know: the refreshes of this rest, and when the last was sent."""
        return (self.sent, self._refreshed) if self.sent else (0, 0)

    def woken(self) -> None:
        """The cache grew old meanwhile: is there still one to keep?"""
        turns = self.session.turns
        if turns.answered < self._refreshed:
            turns.answered = self._refreshed
        else:
            self.sent = 0
        if not turns.cold:
            self._arm(turns.cache_age or 0.0)

    def rested(self) -> None:
        """The agent rests: from now on the cache grows old."""
        self.sent = 0
        self._arm()

    def stop(self) -> None:
        """A turn starts, or the session leaves."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.due_at = None

    def due(self) -> None:
        """The cache's life is nearly over."""
        session, advice = self.session, self.advice
        if session.state != "idle" or self.under_way or advice is None or not advice.keep:
            return
        view, kernel, post = session.snapshot(), session.services.kernel, session.ref.post
        self.under_way = True

        def ended(_job: object, outcome: object) -> None:
            found = outcome.value if isinstance(outcome, Returned) else describe(outcome)
            post(found if isinstance(found, Kept) else Kept(None, 0, str(found)))

        fingerprint = session.turns.watch.sent if session.turns.watch is not None else ""
        kernel.start(
            f"{session.key}#keep", lambda: refresh(session.services, view, fingerprint), on_end=ended
        )

    def kept(self, mail: Kept) -> None:
        """A refresh has ended; another follows where the prefix was read and more are worth their price."""
        if not self.under_way:
            return  # for the session before `/new`
        self.under_way = False
        session, log, watch = self.session, self.session.services.log, self.session.turns.watch
        if mail.usage is None or watch is None:
            log("cache.not_kept", session=session.key, why=mail.why)
            return
        self.sent += 1
        self.total += 1
        self.cost += mail.usage.cost_usd
        log(
            "cache.kept", session=session.key, read=mail.usage.cache_read, written=mail.usage.cache_write,
            cost_usd=mail.usage.cost_usd, refreshes=self.sent,
        )  # fmt: skip
        if mail.usage.cache_read:
            watch.used = session.turns.answered = self._refreshed = mail.asked
            self._arm()
            session.alarms.told()

    def _arm(self, age: float = 0.0) -> None:
        session, clock = self.session, self.session.services.clock
        self.stop()
        if not session.services.keep_alive or session.state != "idle":
            return
        advice = self.advice
        if advice is not None and advice.keep and self.sent < advice.refreshes:
            wait, post = max(0.0, period(session.environment.retention) - age), session.ref.post
            self.due_at = clock.wall_ms() + int(wait * 1000)
            self._timer = clock.call_after(wait, lambda: post(KeepAlive()))


LOOKED_AT = 400  # of the newest items, for the session's rhythm
RECOMMENDED = 11  # refreshes up to which keeping five minutes' cache pays at the usual prices


async def refresh(services: Services, view: Snapshot, fingerprint: str) -> Kept:
    """Send the last request again, with room for one token."""
    items = view.items
    while items and isinstance(items[-1].message, Assistant):
        items = items[:-1]
    env = replace(view.environment, output_cap=1)
    if env.thinking != "off" and env.model.thinking == "enabled":
        return Kept(None, 0, "a thinking budget leaves no room for an answer of one token")
    scratch, shown, pictures = Scratch(), unseen(items), Pictures(services.blobs)
    items = await pictures.fill(items) if env.model.images else items
    stage = pipeline.history(items, env, view.decisions, unseen=shown, scratch=scratch)
    prepared = pipeline.request(
        stage,
        await pictures.whole(await assemble(services, view, stage.items), stage.items),
        env,
        decided=view.decisions,
        unseen=shown,
        hooks=(*services.hooks, *pipeline.HOOKS),
        estimator=view.estimator,
        scratch=scratch,
    )
    prefix = Prefix()
    prefix.follow(scratch.memo, prepared.body)
    if prefix.fingerprint != fingerprint:
        return Kept(None, 0, "the last request can't be made again byte for byte")
    asked = services.clock.wall_ms()
    try:
        request = Request(prepared.body, env.model, prepared.tokens, f"{view.key}#keep")
        answer = await answer_of(services, request, output=1)
    except PerdureError as error:
        return Kept(None, 0, str(error))
    return Kept(answer.message.usage or Usage(), asked)
