"""Sessions of the store: taken in from their files, followed over branches, and in memory while in use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock

from perdure.contracts import EngineContext, PluginRuntime
from perdure.errors import Closed, SegmentGone
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.assembling import ADDED, gather, hold, uncovered, walk
from perdure.plugins.engines.lossless.live import Cache, Live
from perdure.plugins.engines.lossless.pieces import Node, Raw
from perdure.plugins.engines.lossless.settings import Settings
from perdure.plugins.engines.lossless.store import Loaded, Store
from perdure.records import Item, Items, Record, Summary, ToolResult

PAGE = 5_000  # entries read at once from a session's history
_EDGE = 64
_TRIES = 4


class Gathered(Record):
    """A request's messages; `summaries`: some of them are. `tokens`: with what is told of them then."""

    items: Items
    tokens: int
    summaries: bool = False


class Sessions:
    """All sessions of one engine. The store is opened on first use, in a thread."""

    def __init__(self, lent: PluginRuntime, settings: Settings) -> None:
        self.lent, self.settings = lent, settings
        self.cache = Cache()
        self._store: Store | None = None
        self._opening = Lock()
        self._closed = False
        self._drops = 0

    async def store(self) -> Store:
        """The database. Raises `Closed` behind the engine's end, `StorageFailed`."""
        if self._closed:
            raise Closed("the engine lossless was disposed")
        store = self._store
        return store if store is not None else await self.lent.run_blocking(self._open)

    def _open(self) -> Store:
        lent = self.lent
        with self._opening:  # two calls may come at once, in two threads
            store = self._store
            if store is None:
                most = self.settings.payload_chars
                store = self._store = Store(lent.store, payload_chars=most, sync=not lent.virtual)
                if store.fresh:
                    lent.log("store_damaged", aside=True)
            return store

    async def close(self) -> None:
        """Close the database and forget what is in memory."""
        self.cache.clear()
        self._closed = True
        if self._store is not None:
            store, self._store = self._store, None
            await self.lent.run_blocking(store.close)

    def drop(self, id: str) -> None:
        """What is in memory of a session is out of date."""
        self._drops += 1
        self.cache.drop(id)

    # --- entries ----------------------------------------------------------------------------------

    async def ingest(self, context: EngineContext, items: Items) -> int:
        """Store entries; how many were new. A session that the store does not know is taken in whole."""
        store, id = await self.store(), context.session_id
        run = context.runtime.run_blocking
        unknown = id not in self.cache and await run(partial(store.load, id)) is None
        if unknown:
            await self.catch_up(context)
        known = await run(partial(_known, store, id, [item.entry for item in items])) if unknown else set()
        done = await run(partial(store.ingest, id, context.session_key, items))
        live = self.cache.get(id)
        if done.revived:
            await self._reconcile(context)
        elif live is not None and not live.grow(done):
            self.drop(id)
        return len(done.added) + len(known)

    async def cursor(self, context: EngineContext) -> str:
        """The newest entry that is stored, "" where there is none."""
        store = await self.store()
        loaded = await context.runtime.run_blocking(partial(store.load, context.session_id))
        return loaded.cursor if loaded else ""

    async def catch_up(self, context: EngineContext) -> int:
        """Take in what the session's file has behind the cursor; where that is not on its path any more, what
        is stored follows the path. How many entries were new.
        """
        cursor = await self.cursor(context)
        if not cursor:
            return await self._reconcile(context)
        count = 0
        try:
            while page := await context.runtime.history(cursor, PAGE):
                count += await self._take(context, page)
                cursor = page[-1].entry
        except LookupError:
            return await self._reconcile(context)
        await self._settle(context, anew=False)
        return count

    async def _reconcile(self, context: EngineContext) -> int:
        """Read the whole path: entries that are new are stored, others leave it, the view is made anew."""
        entries: list[str] = []
        count, after = 0, ""
        try:
            while page := await context.runtime.history(after, PAGE):
                count += await self._take(context, page)
                entries += [item.entry for item in page if not isinstance(item.message, Summary)]
                after = page[-1].entry
        except SegmentGone as error:  # what is stored here is all that is left of it
            context.runtime.log("history_gone", session=context.session_key, error=str(error))
            return count
        if entries:  # nothing at all is no path: there is no telling
            store = await self.store()
            await context.runtime.run_blocking(partial(store.path, context.session_id, entries))
        await self._settle(context, anew=True)
        return count

    async def _take(self, context: EngineContext, page: Items) -> int:
        store = await self.store()
        work = partial(store.ingest, context.session_id, context.session_key, page)
        done = await context.runtime.run_blocking(work)
        self.drop(context.session_id)
        return len(done.added)

    async def _settle(self, context: EngineContext, *, anew: bool) -> None:
        store = await self.store()
        await context.runtime.run_blocking(
            partial(store.settle, context.session_id, complete=True, anew=anew)
        )
        self.drop(context.session_id)

    async def rebuild(self, context: EngineContext) -> int:
        """All anew: what is stored is forgotten but the journal, and taken in again."""
        store = await self.store()
        await context.runtime.run_blocking(partial(store.reset, context.session_id))
        self.drop(context.session_id)
        return await self._reconcile(context)

    async def forget(self, id: str) -> bool:
        """Delete what is stored of a session."""
        store = await self.store()
        self.drop(id)
        return await self.lent.run_blocking(partial(store.forget, id))

    async def forget_key(self, key: str) -> None:
        """Delete what is stored of all sessions of a key."""
        store = await self.store()
        for id in await self.lent.run_blocking(partial(store.of_key, key)):
            await self.forget(id)

    # --- views ------------------------------------------------------------------------------------

    async def live(self, context: EngineContext) -> Live | None:
        """The session's view, from memory; `None` where nothing is stored of it."""
        found = self.cache.get(context.session_id)
        if found is not None:
            return found
        store = await self.store()
        for _ in range(_TRIES):
            drops = self._drops
            found = await context.runtime.run_blocking(partial(_loaded, store, context.session_id))
            if drops == self._drops or found is None:
                break
        if found is not None:
            self.cache.put(context.session_id, found)
        return found

    async def tokens(self, context: EngineContext) -> int:
        """Tokens of the latest request, or of the view as it is stored where there was none."""
        live = await self.live(context)
        if live is None:
            return 0
        stored = sum(piece.tokens for piece in (*live.head, *live.tail.values()))
        return max(live.total, stored)

    async def gathered(self, context: EngineContext, messages: Items) -> Gathered:
        """The request's messages. Entries that the host does not give are looked into: a branch was left."""
        live = await self.live(context)
        if live is None:
            return Gathered(messages, context.runtime.estimate(messages))
        found = gather(live, messages, await self._tail(context, live, messages))
        if found.missing and not await self._on_path(context, found.missing, messages):
            live = await self.live(context) or live
            found = gather(live, messages, await self._tail(context, live, messages))
        live.told.update(found.missing)
        live.given = len(messages)
        tokens = live.weigh(found.items, context.runtime.estimate)
        return Gathered(found.items, tokens + ADDED * bool(live.summaries), bool(live.summaries))

    async def _tail(self, context: EngineContext, live: Live, messages: Items) -> Items:
        model = context.model.ref if context.model else ""
        if live.held is None or live.model != model:
            await self._hold(context, live, messages, model)
        start = walk(live, messages)
        if start is not None:
            return messages[start:]
        store = await self.store()
        entries = [item.entry for item in messages if item.entry and item.entry not in live.tail]
        work = partial(_covered, store, live.no, entries)
        covered = await context.runtime.run_blocking(work)
        head = {piece.entry for piece in live.head if isinstance(piece, Raw)}
        kept = uncovered(messages, covered, head)
        if kept and kept == messages[len(messages) - len(kept) :]:
            live.begins = kept[0].entry
        return kept

    async def _hold(self, context: EngineContext, live: Live, messages: Items, model: str) -> None:
        wanted = hold(live, messages, model)
        if wanted and live.held is not None:
            found = await self.messages(context, live.no, wanted)
            live.held.update((entry, (item,)) for entry, item in found.items())

    async def messages(self, context: EngineContext, no: int, entries: Sequence[str]) -> dict[str, Item]:
        """Messages of the store by entry, whole."""
        store = await self.store()
        return await context.runtime.run_blocking(partial(_items, store, no, entries))

    async def _on_path(self, context: EngineContext, missing: Sequence[str], messages: Items) -> bool:
        """Whether the host leaves them out by a rule of its own; else what is stored follows the path."""
        try:
            await context.runtime.history(missing[-1], 1)
        except LookupError:
            if not messages or await context.runtime.history("", 1):
                await self._reconcile(context)
                return False
        return True


def _loaded(store: Store, id: str) -> Live | None:
    with store.db.reading() as db:
        session = rows.session(db, id)
        if session is None:
            return None
        view = rows.view(db, session.no)
        last = next((piece for piece in reversed(view) if isinstance(piece, Node)), None)
        edge = list(rows.below(db, session.no, last.id))[-_EDGE:] if last else []
        stubs = [piece.entry for piece in view if isinstance(piece, Raw) and piece.stub]
        notes = rows.stubs(db, session.no, stubs)
        items = rows.items(db, session.no, notes)
    loaded = Loaded(session.no, session.version, session.cursor, view)
    shown = {e: rows.stubbed(i, notes[e]) for e, i in items.items() if isinstance(i.message, ToolResult)}
    return Live(loaded, edge, shown)


def _covered(store: Store, no: int, entries: Sequence[str]) -> set[str]:
    with store.db.reading() as db:
        return rows.covered(db, no, entries)


def _items(store: Store, no: int, entries: Sequence[str]) -> dict[str, Item]:
    with store.db.reading() as db:
        return rows.items(db, no, entries, whole=True)


def _known(store: Store, id: str, entries: Sequence[str]) -> set[str]:
    with store.db.reading() as db:
        session = rows.session(db, id)
        return set(rows.items(db, session.no, entries)) if session else set()
