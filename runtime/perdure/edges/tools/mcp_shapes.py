"""What MCP says in our records: names, schemas and results of servers we don't trust."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from perdure.context.text.characters import clean
from perdure.context.text.secrets import redact
from perdure.contracts import ToolOutput
from perdure.edges.tools.outcome import details, result
from perdure.records import Block, Image, ToolSpec

MAX_TOOLS = 200  # of one server; more would crowd out the conversation
MAX_NAME = 64
MAX_SCHEMA_BYTES = 64 * 1024
MAX_DESCRIPTION = 4_000
MAX_IMAGE_CHARS = 32 * 1024 * 1024
MAX_DETAILS_BYTES = 1 << 20
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


def fitted_name(server: str, tool: str) -> str:
    """`mcp__server__tool` in the alphabet and length of tool names; what had to change gets a hash."""
    whole = f"mcp__{server}__{tool}"
    name = _FOREIGN.sub("_", whole)
    if name == whole and len(name) <= MAX_NAME:
        return name
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME - 9]}_{mark}"


def spec_of(server: str, tool: Any) -> ToolSpec:
    """A tool as the model sees it; its schema in sorted order, so that the bytes never vary."""
    description = clean(tool.description or "", foreign=True).strip()
    if len(description) > MAX_DESCRIPTION:
        description = description[: MAX_DESCRIPTION - 1] + "…"
    summary = description.split("\n", 1)[0].split(". ", 1)[0] or f"{tool.name} of {server}"
    return ToolSpec(
        fitted_name(server, tool.name), description or summary, _schema(tool.input_schema), summary
    )


def _schema(schema: Any) -> bytes:
    """The schema as JSON of an object; one that is no object schema, or huge, becomes the open one."""
    try:
        encoded = msgspec.json.encode({**schema, "type": "object"}, order="sorted")
    except (TypeError, ValueError, RecursionError):
        return b'{"type":"object"}'
    return encoded if len(encoded) <= MAX_SCHEMA_BYTES else b'{"type":"object"}'


def output_of(answer: Any) -> ToolOutput:
    """A call's result: texts together (evidence when long), images beside them, structure in details."""
    texts: list[str] = []
    images: list[Block] = []
    for block in answer.content:
        made = _block(block)
        if isinstance(made, Image):
            images.append(made)
        else:
            texts.append(made)
    structured = answer.structured_content
    if not texts and not images:
        texts = [_json(structured) if structured is not None else "[no content]"]
    made_output = result("\n".join(texts)) if texts else ToolOutput(())
    return ToolOutput(
        (*made_output.content, *images),
        is_error=bool(answer.is_error),
        details=_details(structured, len(images)),
        full=made_output.full,
    )


def _block(block: Any) -> str | Image:
    kind = block.type
    if kind == "text":
        return str(block.text)
    if kind == "image":
        if str(block.mime_type).startswith("image/") and len(block.data) <= MAX_IMAGE_CHARS:
            return Image(block.data, block.mime_type)
        return f"[an image of type {block.mime_type}, {len(block.data):,} characters of base64, not shown]"
    if kind == "resource" and hasattr(block.resource, "text"):
        return f"{block.resource.uri}:\n{block.resource.text}"
    if kind == "resource":
        return f"[resource {block.resource.uri}, binary, not shown]"
    if kind == "resource_link":
        return f"[resource {block.name}: {block.uri}]"
    return f"[{kind} content, not shown]"


def _details(structured: Any, images: int) -> bytes:
    encoded = details(images=images, structured=structured)
    return (
        encoded
        if len(encoded) <= MAX_DETAILS_BYTES
        else details(images=images, structured_bytes=len(encoded))
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")


def reason(error: BaseException) -> str:
    """One line about an exception, the first of a group, without secrets."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(clean(str(error)).split()) or type(error).__name__
    return redact(text if len(text) <= 300 else text[:299] + "…")
