"""Makes every message fit for the wire: contents, calls, pictures, pairing, ids, thinking.

Stored text never changes; what is sent differs from it only by a named rule. Running it on its own
outcome changes nothing, so the seal may run it again on whatever an engine or hook returned.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from msgspec.structs import replace

from perdure.context import images
from perdure.context.calls import wire_call
from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions
from perdure.context.characters import NUL_SIGN, clean
from perdure.context.ids import IdsInUse, normalise
from perdure.context.policy import ImageRules, TranscriptPolicy
from perdure.context.repair import calls_of, repair, unfinished
from perdure.context.thinking import asked, settle
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
    Decision,
    Image,
    Item,
    Items,
    LedgerLine,
    Message,
    ModelInfo,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

CLEANED = "sanitise: characters, blocks or pictures that can't be sent"
EMPTY = "sanitise: nothing left to send"
EXCLUDED = "sanitise: kept out of the context by the user"
INVALID_CALL = "sanitise: call without a valid name, id or arguments"
ITS_RESULT = "sanitise: result of a call that is not sent"
OLD_IMAGES = "sanitise: older images, over the limit of one request"
STALE_USAGE = "sanitise: usage from before the latest compaction"

INTER_SESSION = "[Inter-session message]"
BINARY = "[binary output: bytes of value 0 are shown as " + NUL_SIGN + "]"
UNKNOWN_BLOCK = "[content of unknown type `{kind}` omitted]"


class Before:
    """What the part of a history that comes before some items leaves them to know.

    `clean`: messages by entry that were found to be as they may be sent, so that a long tool loop is not
    read again at each step.
    """

    __slots__ = ("clean", "ids", "since")

    def __init__(
        self, ids: IdsInUse | None = None, since: int = -1, clean: dict[str, Message] | None = None
    ) -> None:
        self.ids = ids if ids is not None else IdsInUse()
        self.since = since
        self.clean = {} if clean is None else clean

    def fork(self) -> Before:
        return Before(self.ids.fork(), self.since, self.clean)


def sanitize(
    items: Items,
    policy: TranscriptPolicy,
    model: ModelInfo,
    *,
    thinking: bool | str = True,
    decided: Decisions = NOTHING_DECIDED,
    covered: Container[str] | None = None,
    unseen: Container[str] | None = None,
    before: Before | None = None,
) -> Changed:
    """All sanitising steps in their order; see the module.

    `thinking`: whether the request asks for it, or its level. Where it doesn't, none is sent; where
    `.thinking` of the outcome is false, it must not ask. `covered`, `unseen`: see `repair`.
    `before`: what `items` go on from, where they are the tail of a history (see `settled`).
    """
    on, before = asked(model, thinking), before or Before()
    done = contents(items, policy, model, before.clean)
    done = done.then(lambda now: old_images(now, policy, decided))
    if policy.pairing:
        done = done.then(lambda now: repair(now, decided=decided, covered=covered, unseen=unseen))
    done = done.then(lambda now: settle(now, model, policy, on=on, since=before.since, used=before.ids.used))
    return done.then(lambda now: normalise(now, policy, decided, before.ids))


def contents(
    items: Items, policy: TranscriptPolicy, model: ModelInfo, known: dict[str, Message] | None = None
) -> Changed:
    """Each message by itself: characters, blank and unknown blocks, pictures, calls, failed turns.

    `known`: messages by entry that need nothing under this policy and model; found ones are added.
    """
    work = _Contents(policy, model, {} if known is None else known)
    out: list[Item] = []
    for item in items:
        kept = work.item(item)
        if kept is not None:
            out.append(kept)
    return Changed(tuple(out), tuple(work.lines)) if work.lines else Changed(items)


def forget_stale_usage(items: Items) -> Changed:
    """Zero the usage of messages from before the latest compaction: it tells of a longer prompt.

    A message that stands behind the summary and doesn't tell its time (0) keeps its usage.
    """
    last = max((n for n, item in enumerate(items) if type(item.message) is Summary), default=-1)
    if last < 0:
        return Changed(items)
    made = items[last].message.timestamp
    out: list[Item] = []
    lines: list[LedgerLine] = []
    for n, item in enumerate(items):
        message = item.message
        if type(message) is Assistant and message.usage and (n < last or 0 < message.timestamp <= made):
            lines.append(LedgerLine(item.entry, "in", STALE_USAGE))
            item = Item(item.entry, replace(message, usage=Usage()))
        out.append(item)
    return Changed(tuple(out), tuple(lines)) if lines else Changed(items)


class _Contents:
    """`gone` holds the ids of the current turn's calls that are not sent: their results go too."""

    __slots__ = ("gone", "known", "lines", "model", "policy")

    def __init__(self, policy: TranscriptPolicy, model: ModelInfo, known: dict[str, Message]) -> None:
        self.policy, self.model, self.known = policy, model, known
        self.gone: frozenset[str] = frozenset()
        self.lines: list[LedgerLine] = []

    def item(self, item: Item) -> Item | None:
        message = item.message
        if self.known.get(item.entry) is message and not self._goes(message):
            return item
        kept = _HANDLERS[type(message)](self, item)
        if kept is item:
            if item.entry and not (self.gone and type(message) is Assistant):
                self.known[item.entry] = message
            return item
        if kept is None:
            return None
        self.lines.append(LedgerLine(item.entry, "in", CLEANED))
        return kept

    def _goes(self, message: Message) -> bool:
        """Whether a message that needs nothing itself goes with its call; a new answer begins anew."""
        if type(message) is Assistant:
            self.gone = frozenset()
        return type(message) is ToolResult and message.call_id in self.gone

    def user(self, item: Item) -> Item | None:
        message = item.message
        assert type(message) is User
        content = self.blocks(message.content, foreign=False)
        return self.rebuilt(item, _annotated(message, content))

    def custom(self, item: Item) -> Item | None:
        assert type(item.message) is Custom
        return self.rebuilt(item, self.blocks(item.message.content, foreign=False))

    def rebuilt(self, item: Item, content: tuple[Block, ...]) -> Item | None:
        message = item.message
        assert type(message) is User or type(message) is Custom
        if not content:
            self.lines.append(LedgerLine(item.entry, "left_out", EMPTY))
            return None
        return item if content == message.content else Item(item.entry, replace(message, content=content))

    def result(self, item: Item) -> Item | None:
        message = item.message
        assert type(message) is ToolResult
        if message.call_id in self.gone:
            self.lines.append(LedgerLine(item.entry, "left_out", ITS_RESULT))
            return None
        content = self.blocks(message.content, foreign=True)
        if any(type(block) is Text and "\x00" in block.text for block in message.content):
            content = (*content, Text(BINARY))
        if message.is_error:
            # An error result may hold text only.
            content = tuple(images.notice(_IN_ERROR) if type(b) is Image else b for b in content)
        return item if content == message.content else Item(item.entry, replace(message, content=content))

    def assistant(self, item: Item) -> Item | None:
        message = item.message
        assert type(message) is Assistant
        self.gone = frozenset()
        kept, line = unfinished(item)
        if line is not None:
            self.lines.append(line)
            self.gone = frozenset(call.id for call in calls_of(message))
        if kept is None:
            return None
        message = kept.message
        assert type(message) is Assistant
        content = self.said(item.entry, message.content)
        if not content:
            self.lines.append(LedgerLine(item.entry, "left_out", EMPTY))
            return None
        return kept if content == message.content else Item(item.entry, replace(message, content=content))

    def said(self, entry: str, content: tuple[Block, ...]) -> tuple[Block, ...]:
        out: list[Block] = []
        lost: set[str] = set()
        for block in content:
            sent = self.said_block(block)
            if sent is not None:
                out.append(sent)
            elif type(block) is ToolCall:
                lost.add(block.id)
                self.lines.append(LedgerLine(entry, "in", INVALID_CALL))
        if lost:
            self.gone |= lost - {block.id for block in out if type(block) is ToolCall}
        return tuple(out)

    def said_block(self, block: Block) -> Block | None:
        if type(block) is Text:
            return _text(block, foreign=False)
        if type(block) is ToolCall:
            return wire_call(block, wire_names=self.policy.wire_names)
        if type(block) is Thinking:
            return block
        return images.notice(_OF_ASSISTANT) if type(block) is Image else None

    def blocks(self, content: tuple[Block, ...], *, foreign: bool) -> tuple[Block, ...]:
        out: list[Block] = []
        for block in content:
            if type(block) is Text:
                text = _text(block, foreign=foreign)
                if text is not None:
                    out.append(text)
            elif type(block) is Image:
                out.append(self.image(block))
            else:
                # Neither calls nor thinking can stand here; other kinds are of formats we don't know.
                kind = getattr(block, "kind", None) or type(block).__name__
                out.append(Text(UNKNOWN_BLOCK.format(kind=clean(str(kind))[:64])))
        return tuple(out)

    def image(self, image: Image) -> Image | Text:
        if not self.model.images:
            return images.notice(images.UNREAD)
        return images.wire_image(image, self.policy.images)

    def bash(self, item: Item) -> Item | None:
        message = item.message
        assert type(message) is Bash
        if message.excluded:
            self.lines.append(LedgerLine(item.entry, "left_out", EXCLUDED))
            return None
        command, output = clean(message.command), clean(message.output, foreign=True)
        path = message.full_output_path and clean(message.full_output_path)
        return _same_or(item, replace(message, command=command, output=output, full_output_path=path))

    def summary(self, item: Item) -> Item | None:
        message = item.message
        assert type(message) is Summary or type(message) is BranchSummary
        return _same_or(item, replace(message, summary=clean(message.summary)))


_IN_ERROR = "the result of a failed call holds text only"
_OF_ASSISTANT = "images of the model itself can't be sent back to it"
_HANDLERS: dict[type[Message], Callable[[_Contents, Item], Item | None]] = {
    User: _Contents.user,
    Assistant: _Contents.assistant,
    ToolResult: _Contents.result,
    Summary: _Contents.summary,
    BranchSummary: _Contents.summary,
    Bash: _Contents.bash,
    Custom: _Contents.custom,
}


def old_images(items: Items, policy: TranscriptPolicy, decided: Decisions) -> Changed:
    """Where a request holds so many images that stricter limits hold, the oldest become notices.

    The floor is the decision `images`: entry in `value`, images of that entry left out in `head`. It
    moves in jumps, and only when the images above it are too many again.
    """
    places = [(n, m) for n, item in enumerate(items) for m in _image_places(item)]
    rules = policy.images
    if not places:
        return Changed(items)
    first = _floor(items, places, decided.get("images"))
    decisions: tuple[Decision, ...] = ()
    if _too_many(items, places[first:], rules):
        first = len(places) - rules.keep_of_many
        n, _ = places[first]
        skipped = sum(1 for place in places[:first] if place[0] == n)
        decisions = (Decision("images", "limit", head=skipped, value=items[n].entry),)
    if first == 0:
        return Changed(items)
    return _without_images(items, places[:first], decisions)


def _too_many(items: Items, places: list[tuple[int, int]], rules: ImageRules) -> bool:
    """More than the provider takes, or more than it takes of this size (unknown counts as large)."""
    if len(places) <= rules.many:
        return False
    sides = (_side(items, place) for place in places)
    return len(places) > rules.most or any(not 0 < side <= rules.max_side_many for side in sides)


def _floor(items: Items, places: list[tuple[int, int]], decided: Decision | None) -> int:
    if decided is None:
        return 0
    at = next((n for n, item in enumerate(items) if item.entry == decided.value), -1)
    if at < 0:
        return 0
    return sum(1 for n, _ in places if n < at) + min(decided.head, sum(1 for n, _ in places if n == at))


def _without_images(items: Items, gone: list[tuple[int, int]], decisions: tuple[Decision, ...]) -> Changed:
    out = list(items)
    lines: list[LedgerLine] = []
    for n in sorted({n for n, _ in gone}):
        message = items[n].message
        assert type(message) in (User, ToolResult, Custom)
        taken = {m for k, m in gone if k == n}
        content = tuple(
            images.notice(images.OLDER) if m in taken else block
            for m, block in enumerate(message.content)  # type: ignore[union-attr]
        )
        out[n] = Item(items[n].entry, replace(message, content=content))
        lines.append(LedgerLine(items[n].entry, "placeholder", OLD_IMAGES))
    return Changed(tuple(out), tuple(lines), decisions)


def _image_places(item: Item) -> list[int]:
    message = item.message
    if type(message) is User or type(message) is ToolResult or type(message) is Custom:
        return [m for m, block in enumerate(message.content) if type(block) is Image]
    return []


def _side(items: Items, place: tuple[int, int]) -> int:
    message = items[place[0]].message
    assert type(message) is User or type(message) is ToolResult or type(message) is Custom
    block = message.content[place[1]]
    assert type(block) is Image
    return images.side(block)


def _annotated(message: User, content: tuple[Block, ...]) -> tuple[Block, ...]:
    """Messages of other sessions say so in their text, or the model takes them for the user's."""
    origin = message.provenance
    if origin is None or origin.kind != "inter_session" or not content:
        return content
    fields = (
        ("sourceSession", origin.source_session),
        ("sourceChannel", origin.source_channel),
        ("sourceTool", origin.source_tool),
    )
    prefix = " ".join([INTER_SESSION, *(f"{k}={' '.join(clean(v).split())}" for k, v in fields if v)])
    for n, block in enumerate(content):
        if type(block) is Text:
            if block.text == prefix or block.text.startswith(f"{prefix}\n"):
                return content
            return (*content[:n], Text(f"{prefix}\n{block.text}", block.signature), *content[n + 1 :])
    return (Text(prefix), *content)


def _text(block: Text, *, foreign: bool) -> Text | None:
    text = clean(block.text, foreign=foreign)
    if not text or text.isspace():
        return None
    return block if text is block.text or text == block.text else replace(block, text=text)


def _same_or(item: Item, message: Message) -> Item:
    return item if message == item.message else Item(item.entry, message)
