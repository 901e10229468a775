"""Rules of tool definitions and of `tool_choice`."""

from __future__ import annotations

import re
from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid
from perdure.edges.models.rules.schema import Found

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}\Z")
FIELDS = frozenset(
    {
        "name", "description", "input_schema", "type", "cache_control", "strict", "defer_loading",
        "allowed_callers", "eager_input_streaming", "input_examples",
    }
)  # fmt: skip
CHOICES = ("auto", "any", "tool", "none")


def check_tools(tools: Any, found: Found, *, known: bool) -> None:
    """Names, uniqueness and schemas of the tools."""
    if tools is None:
        return
    if not isinstance(tools, list):
        invalid("tools: Input should be a valid list")
    for n, tool in enumerate(tools):
        if not isinstance(tool, dict):
            invalid(f"tools.{n}: Input should be a valid dictionary or object to extract fields from")
        if tool.get("type", "custom") == "custom":
            _check_tool(tool, f"tools.{n}.custom", known)
        if "cache_control" in tool:
            found.mark(tool, f"tools.{n}")
    names = [str(tool.get("name")) for tool in tools]
    if len(set(names)) != len(names):
        invalid("tools: Tool names must be unique.")


def _check_tool(tool: Json, path: str, known: bool) -> None:
    for name in tool:
        if name not in FIELDS:
            invalid(f"{path}.{name}: Extra inputs are not permitted")
    for name in ("name", "input_schema"):
        if name not in tool:
            invalid(f"{path}.{name}: Field required")
    if not isinstance(tool["name"], str) or not NAME.match(tool["name"]):
        invalid(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    if not isinstance(tool.get("description", ""), str):
        invalid(f"{path}.description: Input should be a valid string")
    schema = tool["input_schema"]
    if not isinstance(schema, dict):
        invalid(f"{path}.input_schema: Input should be a valid dictionary")
    if "type" not in schema:
        invalid(f"{path}.input_schema.type: Field required")
    if schema["type"] != "object":
        invalid(f"{path}.input_schema.type: Input should be 'object'")
    if known and any(word in schema for word in ("oneOf", "anyOf", "allOf")):
        invalid(f"{path}.input_schema: does not support oneOf, allOf, or anyOf at the top level")


def check_choice(body: Json, *, known: bool) -> None:
    """`tool_choice` must be one of four kinds, and a named tool must exist."""
    choice = body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type")
    if kind not in CHOICES:
        invalid(
            "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'"
        )
    tools = body.get("tools") or []
    if known and not tools:
        invalid("tool_choice: tool_choice may only be specified while providing tools")
    if kind == "tool" and choice.get("name") not in [tool.get("name") for tool in tools]:
        invalid(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")
