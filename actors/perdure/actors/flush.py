"""Worker: lets memory note what a compaction is about to take out of the view. Append-only, and bounded.

Either the program's hook says what to note, or a silent turn does (`noting`). What fails here is recorded
and holds no compaction up. How far it came is kept under the session's id, so that neither sleep nor a
crash has the same told twice, and the flush ahead of a compaction is made once for each.
"""

from __future__ import annotations

from functools import partial

from perdure.actors.compaction import planned
from perdure.actors.engines.lent import context_of
from perdure.actors.memories.marks import Flushing
from perdure.actors.memories.slot import APART
from perdure.actors.messages import Flush, Flushed, Rested, Snapshot
from perdure.actors.noting import NoteTool, silent_turn
from perdure.actors.services import Services
from perdure.actors.urgency import band
from perdure.context.compaction.plan import Plan
from perdure.context.compaction.stages import chunk_by_tokens
from perdure.context.flush import parts as shown_parts
from perdure.context.prompt.bootstrap import session_kind
from perdure.context.safety.strip import strip
from perdure.contracts import MemoryFlush
from perdure.edges import daynote
from perdure.kernel.errors import DeadlineExceeded
from perdure.records import Items, Summary, Usage

PART = 4  # a part that a hook gets takes at most this fraction of the window
MOST = 16 * 1024  # characters of one flush that reach the note: it is a note, not a second transcript


class NotFlushed(Exception):
    """Why nothing, or not all, was shown to memory: in words."""


async def flush(services: Services, key: str, mail: Flush) -> Flushed:
    """Let memory note what is new in the range."""
    view = mail.snapshot
    before = await services.io.run(services.memories.flushed.last, view.session_id)
    flushed = before is not None and before.how == "done" and before.cycle == cycle_of(view)
    if before is not None and flushed and mail.reason is None and not mail.after:
        return Flushed(True, before.upto)  # it was made ahead of this compaction, before a sleep or a crash
    after = seen(mail, before)
    going = new(mail, after)
    if not going:
        return Flushed(True, after)
    run = Run(services, key, mail, going, after)
    if session_kind(key) in APART:
        return run.end("skipped", f"a {session_kind(key)} session notes nothing")
    if services.flush is None and (
        why := await services.io.run(daynote.refusal, services.resolver.workspace(key))
    ):
        return run.end("skipped", why)
    how, why = "failed", "stopped"
    try:
        with services.clock.fail_after(services.timing.flush):
            await run.all()
        how, why = "done", ""
    except DeadlineExceeded:
        why = f"not within {services.timing.flush:g} s"
    except NotFlushed as error:
        why = str(error)
    except Exception as error:  # the hook is somebody else's, and the disk may be full
        why = repr(error)
    finally:  # also of one that is stopped: what it has noted is not told again
        ended = run.end(how, why)
    return ended


def cycle_of(view: Snapshot) -> str:
    """The compaction that the view begins with: until the next one, it is the same cycle."""
    first = view.items[0] if view.items else None
    return first.entry if first is not None and isinstance(first.message, Summary) else ""


def seen(mail: Flush, before: Flushing | None) -> str:
    """The last entry that memory has seen, as the session or the record has it."""
    told = (mail.after, before.upto if before is not None else "")
    items = reversed(mail.snapshot.items)
    return next((item.entry for item in items if item.entry in told), mail.after)


def new(mail: Flush, after: str) -> Items:
    """What would be covered, ahead of a compaction everything, without what memory has seen before."""
    view = mail.snapshot
    chosen = planned(view, mail.reason) if mail.reason is not None else None
    going = chosen.covered if isinstance(chosen, Plan) else () if mail.reason is not None else view.items
    at = next((n + 1 for n, item in enumerate(view.items) if item.entry == after), 0)
    known = {item.entry for item in view.items[:at]}
    return tuple(item for item in going if item.entry not in known and not isinstance(item.message, Summary))


def parts(going: Items, view: Snapshot) -> tuple[Items, ...]:
    """In parts that a hook can show to the model."""
    most = view.environment.limits.window // PART
    return tuple(chunk_by_tokens(strip(going).items, most, view.estimator.item))


class Run:
    """One flush. `upto`: the last entry that memory has seen by now."""

    def __init__(self, services: Services, key: str, mail: Flush, going: Items, after: str) -> None:
        self.services, self.key, self.mail, self.going, self.upto = services, key, mail, going, after
        self.left_out = self.notes = self.characters = self.calls = 0
        self.usage = Usage()

    async def all(self) -> None:
        """Part after part. Raises `NotFlushed`, and what a hook raises."""
        hook = self.services.flush
        await (self._silently() if hook is None else self._told(hook))

    async def _told(self, hook: MemoryFlush) -> None:
        """What the hook says of all parts is one note."""
        view = self.mail.snapshot
        context = context_of(self.services, view, view.environment.limits.window // PART)
        told, room = [], MOST
        for part in parts(self.going, view):
            text = await hook(context, part)
            if not isinstance(text, str):
                raise TypeError(f"a memory flush returns text, not {type(text).__name__}")
            if text := text.strip()[:room]:
                told.append(text)
                room -= len(text)
        if told:
            note, services = "\n\n".join(told), self.services
            root, now, io = services.resolver.workspace(self.key), services.clock.wall_ms(), services.io
            await io.run(partial(daynote.append, root, note, now, sync=io.sync))
            self.notes, self.characters = 1, len(note)
        self.upto = self.going[-1].entry

    async def _silently(self) -> None:
        services, view, mail = self.services, self.mail.snapshot, self.mail
        env = view.environment
        window = min(services.resolver.summariser(env.model).window, env.limits.window)
        found, self.left_out = await services.io.run(
            shown_parts, self.going, window, view.estimator, env.heartbeat
        )
        tool = NoteTool(services, services.resolver.workspace(self.key), view.session_id, MOST)
        for n, part in enumerate(found, 1):
            tool.of(part)
            which = "a part" if len(found) == 1 else f"part {n} of {len(found)}"
            turn = silent_turn(services, view, part, which, tool)
            due = services.clock.now() + mail.slack
            try:
                ended = await turn.run_in(services.gates.slot(self.key, band=band(mail.reason), due=due))
            finally:
                self.calls += turn.tally.steps
                self.usage = self.usage + turn.tally.usage
                self.notes, self.characters = tool.notes, tool.characters
            if tool.broken:
                raise NotFlushed(tool.broken)
            if not isinstance(ended, Rested) or ended.stop not in ("stop", "length"):
                raise NotFlushed(ended.error if isinstance(ended, Rested) else ended.why)
            self.upto = part.last
        if self.left_out:
            raise NotFlushed(f"{self.left_out:,} messages were too many to be shown")
        self.upto = self.going[-1].entry

    def end(self, how: str, why: str) -> Flushed:
        """Record it apart from the conversation, and say how far it came."""
        services, view = self.services, self.mail.snapshot
        mark = Flushing(
            session=view.session_id,
            at=services.clock.wall_ms(),
            cycle=cycle_of(view),
            upto=self.upto,
            how=how,
            why=why,
            reason=self.mail.reason or "soft",
            messages=len(self.going),
            left_out=self.left_out,
            calls=self.calls,
            notes=self.notes,
            characters=self.characters,
            tokens=self.usage.prompt + self.usage.output,
            cost_usd=round(self.usage.cost_usd, 6),
        )
        services.memories.figures.flush_ended(how, self.notes, self.calls, self.usage)
        try:
            services.memories.flushed.put(mark)
        except OSError as error:
            services.log.warning("flush.not_recorded", session=self.key, error=str(error))
        numbers = {"messages": mark.messages, "characters": mark.characters, "calls": mark.calls}
        if how == "done":
            services.log("flush.done", session=self.key, **numbers)
        elif how == "skipped":
            services.log("flush.skipped", session=self.key, why=why)
        else:
            services.log.warning("flush.failed", session=self.key, error=why, **numbers)
        return Flushed(how != "failed", self.upto)
