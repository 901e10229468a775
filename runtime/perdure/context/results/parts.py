"""What decisions do to a tool result: one rendering for guard and pruning.

`render` is a pure function of (result, decision): a stored decision gives the same bytes for ever.
Images are never left out silently: a line tells how many, and how to see them.
"""

from __future__ import annotations

from perdure.context.numbers import CLEARED_PLACEHOLDER, COMPACTED_PLACEHOLDER
from perdure.context.results.shorten import parts, shorten
from perdure.records import Block, Decision, Image, Text, ToolResult

NO_IMAGES = "no images"
"""`Decision.value` where the images of a result were left out too."""


def text_of(result: ToolResult) -> str:
    """All text blocks of a result, joined by line ends."""
    return "\n".join(block.text for block in result.content if isinstance(block, Text))


def images_of(result: ToolResult) -> tuple[Image, ...]:
    return tuple(block for block in result.content if isinstance(block, Image))


def image_notice(images: tuple[Image, ...], ref: str) -> str:
    """The line that stands for images that were left out; empty where there were none."""
    if not images:
        return ""
    kinds = ", ".join(dict.fromkeys(image.mime for image in images))
    how = f"; `recall {ref}` shows {'it' if len(images) == 1 else 'them'}" if ref else ""
    return f"[{len(images)} image{'s' if len(images) > 1 else ''} left out ({kinds}){how}]"


def is_blank(decision: Decision) -> bool:
    """Whether nothing is left of a result but the text that stands for it."""
    return decision.form == "placeholder" or (decision.form == "pruned" and not decision.head)


def placeholder(decision: Decision) -> str:
    """The literal that stands for a blanked result."""
    return CLEARED_PLACEHOLDER if decision.form == "pruned" else COMPACTED_PLACEHOLDER


def render(result: ToolResult, decision: Decision) -> ToolResult:
    """The result as this decision has it sent. Details are dropped: they never reach a model."""
    images = images_of(result)
    if is_blank(decision):
        return _with(result, (Text("\n".join([placeholder(decision), *_way_back(result, decision.key)])),))
    text = shorten(text_of(result), decision.head, decision.tail, decision.key)
    if decision.value == NO_IMAGES and images:
        return _with(result, (Text("\n".join(filter(None, [text, image_notice(images, decision.key)]))),))
    first: tuple[Block, ...] = (Text(text),) if text else ()
    return _with(result, first + images)


def _way_back(result: ToolResult, ref: str) -> list[str]:
    """How to read a blanked result again: by the reference of an older notice, else by its entry."""
    images, text = images_of(result), text_of(result)
    where = parts(text).ref or ("" if images and not text else ref)
    lines = (image_notice(images, ref), f"[`recall {where}` reads it]" if where else "")
    return [line for line in lines if line]


def _with(result: ToolResult, content: tuple[Block, ...]) -> ToolResult:
    return ToolResult(
        call_id=result.call_id,
        tool=result.tool,
        content=content,
        is_error=result.is_error,
        timestamp=result.timestamp,
    )
