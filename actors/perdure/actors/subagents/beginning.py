"""The job that begins a child: record durable, engine asked, file made, task delivered; or all taken back.

It belongs to the parent's session, not to the turn that asked: an abort ends the wait for it, not it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from perdure.actors.messages import Snapshot
from perdure.actors.owning import weight
from perdure.actors.services import Services
from perdure.actors.subagents import engine
from perdure.actors.subagents.mail import Begin
from perdure.actors.subagents.projecting import projected
from perdure.actors.subagents.spawning import Refused, Wish, first_letter
from perdure.contracts import Letter, Receipt
from perdure.edges.session.fork import fork
from perdure.edges.session.kin import ChildGrant
from perdure.edges.session.load import load
from perdure.errors import Busy, PerdureError
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.waiter import Waiter


async def begin(
    services: Services, view: Snapshot, leaf: str, wish: Wish, grant: ChildGrant, recorded: Waiter[None]
) -> ChildGrant:
    """The grant again. Raises `Refused`: there is no child, and what the engine prepared is taken back."""
    await services.clock.wait(recorded, services.timing.ask)
    rollback = await engine.prepare(services, view, grant, wish.task)
    try:
        await services.io.run(partial(_make, services, view, leaf, grant))
        await _deliver(services, view, wish, grant)
    except Exception as error:
        await engine.roll_back(services, view, rollback)
        await _take_back(services, grant)
        raise _refusal(error) from None
    return grant


def _make(services: Services, view: Snapshot, leaf: str, grant: ChildGrant) -> None:
    """The child's file, whole or not at all. Blocking."""
    files, now = services.files, services.clock.wall_ms()
    if grant.mode != "forked":
        cwd = services.resolver.shown_workspace(grant.child)
        files.create(grant.child, cwd, now, view.file, grant=grant).close(handover=True)
        return
    source = load(Path(view.file))
    fork(files, source, leaf, grant.child, files.ids.epoch, now, sync=services.io.sync, grant=grant)


async def _deliver(services: Services, view: Snapshot, wish: Wish, grant: ChildGrant) -> Receipt:
    clock, family = services.clock, services.family
    shown = ""
    if grant.mode == "projected":
        most = wish.context_tokens or family.settings.context_tokens
        shown = projected(view.items, view.key, most, view.estimator)
    letter: Letter = first_letter(grant, wish, family.settings, clock.wall_ms(), shown)
    ack: Waiter[Receipt] = clock.waiter(f"the beginning of {grant.child}")
    with services.memory.admitted(grant.child, weight(letter)):
        if not family.post(grant.child, Begin(letter, wish.model, wish.thinking, ack)):
            raise Refused("storage", "the file of the subagent is gone already")
        return await clock.wait(ack, services.timing.ask)


async def _take_back(services: Services, grant: ChildGrant) -> None:
    """No child, no file: nobody may find half of one."""
    services.family.closed(grant.child)
    try:
        await services.family.delete(grant.child)
    except (PerdureError, OSError) as error:  # it may never have been there
        services.log("subagent.not_taken_back", session=grant.child, error=str(error))


def _refusal(error: Exception) -> Refused:
    if isinstance(error, Refused):
        return error
    if isinstance(error, Busy | DeadlineExceeded):
        return Refused("queue", f"there is no room for it now: {error}")
    return Refused("storage", f"it could not be begun: {error}")
