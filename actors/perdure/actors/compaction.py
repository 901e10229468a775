"""Worker: turns the older part of a snapshot into a proven summary. Never asks the session back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from perdure.actors.messages import Compact, Compacted, CompactionFailed
from perdure.actors.model_call import answer_of
from perdure.actors.services import Services
from perdure.context.compaction.fold import Answered, Ask, Done, Failed, Fold, Reply
from perdure.context.compaction.plan import Nothing, Plan, plan
from perdure.context.policy import policy_for
from perdure.context.wire import render
from perdure.contracts import EngineCompaction, EngineContext, Request
from perdure.errors import ModelError
from perdure.kernel.errors import DeadlineExceeded
from perdure.records import Item, ModelInfo, Text, User

_KINDS: Mapping[str, str] = {"deferred": "unreachable", "failed": "unreachable", "aborted": "aborted"}


async def compact(services: Services, key: str, mail: Compact) -> Compacted | CompactionFailed:
    """Let the session's engine compact; what it delegates to the runtime is done by `Builtin`."""
    view, engine = mail.snapshot, services.resolver.engine(key)
    builtin = Builtin(services, mail)
    context = EngineContext(view.session_id, key, view.file, view.environment.limits.total)
    forced = mail.reason in ("overflow", "manual", "model_switch")
    try:
        with services.clock.fail_after(services.timing.summary):
            result = await engine.compact(context, builtin.run, force=forced, instructions=mail.instructions)
    except DeadlineExceeded:
        waited = services.timing.summary
        return CompactionFailed(view.generation, "unreachable", f"no summary within {waited:.0f} s")
    if not result.compacted:
        return CompactionFailed(view.generation, builtin.kind, result.reason or "the engine did not compact")
    return Compacted(view.generation, builtin.done)


class Builtin:
    """The runtime's own compaction, as the engine contract's delegate."""

    def __init__(self, services: Services, mail: Compact) -> None:
        self.services, self.mail = services, mail
        self.done: Done | None = None
        self.kind = "hopeless"
        self.calls = 0
        view = mail.snapshot
        self.estimator = view.estimator

    def plan(self) -> Plan | Nothing:
        """What would be covered, and what kept."""
        view = self.mail.snapshot
        return plan(
            view.items,
            limits=view.environment.limits,
            estimator=self.estimator,
            unseen=view.unseen,
            running=self.mail.reason == "overflow" or view.running,
            force=self.mail.reason in ("manual", "overflow", "model_switch"),
            pinned=view.pinned,
        )

    async def run(self) -> EngineCompaction:
        """Plan, pump the fold with the model's answers, end with a summary or a reason."""
        view, io = self.mail.snapshot, self.services.io
        env, chosen = view.environment, self.plan()
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
            )
        )
        while isinstance(ask := fold.step, Ask):
            self.calls += 1
            await io.run(fold.answer, await summarise(self.services, view.key, info, ask))
        return self._ended(fold)

    def _ended(self, fold: Fold) -> EngineCompaction:
        step = fold.step
        if isinstance(step, Done):
            self.done = step
            return EngineCompaction(True, True, summary=step.summary, first_kept=step.plan.first_kept)
        assert not isinstance(step, Ask)
        self.kind = _KINDS.get(step.why, "hopeless")
        return EngineCompaction(False, False, step.reason)


async def summarise(services: Services, key: str, info: ModelInfo, ask: Ask) -> Reply:
    """One call of the summarising model, with a few tries at what may pass."""
    request = Request(body(info, ask), info, ask.tokens, f"{key}#summary")
    for attempt in range(SUMMARY_TRIES):
        try:
            return await _call(services, request)
        except ModelError as error:
            services.log.warning("summary.failed", session=key, kind=error.kind, attempt=attempt + 1)
            if not error.retryable or attempt + 1 == SUMMARY_TRIES:
                return Failed(error.kind)
            await services.clock.sleep(max(error.retry_after or 0.0, SUMMARY_PAUSE * 2**attempt))
        except Exception as error:  # a model's bug: for the compaction it is one that can't be reached
            services.log.warning("summary.broke", session=key, error=repr(error))
            return Failed("unknown")
    raise AssertionError("unreachable")


SUMMARY_TRIES, SUMMARY_PAUSE = 3, 0.5


async def _call(services: Services, request: Request) -> Reply:
    message = (await answer_of(services, request)).message
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
