"""What Chat Completions and Responses share: tools, schemas, names, ids, pictures, the cache key."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import msgspec

from perdure.context.prompt.boundary import strip
from perdure.context.text.characters import encodable
from perdure.context.wire.ask import Ask
from perdure.context.wire.compat import long_lived
from perdure.context.wire.texts import WireTool, offered
from perdure.records import Block, Image, Text

LONGEST_NAME = 64
FAILED = "[the tool failed]"
NO_OUTPUT = "(no output)"

_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]")
_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")


def system_text(ask: Ask) -> str:
    """The system prompt without the boundary's marker."""
    return strip(encodable(ask.system)).strip()


def wire_name(name: str) -> str:
    """A called tool's name in the alphabet of the API."""
    return _NOT_NAME.sub("_", name)[:LONGEST_NAME]


def tools_of(ask: Ask, used: tuple[str, ...]) -> list[WireTool]:
    """The tools, their schemas as the API takes them."""
    found = offered(ask.tools, used, LONGEST_NAME)
    return [WireTool(tool.name, tool.description, _schema(tool.schema)) for tool in found]


def _schema(raw: msgspec.Raw) -> msgspec.Raw:
    """An object's schema with `properties`, no choice at its top, and `items` in every array.

    What is left out narrows arguments only; the tool itself still checks them.
    """
    schema = msgspec.json.decode(raw)
    for word in _AT_THE_TOP:
        schema.pop(word, None)
    if type(schema.get("properties")) is not dict:
        schema["properties"] = {}
    _mend(schema)
    return msgspec.Raw(msgspec.json.encode(schema, order="sorted"))


def _mend(node: Any) -> None:
    if type(node) is dict:
        kind = node.get("type")
        if kind == "array" or (type(kind) is list and "array" in kind):
            node.setdefault("items", {})
        for each in node.values():
            _mend(each)
    elif type(node) is list:
        for each in node:
            _mend(each)


def data_url(image: Image) -> str:
    """The picture as a URL."""
    return f"data:{image.mime};base64,{image.data}"


def texts_of(content: tuple[Block, ...]) -> str:
    """All texts of a message, one below the other."""
    return "\n".join(block.text for block in content if type(block) is Text)


def cache_settings(ask: Ask) -> dict[str, Any]:
    """`prompt_cache_key` puts the requests of one session where its cache is.

    The key is a digest: a session's name may tell who its user is, and the field holds 64 characters.
    """
    if not ask.session or ask.retention == "none":
        return {}
    found: dict[str, Any] = {"prompt_cache_key": sha256(encodable(ask.session).encode()).hexdigest()[:32]}
    if ask.retention == "long" and long_lived(ask.model):
        found["prompt_cache_retention"] = "24h"
    return found
