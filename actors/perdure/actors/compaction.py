"""Worker: turns the older part of a snapshot into a proven summary. Never asks the session back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from perdure.actors.calling import PluginFailed
from perdure.actors.coordinator import Reason
from perdure.actors.engines.actor import EngineActor
from perdure.actors.engines.delivering import caught_up
from perdure.actors.engines.lent import context_of
from perdure.actors.gates import Slot
from perdure.actors.messages import Compact, Compacted, CompactionFailed, Snapshot
from perdure.actors.model_call import answer_of
from perdure.actors.services import Services
from perdure.actors.urgency import band
from perdure.context.compaction.adopt import adopted
from perdure.context.compaction.fold import Answered, Ask, Done, Failed, Fold, Reply
from perdure.context.compaction.plan import Nothing, Plan, plan, planned_at
from perdure.context.compaction.proof import Refusal
from perdure.context.policy import policy_for
from perdure.context.wire import render
from perdure.contracts import EngineCompaction, EngineContext, Request
from perdure.errors import ModelError
from perdure.records import Item, ModelInfo, Text, User

_KINDS: Mapping[str, Literal["unreachable", "aborted"]] = {
    "deferred": "unreachable",
    "failed": "unreachable",
    "aborted": "aborted",
}


async def compact(services: Services, key: str, mail: Compact) -> Compacted | CompactionFailed:
    """Let the session's engine compact; what it delegates to the runtime is done by `Builtin`."""
    with services.tracing.span("perdure.compaction", key, perdure_reason=mail.reason) as span:
        ended = await _compact(services, key, mail)
        span.set(perdure_done=isinstance(ended, Compacted))
        return ended


async def _compact(services: Services, key: str, mail: Compact) -> Compacted | CompactionFailed:
    view, builtin = mail.snapshot, Builtin(services, mail)
    engine = services.engines.of(view.environment.engine)
    if engine.passes_through or engine.resting(key):
        result = await builtin.run()
    else:
        try:
            result = await _by_engine(services, engine, builtin)
        except PluginFailed as error:
            if services.engines.strict:
                return CompactionFailed(mail.run, "engine", str(error))
            builtin = Builtin(services, mail)
            result = await builtin.run()
    if not result.compacted:
        declined = engine.info.owns_compaction and result.ok and not builtin.tried
        kind = "declined" if declined else builtin.kind
        return CompactionFailed(mail.run, kind, result.reason or "the engine did not compact")
    return Compacted(mail.run, view.generation, builtin.done)


async def _by_engine(services: Services, engine: EngineActor, builtin: Builtin) -> EngineCompaction:
    """What the engine did, by itself or by the builtin. Raises `PluginFailed`."""
    mail = builtin.mail
    if not engine.info.passive:
        await caught_up(services, mail.snapshot)
    context = context_of(services, mail.snapshot)
    result: EngineCompaction = await engine.call(
        context,
        "compact",
        builtin.run,
        force=forced(mail.reason),
        instructions=mail.instructions,
        seconds=services.timing.summary + services.timing.engine,
        returns=EngineCompaction,
    )
    if result.compacted and builtin.done is None and result.summary and result.first_kept:
        refused = builtin.adopt(result)
        if refused and not await _is_newer(context, mail.snapshot, result.first_kept):
            error = PluginFailed(engine.id, "compact", refused)
            engine.failed(mail.snapshot.key, error)
            raise error
    if mail.reason == "size" and not result.compacted and builtin.done is None:
        return await builtin.run()  # whatever an engine thinks: the view in memory and in the file is bounded
    return result


async def _is_newer(context: EngineContext, view: Snapshot, entry: str) -> bool:
    """Whether an entry came behind the snapshot: the turn went on, and the engine was told more meanwhile.
    What it covered is covered in its own view, and ours is left as it is.
    """
    try:
        return any(item.entry == entry for item in await context.runtime.history(view.leaf))
    except LookupError:
        return False


class Builtin:
    """The runtime's own compaction, as the engine contract's delegate. It ends by itself in time: where a
    turn waits for it, a summariser that takes too long is one that can't be reached.
    """

    def __init__(self, services: Services, mail: Compact) -> None:
        self.services, self.mail = services, mail
        self.until = services.clock.now() + services.timing.summary
        self.done: Done | None = None
        self.kind: Literal["hopeless", "nothing", "unreachable", "aborted"] = "hopeless"
        self.calls = 0
        self.tried = False
        self.estimator = mail.snapshot.estimator

    def plan(self) -> Plan | Nothing:
        """What would be covered, and what kept."""
        return planned(self.mail.snapshot, self.mail.reason)

    async def run(self) -> EngineCompaction:
        """Plan, pump the fold with the model's answers, end with a summary or a reason."""
        view, io = self.mail.snapshot, self.services.io
        env, chosen, self.tried = view.environment, self.plan(), True
        if isinstance(chosen, Nothing):
            self.kind = "nothing"
            return EngineCompaction(True, False, chosen.reason)
        info = self.services.resolver.summariser(env.model)
        fold = await io.run(
            partial(
                Fold,
                chosen,
                limits=env.limits,
                estimator=self.estimator,
                rules=self.services.resolver.instructions(self.mail.instructions),
                trigger=self.mail.reason,
                window=min(info.window, env.limits.window),
                max_output=info.max_output,
                heartbeat=env.heartbeat,
            )
        )
        while isinstance(ask := fold.step, Ask):
            self.calls += 1
            await io.run(fold.answer, await self._summary(info, ask))
        return self._ended(fold)

    def adopt(self, told: EngineCompaction) -> str:
        """Take an engine's own summary, to be proven and committed like ours; else why it can't be."""
        view = self.mail.snapshot
        at = next((i for i, item in enumerate(view.items) if item.entry == told.first_kept), 0)
        chosen = planned_at(view.items, at, running=view.running, pinned=view.pinned, unseen=view.unseen)
        if isinstance(chosen, Nothing):
            return f"its first kept entry {told.first_kept} can't be where the view is cut"
        found = adopted(chosen, told.summary, limits=view.environment.limits, estimator=self.estimator)
        if isinstance(found, Refusal):
            return f"its summary is refused: {found.reason} {found.detail}".strip()
        self.done = found
        return ""

    async def _summary(self, info: ModelInfo, ask: Ask) -> Reply:
        mail = self.mail
        due = self.services.clock.now() + mail.slack
        slot = self.services.gates.slot(mail.snapshot.key, band=band(mail.reason), due=due)
        return await summarise(self.services, mail.snapshot.key, info, ask, self.until, slot)

    def _ended(self, fold: Fold) -> EngineCompaction:
        step = fold.step
        if isinstance(step, Done):
            self.done = step
            return EngineCompaction(True, True, summary=step.summary, first_kept=step.plan.first_kept)
        assert not isinstance(step, Ask)
        self.kind = _KINDS.get(step.why, "hopeless")
        return EngineCompaction(False, False, step.reason)


def forced(reason: Reason) -> bool:
    """Somebody waits for a smaller view, so that one within the kept tail is cut, too."""
    return reason in ("overflow", "manual", "model_switch")


def planned(view: Snapshot, reason: Reason) -> Plan | Nothing:
    """What a compaction of this view would cover, the same for memory's flush and for the summary."""
    return plan(
        view.items,
        limits=view.environment.limits,
        estimator=view.estimator,
        unseen=view.unseen,
        running=reason == "overflow" or view.running,
        force=forced(reason),
        pinned=view.pinned,
    )


async def summarise(
    services: Services, key: str, info: ModelInfo, ask: Ask, until: float, slot: Slot
) -> Reply:
    """One call of the summarising model, with a few tries at what may pass, at most until `until`."""
    request = Request(body(info, ask), info, ask.tokens, f"{key}#summary")
    clock = services.clock
    for attempt in range(SUMMARY_TRIES):
        try:
            return await _call(services, request, until, slot, ask.max_tokens)
        except ModelError as error:
            services.log.warning("summary.failed", session=key, kind=error.kind, attempt=attempt + 1)
            wait = max(error.retry_after or 0.0, SUMMARY_PAUSE * 2**attempt)
            if not error.retryable or attempt + 1 == SUMMARY_TRIES or clock.now() + wait >= until:
                return Failed(error.kind)
            await clock.sleep(wait)
        except Exception as error:  # a model's bug: for the compaction it is one that can't be reached
            services.log.warning("summary.broke", session=key, error=repr(error))
            return Failed("unknown")
    raise AssertionError("unreachable")


SUMMARY_TRIES, SUMMARY_PAUSE = 3, 0.5


async def _call(services: Services, request: Request, until: float, slot: Slot, output: int) -> Reply:
    if services.clock.now() >= until:
        return Failed("timeout")
    message = (await answer_of(services, request, until, slot=slot, output=output)).message
    return Answered("".join(b.text for b in message.content if isinstance(b, Text)), message.stop)


def body(info: ModelInfo, ask: Ask) -> bytes:
    """The summariser's request, in its model's API: no tools, no cache marks, one user message."""
    return render(
        (Item("", User((Text(ask.prompt),))),),
        system=ask.system,
        tools=(),
        model=info,
        policy=policy_for(info),
        max_tokens=ask.max_tokens,
        retention="none",
    )
