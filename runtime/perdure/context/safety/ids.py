"""Tool call ids on the wire: the provider's alphabet, unique over the request, equal on both sides.

Stored ids never change. An id that can't keep its own form because an earlier call has it is a
decision (`id:<entry>:<n>`), so that it stays the same when that earlier call leaves the view. Ids of
nine characters are decided by themselves (`id9:…`): a session may go to such a model and back.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Container
from hashlib import sha256

from msgspec.structs import replace

from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions
from perdure.context.policy import IdMode, TranscriptPolicy
from perdure.records import Assistant, Block, Decision, Item, Items, LedgerLine, ToolCall, ToolResult

MAX_LENGTH = 40
RENAMED = "sanitise: call id rewritten"

_OTHER = re.compile(r"[^A-Za-z0-9]")
_NATIVE = re.compile(r"toolu_[A-Za-z0-9_]{1,58}")
# Any API takes it; behind the bar stands the item id of the Responses API, which goes out beside it.
_PLAIN = re.compile(r"([A-Za-z0-9_-]{1,40})(\|fc_[A-Za-z0-9_-]{1,60})?")


def wire_id(raw: str, mode: IdMode) -> str:
    """One id in the alphabet of `mode`; not yet cut to length, not yet unique."""
    kept = _OTHER.sub("", raw)
    if mode == "strict9":
        if not raw:
            return "defaultid"
        return kept[:9] if len(kept) >= 9 else _digest(kept or "sanitized", 9)
    if not raw:
        return "defaulttoolid"
    return kept or "sanitizedtoolid"


class IdsInUse:
    """The ids that a history's calls have got so far; `fork` goes on from here without touching it."""

    __slots__ = ("orphans", "seen", "used")

    def __init__(self) -> None:
        self.used: ChainMap[str, bool] = ChainMap()
        self.seen: ChainMap[str, int] = ChainMap()
        self.orphans: ChainMap[str, int] = ChainMap()

    def fork(self) -> IdsInUse:
        """A continuation of its own."""
        forked = IdsInUse()
        forked.used, forked.seen = self.used.new_child(), self.seen.new_child()
        forked.orphans = self.orphans.new_child()
        return forked

    def join(self, forked: IdsInUse) -> None:
        """Take over what a fork of this one went on to use."""
        self.used.update(forked.used.maps[0])
        self.seen.update(forked.seen.maps[0])
        self.orphans.update(forked.orphans.maps[0])


def normalise(
    items: Items,
    policy: TranscriptPolicy,
    decided: Decisions = NOTHING_DECIDED,
    in_use: IdsInUse | None = None,
) -> Changed:
    """The items with every call's id fit for the wire, and its result's with it.

    A result belongs to a call of its own turn before it belongs to one of an earlier turn. `in_use`:
    the ids of what comes before these items; those of the items are added to it.
    """
    work = _Renaming(policy.ids, policy.native_ids, decided, in_use or IdsInUse())
    work.reserve(items)
    out = [work.item(item) for item in items]
    if not work.changed:
        return Changed(items, decisions=tuple(work.decisions))
    return Changed(tuple(out), tuple(work.lines), tuple(work.decisions))


class _Renaming:
    """Walks a history once. `waiting` holds the new ids that no result has claimed yet."""

    __slots__ = (
        "changed", "decided", "decisions", "here", "kind", "lines", "mode",
        "native", "orphans", "reserved", "seen", "used", "waiting",
    )  # fmt: skip

    def __init__(self, mode: IdMode, native: bool, decided: Decisions, in_use: IdsInUse) -> None:
        self.mode, self.native, self.decided = mode, native, decided
        self.kind = "id9" if mode == "strict9" else "id"
        self.changed = False
        self.used, self.seen, self.orphans = in_use.used, in_use.seen, in_use.orphans
        self.reserved: set[str] = set()
        self.waiting: dict[str, list[str]] = {}
        self.here: dict[str, list[str]] = {}
        self.lines: list[LedgerLine] = []
        self.decisions: list[Decision] = []

    def reserve(self, items: Items) -> None:
        """Ids given to later calls before may not be given to earlier ones now."""
        if not any(key.startswith(f"{self.kind}:") for key in self.decided):
            return
        for item in items:
            if type(item.message) is Assistant:
                for n in range(len(item.message.content)):
                    found = self.decided.get(f"{self.kind}:{item.entry}:{n}")
                    if found is not None:
                        self.reserved.add(found.value)

    def item(self, item: Item) -> Item:
        message = item.message
        if type(message) is Assistant:
            return self.assistant(item, message)
        if type(message) is not ToolResult:
            return item
        new = self.claim(message.call_id)
        if new == message.call_id:
            return item
        self.changed = True
        return Item(item.entry, replace(message, call_id=new))

    def assistant(self, item: Item, message: Assistant) -> Item:
        self.leave()
        n = 0
        blocks: list[Block] = []
        renamed = False
        for block in message.content:
            if type(block) is ToolCall:
                new = self.call(item.entry, n, block.id)
                n += 1
                if new != block.id:
                    block, renamed = replace(block, id=new), True
            blocks.append(block)
        if not renamed:
            return item
        self.changed = True
        self.lines.append(LedgerLine(item.entry, "in", RENAMED))
        return Item(item.entry, replace(message, content=tuple(blocks)))

    def leave(self) -> None:
        """The turn ends: what it left unclaimed may still be claimed by a later result."""
        for raw, ids in self.here.items():
            self.waiting.setdefault(raw, []).extend(ids)
        self.here = {}

    def call(self, entry: str, n: int, raw: str) -> str:
        count = self.seen[raw] = self.seen.get(raw, 0) + 1
        key = f"{self.kind}:{entry}:{n}"
        before = self.decided.get(key)
        if before is not None and before.value not in self.used:
            new = before.value
        else:
            new = self.allocate(raw, raw if count == 1 else f"{raw}:{count}")
            if entry and new != self.own_form(raw):
                self.decisions.append(Decision(key, "renamed", value=new))
        self.take(new)
        self.here.setdefault(raw, []).append(new)
        return new

    def own_form(self, raw: str) -> str:
        """The id this call would have in a history of its own."""
        if self.keeps(raw):
            return raw
        base = wire_id(raw, self.mode)
        return base if self.mode == "strict9" else base[:MAX_LENGTH]

    def claim(self, raw: str) -> str:
        for queue in (self.here.get(raw), self.waiting.get(raw)):
            if queue:
                return queue.pop(0)
        count = self.orphans[raw] = self.orphans.get(raw, 0) + 1
        new = self.allocate(None, f"{raw}:tool_result:{count}")
        self.take(new)
        return new

    def take(self, new: str) -> None:
        """An id is in use; of one with two parts, each is."""
        self.used[new] = True
        if "|" in new:
            self.used.update(dict.fromkeys(new.split("|"), True))

    def keeps(self, raw: str) -> bool:
        """Whether this mode leaves such an id as it is."""
        if self.mode == "none":
            return _PLAIN.fullmatch(raw) is not None
        return self.native and _NATIVE.fullmatch(raw) is not None

    def allocate(self, raw: str | None, seed: str) -> str:
        taken = _Taken(self.used, self.reserved)
        if raw == seed and self.keeps(seed) and not any(part in taken for part in seed.split("|")):
            return seed
        base = wire_id(seed, self.mode)
        if self.mode == "strict9":
            return _free((base, *(_digest(f"{seed}:{i}", 9) for i in range(1000))), taken, seed)
        base = base[:MAX_LENGTH]
        if base not in taken:
            return base
        hashed = base[: MAX_LENGTH - 8] + _digest(seed, 8)
        numbered = (hashed[: MAX_LENGTH - len(f"x{i}")] + f"x{i}" for i in range(2, 1000))
        return _free((hashed, *numbered), taken, seed)


class _Taken:
    """Ids that earlier calls have, or that later ones were given before."""

    __slots__ = ("_reserved", "_used")

    def __init__(self, used: Container[str], reserved: Container[str]) -> None:
        self._used, self._reserved = used, reserved

    def __contains__(self, ident: object) -> bool:
        return ident in self._used or ident in self._reserved


def _free(candidates: tuple[str, ...], taken: Container[str], seed: str) -> str:
    for candidate in candidates:
        if candidate not in taken:
            return candidate
    # A thousand collisions of a hash: nothing left but to hash on until one is free.
    n = len(candidates)
    while (last := _digest(f"{seed}:{n}", len(candidates[-1]))) in taken:
        n += 1
    return last


def _digest(text: str, length: int) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
