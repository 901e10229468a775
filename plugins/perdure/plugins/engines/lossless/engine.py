"""The engine `lossless`: its contract's methods. What they decide and store is in the modules beside it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from perdure.contracts import (
    Assembled,
    Bootstrapped,
    Delegate,
    EngineCompaction,
    EngineContext,
    EngineInfo,
    Maintained,
    Moment,
    PluginRuntime,
    Rollback,
    Spawn,
    SpawnEnd,
    Tool,
    TurnReport,
)
from perdure.plugins.engines.lossless import grants
from perdure.plugins.engines.lossless.assembling import ADDITION
from perdure.plugins.engines.lossless.check import Finding, check
from perdure.plugins.engines.lossless.compactor import Compactor, Done, Order
from perdure.plugins.engines.lossless.offering import NOTHING, Offer, offered
from perdure.plugins.engines.lossless.pieces import Raw
from perdure.plugins.engines.lossless.sessions import Sessions
from perdure.plugins.engines.lossless.settings import configured
from perdure.plugins.engines.lossless.tools import tools_of
from perdure.records import Item, Items

DEFAULT_BUDGET = 24_000  # tokens, where neither call nor model tells one
SQUEEZED = 0.8  # of the budget: what an assembly that doesn't fit is brought to, so that the next ones do
DIGESTS = 200  # made by one assembly at most
RELIEF = 0.7  # of the view: what a compaction that somebody waits for aims at, at most
_PAUSE_MS = 300_000  # after a summary that could not be had, none is asked for at a turn's end


class Lossless:
    """One for a host. Everything it knows is in its database; sessions in use have their view in memory."""

    info = EngineInfo("lossless", "Lossless context engine", owns_compaction=True)

    def __init__(self, lent: PluginRuntime) -> None:
        self.settings = configured(dict(lent.settings))
        self.lent = lent
        self.sessions = Sessions(lent, self.settings)
        self._busy: set[str] = set()
        self._quiet_until = 0

    # --- entries ----------------------------------------------------------------------------------

    async def bootstrap(self, context: EngineContext) -> Bootstrapped:
        """Take in what the session's file has and the store has not."""
        imported = await self.sessions.catch_up(context)
        return Bootstrapped(imported, await self.sessions.cursor(context))

    async def ingest(self, context: EngineContext, item: Item) -> bool:
        """Store one entry."""
        return bool(await self.ingest_batch(context, (item,)))

    async def ingest_batch(self, context: EngineContext, items: Items) -> int:
        """Store entries and the cursor, in one transaction; known ones change nothing."""
        return await self.sessions.ingest(context, items)

    # --- requests ---------------------------------------------------------------------------------

    async def assemble(self, context: EngineContext, messages: Items) -> Assembled:
        """Summaries and what they don't stand for. Where that is over the budget, it is digested at once."""
        found = await self.sessions.gathered(context, messages)
        if 0 < context.token_budget < found.tokens:
            await self._squeeze(context)
            found = await self.sessions.gathered(context, messages)
        if found.tokens > context.token_budget > 0:
            context.runtime.log(
                "over_budget", session=context.session_key, tokens=found.tokens, budget=context.token_budget
            )
        return Assembled(found.items, found.tokens, ADDITION if found.summaries else "")

    async def _squeeze(self, context: EngineContext) -> None:
        budget = context.token_budget
        order = Order(int(budget * SQUEEZED), budget, most=DIGESTS, models=False, insists=True)
        await self._run(context, order)

    # --- compaction -------------------------------------------------------------------------------

    async def compact(
        self, context: EngineContext, delegate: Delegate, *, force: bool, instructions: str
    ) -> EngineCompaction:
        """Passes until the view is under its target. What it can't do it says: `reason`."""
        await self.sessions.catch_up(context)
        budget = self._budget(context)
        target = int(budget * self.settings.target_share)
        if force:
            target = min(target, int(await self.sessions.tokens(context) * RELIEF))
        order = Order(
            target, budget, least=int(force), most=self.settings.rounds, insists=force, focus=instructions
        )
        given = self.sessions.cache.given(context.session_id)
        done = await self._compact(context, order)
        shrank = done.passes > 0 and done.after < done.before
        offer = await self._offer(context, given, budget)
        return EngineCompaction(
            ok=shrank or bool(offer.first_kept) or not done.unreachable,
            compacted=shrank or bool(offer.first_kept),
            reason=done.reason,
            summary=offer.summary or (done.node.text if shrank and done.node else ""),
            first_kept=offer.first_kept,
            tokens_before=done.before + offer.tokens,
            tokens_after=done.after,
        )

    async def _offer(self, context: EngineContext, given: int, budget: int) -> Offer:
        live = await self.sessions.live(context)
        if live is None or not given:
            return NOTHING
        entries = [piece.entry for piece in live.head if isinstance(piece, Raw)]
        messages = await self.sessions.messages(context, live.no, entries)
        return offered(live, messages, given, budget)

    async def after_turn(self, context: EngineContext, report: TurnReport) -> None:
        """Over the soft line: one leaf, while nobody waits."""
        runtime, budget = context.runtime, self._budget(context)
        line = int(budget * self.settings.soft_share)
        idle = context.session_id not in self._busy and runtime.wall_ms() >= self._quiet_until
        if not self.settings.background or not idle or await self.sessions.tokens(context) <= line:
            return
        order = Order(line, budget, least=1, most=1, routine=True)
        done = await self._compact(context, order)
        if done.unreachable or done.slowest_ms > self.settings.slow_seconds * 1000:
            self._quiet_until = runtime.wall_ms() + _PAUSE_MS

    async def _compact(self, context: EngineContext, order: Order) -> Done:
        """One that nothing else of the session need be begun beside."""
        self._busy.add(context.session_id)
        try:
            return await self._run(context, order)
        finally:
            self._busy.discard(context.session_id)

    async def _run(self, context: EngineContext, order: Order) -> Done:
        """Two at once harm nothing: a pass whose pieces the other has covered meanwhile is void."""
        store = await self.sessions.store()
        try:
            return await Compactor(store, self.settings, context, order).run()
        finally:
            self.sessions.drop(context.session_id)

    def _budget(self, context: EngineContext) -> int:
        if context.token_budget > 0:
            return context.token_budget
        return context.model.window * 3 // 4 if context.model else DEFAULT_BUDGET

    async def maintain(self, context: EngineContext, moment: Moment) -> Maintained:
        """Forget grants that have run out."""
        store = await self.sessions.store()
        gone = await context.runtime.run_blocking(partial(grants.purge, store, context.runtime.wall_ms()))
        return Maintained(bool(gone))

    # --- subagents --------------------------------------------------------------------------------

    async def prepare_subagent_spawn(self, context: EngineContext, spawn: Spawn) -> Rollback | None:
        """The child may read this conversation by the tools, for a while and up to a size."""
        runtime, settings = context.runtime, self.settings
        store = await self.sessions.store()
        ttl = min(spawn.ttl_ms or settings.grant_seconds * 1000, settings.grant_seconds * 1000)
        grant = grants.Grant(
            spawn.parent_id or context.session_id, settings.grant_tokens, settings.grant_depth
        )
        expires = runtime.wall_ms() + ttl
        if not await runtime.run_blocking(partial(grants.give, store, spawn.child_key, grant, expires)):
            return None

        async def rollback() -> None:
            await runtime.run_blocking(partial(grants.revoke, store, spawn.child_key))

        return rollback

    async def on_subagent_ended(self, context: EngineContext, child_key: str, end: SpawnEnd) -> None:
        """The grant is over; with a deleted session goes what is stored of it."""
        store = await self.sessions.store()
        await context.runtime.run_blocking(partial(grants.revoke, store, child_key))
        if end == "deleted":
            await self.sessions.forget_key(child_key)

    # --- tools, checks, end -----------------------------------------------------------------------

    def tools(self) -> tuple[Tool, ...]:
        """`history_grep`, `history_describe`, `history_expand`."""
        return tools_of(self.sessions, self.settings)

    async def check(self, session_id: str) -> Sequence[Finding]:
        """What is wrong with what is stored of a session; nothing where all is well."""
        store = await self.sessions.store()
        return await self.lent.run_blocking(partial(check, store, session_id))

    async def rebuild(self, context: EngineContext) -> int:
        """Make what is stored of a session anew, of its file and the summaries' journal; entries taken in."""
        return await self.sessions.rebuild(context)

    async def forget(self, session_id: str) -> bool:
        """Delete everything of a session; whether there was anything."""
        return await self.sessions.forget(session_id)

    async def forget_session(self, key: str, session_id: str) -> None:
        """The session was deleted for good."""
        await self.sessions.forget(session_id)

    async def dispose(self) -> None:
        """Close the database."""
        await self.sessions.close()
