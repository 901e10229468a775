"""The turn actor: one user message until the agent rests. The loop below is the whole of it.

It owns nothing durable. Each step asks the session for an immutable snapshot and hands every entry
back to it, so a turn that dies, is aborted or overflows can be begun again from the transcript.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from perdure.actors.assembling import assemble
from perdure.actors.calling import PluginFailed
from perdure.actors.gates import Slot
from perdure.actors.messages import (
    Append,
    FellBack,
    Mail,
    NextStep,
    Overflowed,
    Rested,
    Snapshot,
    TurnOutcome,
)
from perdure.actors.model_call import call_model, later
from perdure.actors.pictures import Pictures
from perdure.actors.reminding import reminded, unburdened
from perdure.actors.services import Services
from perdure.actors.tally import Tally
from perdure.actors.tool_batch import run_batch
from perdure.context import pipeline
from perdure.context.cache.blame import Made
from perdure.context.cache.watch import Watch, told
from perdure.context.changed import Changed
from perdure.context.ledger import told_decisions
from perdure.context.pipeline import Scratch
from perdure.context.tokens.estimator import Measure, measure
from perdure.context.tokens.floor import owners
from perdure.contracts import Answer, Assembled, Tool
from perdure.edges.models.classify import observed_tokens
from perdure.edges.tracing import Span
from perdure.errors import ContextOverflow, EngineUnavailable, ModelError
from perdure.kernel.mailbox import Ref
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant, Decision, Item, Items, Message, Stop, Text, ToolCall


class Turn:
    """One turn of one session. `number` fences its reports: the session refuses an older one's."""

    def __init__(
        self,
        key: str,
        number: int,
        session: Ref | None,
        services: Services,
        tally: Tally,
        scratch: Scratch,
        watch: Watch | None,
        pictures: Pictures,
    ) -> None:
        self.key, self.number, self.session, self.services = key, number, session, services
        self.tally, self.scratch, self.watch, self.pictures = tally, scratch, watch, pictures

    async def run(self) -> TurnOutcome:
        """Model ↔ tools until the model asks for no tool, fails for good, or the view must shrink."""
        slot, tracing = self.services.gates.slot(self.key), self.services.tracing
        try:
            with tracing.turn(self.key, self.number) as traced:
                outcome = await self._steps(slot)
                stop = outcome.stop if isinstance(outcome, Rested) else type(outcome).__name__.lower()
                traced.set(perdure_stop=stop, perdure_steps=self.tally.steps)
                return outcome
        finally:
            slot.give()

    async def _steps(self, slot: Slot) -> TurnOutcome:
        most = self.services.timing.max_steps
        for _ in range(most):
            with self.services.tracing.span("perdure.step", self.key) as span:
                view, outcome = await self._step(slot, span)
            if outcome is not None:
                return outcome
        return await self._give_up(view, f"stopped after {most} steps")

    async def _step(self, slot: Slot, span: Span) -> tuple[Snapshot, TurnOutcome | None]:
        """One model call and the tools it asks for; no outcome: the turn goes on."""
        view = await self._next_step()
        model = view.environment.model
        span.set(gen__ai_request_model=model.ref)
        try:
            if await slot.take(model.provider):  # meanwhile more may have come
                view = await self._next_step()
            prepared = await self._prepare(view)
        except ContextOverflow as full:
            if unburdened(self.tally):
                return await self._step(slot, span)
            owners = tuple(full.owners.items())
            return view, Overflowed(full.tokens, full.limit, "guard", str(full), owners)
        except ModelError as error:
            return view, await self._failed(view, error)
        except EngineUnavailable as error:
            return view, await self._give_up(view, str(error), "engine")
        try:
            answer = await call_model(self.services, view, prepared, self.tally, slot)
        except ModelError as error:
            if error.kind == "overflow":
                return view, self._refused(view, prepared, error)
            return view, await self._failed(view, error)
        _trace(span, answer.message)
        return view, await self._answered(view, prepared, answer)

    async def _answered(
        self, view: Snapshot, prepared: pipeline.Prepared, answer: Answer
    ) -> TurnOutcome | None:
        sent = self.watch.prefix.fingerprint if self.watch is not None else ""
        item = await self.append(
            answer.message,
            prepared.decisions,
            request=prepared.size,
            fixed_tokens=prepared.fixed_tokens,
            sent=sent,
        )
        self._count(answer.message)
        self._tell(view, prepared, answer.message)
        calls = tuple(b for b in answer.message.content if isinstance(b, ToolCall))
        if not calls or answer.message.stop == "aborted":
            return Rested(_text(answer.message), _rest(answer.message.stop))
        await run_batch(self, view, item.entry, calls, dict(answer.errors))
        return None

    # --- the way to the wire ----------------------------------------------------------------------

    async def _next_step(self) -> Snapshot:
        view = await self._ask(lambda waiter: NextStep(self.number, waiter))
        assert isinstance(view, Snapshot)
        return await reminded(self.services, self.tally, view)

    async def _prepare(self, view: Snapshot) -> pipeline.Prepared:
        env = view.environment
        items = await self.pictures.fill(view.items) if env.model.images else view.items
        stage = pipeline.history(items, env, view.decisions, unseen=view.unseen, scratch=self.scratch)
        assembled = await self.pictures.whole(await self._assemble(view, stage.items), stage.items)
        try:
            prepared = self._request(view, stage, assembled)
        except ContextOverflow as full:
            prepared = self._without_engine(view, stage, assembled, full)
        if self.watch is not None:
            stages = (("stored", view.items), ("history", stage.items), *prepared.stages)
            made = Made(
                stages, prepared.lines, env.system, assembled.addition, prepared.thinking, view.refreshed
            )
            self.watch.begin(self.scratch.memo, prepared.body, made, env)
        return prepared

    def _request(self, view: Snapshot, stage: Changed, assembled: Assembled) -> pipeline.Prepared:
        return pipeline.request(
            stage,
            assembled,
            view.environment,
            decided=view.decisions,
            unseen=view.unseen,
            hooks=(*self.services.hooks, *pipeline.HOOKS),
            estimator=view.estimator,
            cache_age=view.cache_age,
            scratch=self.scratch,
        )

    def _without_engine(
        self, view: Snapshot, stage: Changed, assembled: Assembled, full: ContextOverflow
    ) -> pipeline.Prepared:
        """Where the view fits and what its engine made of it doesn't, the engine is at fault."""
        engines = self.services.engines
        if engines.strict or (assembled.messages is stage.items and not assembled.addition):
            raise full
        prepared = self._request(view, stage, Assembled(stage.items))
        engine = engines.of(view.environment.engine)
        engine.failed(view.key, PluginFailed(engine.id, "assemble", f"too much for the window: {full}"))
        return prepared

    async def _assemble(self, view: Snapshot, items: Items) -> Assembled:
        return await assemble(self.services, view, items)

    def tool(self, view: Snapshot, name: str) -> Tool | None:
        """What this turn may call: the host's tools, and those of the session's engine."""
        services = self.services
        return services.tools.get(name) or services.engines.of(view.environment.engine).tool(name)

    # --- reports to the session -------------------------------------------------------------------

    async def append(
        self,
        message: Message,
        decisions: tuple[Decision, ...] = (),
        *,
        request: Measure | None = None,
        fixed_tokens: int = 0,
        evidence: tuple[str, ...] = (),
        sent: str = "",
    ) -> Item:
        """Hand a message to the session; returns once it is in the file. `request`: what it answers."""
        item = await self._ask(
            lambda waiter: Append(
                self.number, message, waiter, decisions, request, fixed_tokens, evidence, sent
            )
        )
        assert isinstance(item, Item)
        self.tally.entries.append(item.entry)
        return item

    async def _ask(self, make: Callable[[Waiter[Any]], Mail]) -> Any:
        """By the reserved lane: a full mailbox can't hold up what the session itself began."""
        assert self.session is not None  # only what runs beside a session has none
        clock = self.services.clock
        waiter = clock.waiter(f"{self.key}: its session")
        self.session.post(make(waiter))
        return await clock.wait(waiter, self.services.timing.ask)

    def _count(self, message: Assistant) -> None:
        self.tally.steps += 1
        self.tally.partial = ""
        if message.usage is not None:
            self.tally.usage = self.tally.usage + message.usage

    def _refused(self, view: Snapshot, prepared: pipeline.Prepared, error: ModelError) -> Overflowed:
        """What the guard had let pass was too much for the provider."""
        unburdened(self.tally)
        env, total = view.environment, prepared.tokens
        told = owners(
            prepared.items,
            [view.estimator.chars(measure(item.message)) for item in prepared.items],
            fixed_tokens=env.fixed_tokens,
            tool_tokens=env.tool_tokens,
            total=total,
        )
        real = observed_tokens(str(error)) or 0
        size, fixed = prepared.size, prepared.fixed_tokens
        return Overflowed(
            total, env.limits.overflow, "provider", str(error), tuple(told.items()), size, fixed, real
        )

    def _tell(self, view: Snapshot, prepared: pipeline.Prepared, message: Assistant) -> None:
        """To the log: what this request shortened for good, and a cache that broke."""
        log, env = self.services.log, view.environment
        for event, counts in told_decisions(prepared.lines, prepared.decisions):
            log.graded(event, session=self.key, turn=self.number, **counts)
        if self.watch is None:
            return
        broke = self.watch.complete(message.usage, env.model, env.retention, self.tally.asked)
        if broke is not None:
            level = log.info if broke.declared else log.warning
            level("cache.break", session=self.key, turn=self.number, **told(broke))

    async def _failed(self, view: Snapshot, error: ModelError) -> TurnOutcome:
        if self.services.fallbacks.failed(self.key, view.environment.model, error):
            self.tally.errors.append(str(error))
            return FellBack(str(error))
        wait = later(self.services.timing, error)
        return await self._give_up(view, str(error), error.kind, wait)

    async def _give_up(self, view: Snapshot, why: str, kind: str = "steps", later: float = 0.0) -> Rested:
        info, now = view.environment.model, self.services.clock.wall_ms()
        partial = (Text(self.tally.partial),) if self.tally.partial.strip() else ()
        await self.append(
            Assistant(partial, "error", info.provider, info.api, info.id, error=why, timestamp=now)
        )
        self.tally.errors.append(why)
        return Rested(self.tally.partial if partial else "", "error", why, kind=kind, later=later)


def _trace(span: Span, message: Assistant) -> None:
    span.set(perdure_stop=message.stop)
    if message.usage is not None:
        span.set(
            gen__ai_usage_input__tokens=message.usage.prompt,
            gen__ai_usage_output__tokens=message.usage.output,
            perdure_cache__read__tokens=message.usage.cache_read,
        )


def _rest(stop: Stop) -> Literal["stop", "length", "aborted"]:
    return stop if stop in ("length", "aborted") else "stop"


def _text(message: Assistant) -> str:
    return "".join(b.text for b in message.content if isinstance(b, Text))
