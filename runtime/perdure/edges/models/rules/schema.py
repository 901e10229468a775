"""Which fields a request may have and of which type: refusals name a dotted path, as the API does.

Runs on every call, so a block costs one set comparison and a few look-ups; paths are built only
for a refusal.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid

TOP = frozenset(
    {
        "model", "max_tokens", "messages", "system", "tools", "tool_choice", "stop_sequences", "temperature",
        "top_p", "top_k", "metadata", "thinking", "output_config", "service_tier", "stream", "cache_control",
        "container", "inference_geo", "speed", "diagnostics",
    }
)  # fmt: skip
BLOCKS: dict[str, tuple[frozenset[str], tuple[tuple[str, type], ...]]] = {
    "text": (frozenset({"type", "text", "cache_control", "citations"}), (("text", str),)),
    "image": (frozenset({"type", "source", "cache_control", "transformations"}), (("source", dict),)),
    "document": (
        frozenset({"type", "source", "cache_control", "title", "context", "citations"}),
        (("source", dict),),
    ),
    "tool_use": (
        frozenset({"type", "id", "name", "input", "cache_control", "caller", "toolset_name"}),
        (("id", str), ("name", str), ("input", dict)),
    ),
    "tool_result": (
        frozenset({"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"}),
        (("tool_use_id", str),),
    ),
    "thinking": (frozenset({"type", "thinking", "signature"}), (("thinking", str), ("signature", str))),
    "redacted_thinking": (frozenset({"type", "data"}), (("data", str),)),
    "compaction": (frozenset({"type", "content", "encrypted_content", "cache_control"}), ()),
}
INSIDE_RESULT = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
MARK = frozenset({"type", "ttl"})
NAMES = {str: "string", dict: "dictionary", int: "integer", bool: "boolean", list: "list"}
MAX_MESSAGES = 100_000


def check_top(body: Json, *, counting: bool) -> None:
    """Required and unknown fields of the whole body. `counting`: as `count_tokens` takes it."""
    for name in body:
        if name not in TOP:
            invalid(f"{name}: Extra inputs are not permitted")
    for name in ("model", "messages") if counting else ("model", "max_tokens", "messages"):
        if name not in body:
            invalid(f"{name}: Field required")
    _typed(body["model"], str, "model")
    _typed(body["messages"], list, "messages")
    if not counting:
        _whole(body["max_tokens"], "max_tokens", 1)
    if not body["messages"]:
        invalid("messages: at least one message is required")
    if len(body["messages"]) > MAX_MESSAGES:
        invalid(f"messages: List should have at most {MAX_MESSAGES} items after validation")
    _check_options(body)


def _check_options(body: Json) -> None:
    for name, high in (("temperature", 1.0), ("top_p", 1.0)):
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            invalid(f"{name}: Input should be a valid number")
        if value is not None and not 0 <= value <= high:
            bound = "greater than or equal to 0" if value < 0 else "less than or equal to 1"
            invalid(f"{name}: Input should be {bound}")
    if body.get("top_k") is not None:
        _whole(body["top_k"], "top_k", 0)
    if "stream" in body:
        _typed(body["stream"], bool, "stream")
    for name in ("metadata", "thinking", "tool_choice"):
        if body.get(name) is not None:
            _typed(body[name], dict, name)
    if "stop_sequences" in body:
        _typed(body["stop_sequences"], list, "stop_sequences")
    check_mark(body.get("cache_control"), "")


class Found:
    """What the walk over all blocks saw, so that later rules look only where they must."""

    __slots__ = ("kinds", "marks")

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.marks: list[tuple[str, Json]] = []  # (path, mark) in the order in which blocks are processed

    def mark(self, block: Json, path: str) -> None:
        """Check and keep the mark of a block that has the field."""
        mark = block["cache_control"]
        check_mark(mark, f"{path}.")
        if mark is not None:
            self.marks.append((path, mark))


def check_system(system: Any, found: Found) -> None:
    """`system` is a string or a list of text blocks."""
    if system is None or isinstance(system, str):
        return
    _typed(system, list, "system")
    for n, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            invalid(f"system.{n}.type: Input should be 'text'")
        check_block(block, f"system.{n}", found)


def check_messages(messages: list[Any], found: Found) -> None:
    """Role and content of each message, then each of its blocks."""
    for n, message in enumerate(messages):
        if not isinstance(message, dict):
            invalid(f"messages.{n}: Input should be a valid dictionary or object to extract fields from")
        role, content = message.get("role"), message.get("content")
        if role != "user" and role != "assistant":
            _bad_role(message, n)
        if len(message) != 2 or content is None:
            _bad_message(message, n)
        if type(content) is str:
            continue
        if type(content) is not list:
            invalid(f"messages.{n}.content: Input should be a valid list")
        for m, block in enumerate(content):
            check_content(block, n, m, found)


def check_content(block: Any, n: int, m: int, found: Found) -> None:
    """One block of message `n`; the path is made only where it is needed."""
    kind = block.get("type") if type(block) is dict else None
    known = BLOCKS.get(kind) if type(kind) is str else None
    if known is None or not block.keys() <= known[0]:
        check_block(block, f"messages.{n}.content.{m}", found)
        return
    found.kinds.add(block["type"])
    for name, wanted in known[1]:
        if type(block.get(name)) is not wanted:
            check_block(block, f"messages.{n}.content.{m}", found)
    if "cache_control" in block:
        found.mark(block, f"messages.{n}.content.{m}")
    if kind == "tool_result" and "content" in block and type(block["content"]) is not str:
        _check_inside(block["content"], f"messages.{n}.content.{m}.content", found)


def check_block(block: Any, path: str, found: Found) -> None:
    """Refuse what is wrong with one block; returns when nothing is."""
    if not isinstance(block, dict):
        invalid(f"{path}: Input should be a valid dictionary or object to extract fields from")
    if "type" not in block:
        invalid(f"{path}.type: Field required")
    if not isinstance(block["type"], str) or block["type"] not in BLOCKS:
        tags = ", ".join(f"'{tag}'" for tag in BLOCKS)
        invalid(f"{path}: Input tag '{block['type']}' found using 'type' does not match any of: {tags}")
    allowed, required = BLOCKS[block["type"]]
    _unknown(block, allowed, f"{path}.{block['type']}")
    for name, kind in required:
        if name not in block:
            invalid(f"{path}.{block['type']}.{name}: Field required")
        _typed(block[name], kind, f"{path}.{block['type']}.{name}")
    found.kinds.add(block["type"])
    if "cache_control" in block:
        found.mark(block, path)
    if block["type"] == "tool_result" and "content" in block:
        _check_inside(block["content"], f"{path}.content", found)


def _check_inside(content: Any, path: str, found: Found) -> None:
    if type(content) is str:
        return
    if type(content) is not list:
        invalid(f"{path}: Input should be a valid list")
    for n, block in enumerate(content):
        if type(block) is not dict or str(block.get("type")) not in INSIDE_RESULT:
            invalid(f"{path}.{n}: Input tag does not match any of: {', '.join(sorted(INSIDE_RESULT))}")
        if str(block["type"]) in BLOCKS:
            check_block(block, f"{path}.{n}", found)


def check_mark(mark: Any, path: str) -> None:
    """The shape of one `cache_control`; `path` ends in a dot (or is empty at the top)."""
    if mark is None:
        return
    if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
        invalid(f"{path}cache_control.type: Input should be 'ephemeral'")
    _unknown(mark, MARK, f"{path}cache_control")
    if mark.get("ttl", "5m") not in ("5m", "1h"):
        invalid(f"{path}cache_control.ttl: Input should be '5m' or '1h'")


def _bad_role(message: Json, n: int) -> None:
    if "role" not in message:
        invalid(f"messages.{n}.role: Field required")
    if message["role"] == "system":
        invalid(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, '
            'not "system" as an input message role.'
        )
    invalid(f"messages.{n}.role: Input should be 'user' or 'assistant'")


def _bad_message(message: Json, n: int) -> None:
    if message.get("content") is None:
        invalid(f"messages.{n}.content: Field required")
    _unknown(message, frozenset({"role", "content"}), f"messages.{n}")


def _unknown(value: Json, allowed: AbstractSet[str], path: str) -> None:
    for name in value:
        if name not in allowed:
            invalid(f"{path}.{name}: Extra inputs are not permitted")


def _typed(value: Any, kind: type, path: str) -> None:
    if type(value) is not kind:
        invalid(f"{path}: Input should be a valid {NAMES[kind]}")


def _whole(value: Any, path: str, low: int) -> None:
    _typed(value, int, path)
    if value < low:
        invalid(f"{path}: Input should be greater than or equal to {low}")
