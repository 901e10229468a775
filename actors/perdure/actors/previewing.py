"""What a compaction would do to a session, without touching its file."""

from __future__ import annotations

from perdure.actors.compaction import Builtin
from perdure.actors.messages import Compact, Snapshot
from perdure.actors.services import Services
from perdure.actors.view import unseen
from perdure.context.compaction.plan import Nothing, Plan
from perdure.context.compaction.proof import Proof, Refusal
from perdure.context.prompt.knowledge import query_of
from perdure.context.tokens.estimator import estimator_of
from perdure.edges.session.facts import Opened
from perdure.edges.session.tail import open_session
from perdure.errors import SessionNotFound, UsageError
from perdure.records import Record


class Previewed(Record):
    """What a compaction would do: the summary and its proof, or only the plan and `why` there is none.

    `calls`: how many model calls the preview has cost.
    """

    plan: Plan | Nothing
    calls: int = 0
    summary: str = ""
    proof: Proof | None = None
    identifiers: tuple[str, ...] = ()
    why: str = ""


async def preview(services: Services, key: str, focus: str) -> Previewed:
    """All of a compaction but its commit: with a deterministic model the real one is the same.

    Raises `SessionNotFound`, `UnreadableFile`; `UsageError` where an engine compacts by itself.
    """
    if not services.files.exists(key):
        raise SessionNotFound(f"{key}: no such session: see `perdure sessions list`")
    opened = await services.io.run(lambda: open_session(services.files.path(key)))
    view = _snapshot(services, key, opened)
    engine = services.engines.of(view.environment.engine).info
    if engine.owns_compaction:
        raise UsageError(f"{key}: the engine {engine.id} compacts by itself and shows no preview")
    mail = Compact(0, view, "manual", focus)
    builtin = Builtin(services, mail)
    chosen = builtin.plan()
    result = await builtin.run()
    done = builtin.done
    if done is None:
        return Previewed(chosen, builtin.calls, why=result.reason or "the model gave no summary")
    limits = mail.snapshot.environment.limits
    proof = done.prove_again((), limits=limits, estimator=mail.snapshot.estimator)
    if isinstance(proof, Refusal):
        return Previewed(chosen, builtin.calls, why=f"{proof.reason}: {proof.detail}")
    return Previewed(chosen, builtin.calls, done.summary, proof, tuple(done.found.carried))


def _snapshot(services: Services, key: str, opened: Opened) -> Snapshot:
    """The view of the session as it stands in its file, as if it had just woken."""
    chosen = opened.settings
    ref = f"{chosen.provider}/{chosen.model}" if chosen.provider and chosen.model else None
    info = services.resolver.model_for(key, ref)
    env = services.resolver.environment(
        key, info, chosen.thinking, query=query_of(opened.items), engine=chosen.engine
    )
    return Snapshot(
        key=key,
        session_id=opened.session_id,
        file=opened.path,
        generation=0,
        leaf=opened.leaf or "",
        items=opened.items,
        decisions={d.key: d for d in opened.decisions},
        environment=env,
        unseen=unseen(opened.items),
        estimator=estimator_of(opened.learned, info.ref),
    )
