"""A compaction: passes until the view fits, each one transaction, each smaller than before, or the floor.

First what is large enough for a good summary; then, while it must shrink further, whatever shrinks; then
with fewer fresh messages; then payloads of the fresh tail as notes. A model that can't be reached ends it
with nothing changed, or is done without where somebody waits for room.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from perdure.context.compaction.prompts import SYSTEM
from perdure.contracts import EngineContext
from perdure.errors import ModelError, ModelErrorKind
from perdure.plugins.engines.lossless import rows
from perdure.plugins.engines.lossless.pieces import Node, Piece, Raw, View
from perdure.plugins.engines.lossless.plan import Choice, Shape, as_items, choices, shape
from perdure.plugins.engines.lossless.settings import Settings
from perdure.plugins.engines.lossless.store import Store
from perdure.plugins.engines.lossless.writer import Asked, Ladder, Source, ladder
from perdure.records import Assistant, Item, Items, Record, ToolResult

_AT_FAULT: frozenset[ModelErrorKind] = frozenset({"overflow", "invalid", "empty", "cut"})
_BEFORE_CHARS = 6_000
_UPGRADES = 2
_BACKLOG = 24  # digests that a view far over its budget is brought under it with, about
_FRUITLESS = 2  # passes in a row without one good answer: more calls won't help
_TRIED = 8  # passes of one round that don't shrink: then it is the next means' turn


class Order(Record):
    """What is asked of a compaction. `target`: tokens that the view should come under; `budget`: must.

    `least`: passes made though it fits; `models`: they may be asked; `insists`: somebody waits, so digests
    stand in for a model that can't be reached; `routine`: good summaries only, nothing under pressure.
    """

    target: int
    budget: int
    least: int = 0
    most: int = 24
    models: bool = True
    insists: bool = False
    routine: bool = False
    focus: str = ""


class Done(Record):
    """`node`: the newest summary. `reason`: why it ended, in words; `unreachable`: for want of a model."""

    passes: int
    before: int
    after: int
    reason: str = ""
    node: Node | None = None
    unreachable: bool = False
    slowest_ms: int = 0


class _Unreachable(Exception):
    pass


class Compactor:
    """One compaction of the session `context` is about."""

    def __init__(self, store: Store, settings: Settings, context: EngineContext, order: Order) -> None:
        self.store, self.settings, self.context, self.order = store, settings, context, order
        self.id, self.runtime = context.session_id, context.runtime
        self.until = self.runtime.wall_ms() + settings.sweep_seconds * 1000
        self.models, self.tight = order.models, False
        self.passes, self.slowest = 0, 0
        self.node: Node | None = None
        self._weights: dict[str, int] = {}
        self._made: set[str] = set()
        self._fruitless = 0
        self._failed: set[tuple[str, ...]] = set()
        self._messages: dict[str, Item] = {}
        self._view: View | None = None  # as it was read, and changed by our own passes since

    async def run(self) -> Done:
        """Until it fits, nothing shrinks, a bound is reached, or no model answers."""
        shape = await self._look()
        before = total = sum(shape.tokens)
        reason = ""
        try:
            while not reason:
                reason = self._enough(total) or await self._step(shape, total)
                shape = await self._look()
                total = sum(shape.tokens)
            if self.models and not self.order.routine:
                total += await self._upgrade(shape, self.order.target - total)
        except _Unreachable as error:
            return self._done(before, total, str(error), unreachable=True)
        return self._done(before, total, reason)

    def _done(self, before: int, after: int, reason: str, *, unreachable: bool = False) -> Done:
        return Done(self.passes, before, after, reason, self.node, unreachable, self.slowest)

    def _enough(self, total: int) -> str:
        order = self.order
        if total <= order.target and self.passes >= order.least:
            return "it fits"
        if self.passes >= order.most:
            return f"{self.passes} passes were made"
        if self.runtime.wall_ms() >= self.until:
            if not order.insists or total <= order.budget:
                return f"{self.settings.sweep_seconds} s are over"
            self.models = False
        return ""

    async def _step(self, shape: Shape, total: int) -> str:
        """One pass; else the reason why there is none."""
        for pressure in (False,) if self.order.routine else (False, True):
            found = choices(shape, self.settings, self._most(total), pressure=pressure)
            new = (choice for choice in found if choice.keys not in self._failed)
            for choice in islice(new, _TRIED):
                if await self._pass(shape, choice):
                    return ""
        if self.order.routine:
            return "nothing is large enough"
        if not self.tight and (total > self.order.budget or self.order.insists):
            self.tight = True
            return ""
        if self.tight and total > self.order.target and await self._stub(shape):
            return ""
        return _floor(shape)

    def _most(self, total: int) -> int:
        """Tokens that one summary may cover. A digest may cover more, so that a backlog is done in few."""
        order, settings = self.order, self.settings
        most = max(256, min(settings.leaf_tokens, order.budget // 3))
        return most if self.models else max(most, (total - order.target) // _BACKLOG)

    # --- what is there ----------------------------------------------------------------------------

    async def _look(self) -> Shape:
        """The view; from the store where somebody else may have changed it."""
        if self._view is None:
            self._view = await self.runtime.run_blocking(self._read)
        view = self._view
        items = self._items(view)
        tokens = [self._weigh(piece, item) for piece, item in zip(view, items, strict=True)]
        return shape(view, items, tokens, self.settings, self.order.budget, tight=self.tight)

    def _weigh(self, piece: Piece, item: Item) -> int:
        """Tokens of a piece as it is sent: a payload by its whole, unless it is shown as its note."""
        name = f"{piece.key} {isinstance(piece, Raw) and piece.stub}"
        if name not in self._weights:
            whole = piece.tokens if isinstance(piece, Raw) and not piece.stub else 0
            self._weights[name] = max(whole, self.runtime.estimate((item,)))
        return self._weights[name]

    def _read(self) -> View:
        with self.store.db.reading() as db:
            session = rows.session(db, self.id)
            view = rows.view(db, session.no) if session is not None else ()
            wanted = [p.entry for p in view if isinstance(p, Raw) and p.entry not in self._messages]
            if session is not None:
                self._messages.update(rows.items(db, session.no, wanted))
        return view

    def _items(self, view: View) -> Items:
        return as_items(view, self._messages)

    # --- one pass ---------------------------------------------------------------------------------

    async def _pass(self, shape: Shape, choice: Choice) -> bool:
        node = await self._written(self._source(shape, choice))
        if node is None:
            self._failed.add(choice.keys)
            return False
        work = partial(self.store.commit, self.id, node, choice.keys)
        if await self.runtime.run_blocking(work):
            self._fruitless = self._fruitless + 1 if node.rung == "digest" else 0
            self.models = self.models and self._fruitless < _FRUITLESS
            self.passes, self.node = self.passes + 1, node
            self._made.add(node.id)
            at = shape.view.index(choice.pieces[0])
            self._view = (*shape.view[:at], node, *shape.view[at + len(choice.pieces) :])
            self.runtime.log(
                "pass", session=self.context.session_key, node=node.id, depth=node.depth, rung=node.rung,
                messages=node.messages, tokens=node.tokens,
            )  # fmt: skip
        else:
            self._failed.add(choice.keys)
            self._view = None  # it has changed meanwhile
        return True

    def _source(self, shape: Shape, choice: Choice) -> Source:
        at = shape.view.index(choice.pieces[0])
        tokens = sum(shape.tokens[at : at + len(choice.pieces)])
        before = shape.view[at - 1] if at and not choice.depth else None
        return Source(
            session=self.id,
            choice=choice,
            items=self._items(choice.pieces),
            tokens=tokens,
            before=before.text[:_BEFORE_CHARS] if isinstance(before, Node) else "",
            focus=self.order.focus,
            now=self.runtime.wall_ms(),
            model=self.context.model.ref if self.context.model else "",
        )

    async def _written(self, source: Source) -> Node | None:
        """Climb the ladder with the model's answers."""
        began = self.runtime.wall_ms()
        steps, answer = ladder(source, self.settings, self.runtime.estimate, models=self.models), None
        while True:
            step = await self.runtime.run_blocking(partial(_advance, steps, answer))
            self.slowest = max(self.slowest, self.runtime.wall_ms() - began)
            if not isinstance(step, Asked):
                return step
            answer = await self._answer(step) if self.models else None

    async def _answer(self, asked: Asked) -> str | None:
        """The model's text; `None` where it could not answer this. One that can't be reached at all ends the
        compaction, or is not asked again.
        """
        try:
            return await self.runtime.complete(
                self.context.session_key, asked.prompt, system=SYSTEM, max_tokens=asked.max_tokens
            )
        except ModelError as error:
            if error.kind in _AT_FAULT:
                return None
            if not self.order.insists:
                raise _Unreachable(f"the summarising model can't be used ({error.kind})") from None
            self.models = False
            return None

    # --- digests made good ------------------------------------------------------------------------

    async def _upgrade(self, shape: Shape, room: int) -> int:
        """Write older digests anew now that a model answers, as far as the room goes; tokens it took."""
        taken = 0
        nodes = [piece for piece in shape.view if isinstance(piece, Node) and piece.id not in self._made]
        digests = [node for node in nodes if node.rung == "digest"]
        for old in digests[-_UPGRADES:]:
            most = self.settings.condensed_target if old.depth else self.settings.leaf_target
            if most - old.tokens > room - taken or old.source_tokens > 3 * self.settings.leaf_tokens:
                continue
            pieces = await self.runtime.run_blocking(partial(self._below, old))
            items = self._items(pieces)
            tokens = sum(self._weigh(piece, item) for piece, item in zip(pieces, items, strict=True))
            source = Source(
                session=self.id,
                choice=Choice(old.depth, pieces),
                items=items,
                tokens=tokens,
                now=self.runtime.wall_ms(),
                model=self.context.model.ref if self.context.model else "",
                replaces=old.id,
            )
            node = await self._written(source)
            if node is None or node.rung == "digest":
                break
            if await self.runtime.run_blocking(partial(self.store.commit, self.id, node, (old.key,))):
                taken += node.tokens - old.tokens
        return taken

    def _below(self, node: Node) -> View:
        """What a summary was made of; its messages are at hand then."""
        with self.store.db.reading() as db:
            session = rows.session(db, self.id)
            assert session is not None
            pieces = rows.pieces(db, session.no, node.sources)
            wanted = [p.entry for p in pieces if isinstance(p, Raw) and p.entry not in self._messages]
            self._messages.update(rows.items(db, session.no, wanted))
        return pieces

    async def _stub(self, shape: Shape) -> bool:
        """Show large results of the fresh tail as notes, if a call has seen them."""
        items = self._items(shape.view)
        newest = max((n for n, item in enumerate(items) if isinstance(item.message, Assistant)), default=0)
        entries = [
            piece.entry
            for piece, item in zip(shape.view[:newest], items, strict=False)
            if isinstance(piece, Raw) and not piece.stub and isinstance(item.message, ToolResult)
        ]
        return await self.runtime.run_blocking(partial(self._stubbed, entries))

    def _stubbed(self, entries: list[str]) -> bool:
        loaded = self.store.load(self.id)
        if loaded is None:
            return False
        with self.store.db.reading() as db:
            notes = rows.stubs(db, loaded.no, entries)
        self._view, self._messages = None, {}
        return bool(notes) and self.store.stub(self.id, sorted(notes))


def _advance(steps: Ladder, answer: str | None) -> Asked | Node | None:
    try:
        return steps.send(answer)  # `None` begins it
    except StopIteration as end:
        found: Node | None = end.value
        return found


def _floor(shape: Shape) -> str:
    """What nothing makes smaller, by owner."""
    fresh = sum(tokens for at, tokens in enumerate(shape.tokens) if at in shape.kept)
    rest = sum(shape.tokens) - fresh
    return f"irreducible: {fresh:,} tokens of {len(shape.kept)} newest messages, {rest:,} of summaries"
