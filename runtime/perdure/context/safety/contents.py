"""Each message by itself, as the wire takes it: characters, blank and unknown blocks, pictures, calls.

What it was before stays in the file; a block that can't be sent becomes a line of text or goes, by name.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from perdure.context.changed import Changed
from perdure.context.pictures import images
from perdure.context.policy import TranscriptPolicy
from perdure.context.safety.calls import wire_call
from perdure.context.safety.repair import calls_of, unfinished
from perdure.context.text.characters import NUL_SIGN, clean
from perdure.records import (
    Assistant,
    Bash,
    Block,
    BranchSummary,
    Custom,
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
    User,
)

CLEANED = "sanitise: characters, blocks or pictures that can't be sent"
EMPTY = "sanitise: nothing left to send"
EXCLUDED = "sanitise: kept out of the context by the user"
INVALID_CALL = "sanitise: call without a valid name, id or arguments"
ITS_RESULT = "sanitise: result of a call that is not sent"

BINARY = "[binary output: bytes of value 0 are shown as " + NUL_SIGN + "]"
UNKNOWN_BLOCK = "[content of unknown type `{kind}` omitted]"


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
        return self.rebuilt(item, self.blocks(item.entry, message.content, foreign=False))

    def custom(self, item: Item) -> Item | None:
        assert type(item.message) is Custom
        return self.rebuilt(item, self.blocks(item.entry, item.message.content, foreign=False))

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
        content = self.blocks(item.entry, message.content, foreign=True)
        if any(type(block) is Text and "\x00" in block.text for block in message.content):
            content = (*content, Text(BINARY))
        if message.is_error:
            # An error result may hold text only.
            content = tuple(_not_shown(images.IN_ERROR, b) for b in content)
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
        return images.notice(images.OF_MODEL, block) if type(block) is Image else None

    def blocks(self, entry: str, content: tuple[Block, ...], *, foreign: bool) -> tuple[Block, ...]:
        out: list[Block] = []
        for block in content:
            if type(block) is Text:
                text = _text(block, foreign=foreign)
                if text is not None:
                    out.append(text)
            elif type(block) is Image:
                out.append(self.image(block, entry))
            else:
                # Neither calls nor thinking can stand here; other kinds are of formats we don't know.
                kind = getattr(block, "kind", None) or type(block).__name__
                out.append(Text(UNKNOWN_BLOCK.format(kind=clean(str(kind))[:64])))
        return tuple(out)

    def image(self, image: Image, entry: str) -> Image | Text:
        if not self.model.images:
            return images.notice(images.UNREAD, image)
        return images.wire_image(image, self.policy.images, entry)

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


_HANDLERS: dict[type[Message], Callable[[_Contents, Item], Item | None]] = {
    User: _Contents.user,
    Assistant: _Contents.assistant,
    ToolResult: _Contents.result,
    Summary: _Contents.summary,
    BranchSummary: _Contents.summary,
    Bash: _Contents.bash,
    Custom: _Contents.custom,
}


def _not_shown(reason: str, block: Block) -> Block:
    return images.notice(reason, block) if type(block) is Image else block


def _text(block: Text, *, foreign: bool) -> Text | None:
    text = clean(block.text, foreign=foreign)
    if not text or text.isspace():
        return None
    return block if text is block.text or text == block.text else replace(block, text=text)


def _same_or(item: Item, message: Message) -> Item:
    return item if message == item.message else Item(item.entry, message)
