"""Checks a model's tool arguments against the tool's JSON schema before the tool runs.

A subset of JSON Schema that tool schemas really use: type, properties, required,
additionalProperties, enum, const, minimum, maximum, minLength, maxLength, items, minItems, maxItems,
anyOf/oneOf. Other keywords are left to the tool. Near misses that models make (`"5"` for 5, `"true"`,
a JSON text for an object) are taken as what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from perdure.contracts import Tool, ToolContext, ToolOutput
from perdure.edges.tools.outcome import bad_arguments, brief
from perdure.records import ToolSpec

MAX_PROBLEMS = 5
MAX_DEPTH = 32
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "object": (dict,), "array": (list,), "null": (type(None),),
}  # fmt: skip
_MISSING = object()


class Checked:
    """A tool whose arguments are checked (and near misses corrected) before it runs."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._schema = msgspec.json.decode(tool.spec.schema)

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def asks(self, arguments: Mapping[str, Any]) -> str:
        """What the tool would run and needs approval for; empty for arguments that `run` refuses."""
        asks = getattr(self._tool, "asks", None)
        fitted, problems = fit(self._schema, arguments)
        return str(asks(fitted)) if asks is not None and not problems else ""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        fitted, problems = fit(self._schema, arguments)
        if problems:
            return bad_arguments(self.spec.name, problems)
        return await self._tool.run(fitted, context)


def fit(schema: Mapping[str, Any], value: Any) -> tuple[Any, tuple[str, ...]]:
    """The value with near misses corrected, and what is still wrong (at most five problems)."""
    problems: list[str] = []
    value = _fit(schema, value, "", problems, 0)
    return value, tuple(problems[:MAX_PROBLEMS])


def _fit(schema: Any, value: Any, at: str, problems: list[str], depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return value
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            value = _any_of(schema[key], value, at, problems, depth)
    kinds = schema.get("type")
    if kinds is not None:
        value = _typed([kinds] if isinstance(kinds, str) else list(kinds), value, at, problems)
    if "enum" in schema and value not in schema["enum"]:
        problems.append(f"{at or 'value'}: must be one of {', '.join(map(repr, schema['enum']))}")
    if "const" in schema and value != schema["const"]:
        problems.append(f"{at or 'value'}: must be {schema['const']!r}")
    _bounds(schema, value, at, problems)
    if isinstance(value, dict):
        return _object(schema, value, at, problems, depth)
    if isinstance(value, list):
        items = schema.get("items")
        return [_fit(items, item, f"{at}[{n}]", problems, depth + 1) for n, item in enumerate(value)]
    return value


def _object(
    schema: Mapping[str, Any], value: dict[str, Any], at: str, problems: list[str], depth: int
) -> Any:
    properties = schema.get("properties") or {}
    prefix = f"{at}." if at else ""
    missing = [name for name in schema.get("required") or () if name not in value]
    problems.extend(f"{prefix}{name}: missing (required)" for name in missing)
    extra = schema.get("additionalProperties", True)
    fitted = {}
    for name, item in value.items():
        if name in properties:
            fitted[name] = _fit(properties[name], item, prefix + name, problems, depth + 1)
        elif extra is False:
            known = ", ".join(sorted(properties)) or "none"
            problems.append(f"{prefix}{brief(name)}: unknown parameter (known: {known})")
        else:
            fitted[name] = _fit(extra, item, prefix + name, problems, depth + 1)
    return fitted


def _any_of(options: list[Any], value: Any, at: str, problems: list[str], depth: int) -> Any:
    for option in options:
        found: list[str] = []
        made = _fit(option, value, at, found, depth + 1)
        if not found:
            return made
    problems.append(f"{at or 'value'}: fits none of the accepted forms")
    return value


def _typed(kinds: list[str], value: Any, at: str, problems: list[str]) -> Any:
    if any(_is(kind, value) for kind in kinds) or not all(kind in _TYPES for kind in kinds):
        return value
    for kind in kinds:
        made = _near(kind, value)
        if made is not _MISSING:
            return made
    problems.append(f"{at or 'value'}: must be {' or '.join(kinds)}, not {_named(value)}")
    return value


def _is(kind: str, value: Any) -> bool:
    if kind in ("integer", "number") and isinstance(value, bool):
        return False
    if kind == "integer" and isinstance(value, float):
        return False
    return isinstance(value, _TYPES.get(kind, (object,)))


def _near(kind: str, value: Any) -> Any:
    """What a near miss means, or `_MISSING`."""
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str) or len(value) > 100_000:
        return _MISSING
    if kind == "boolean":
        return {"true": True, "false": False}.get(value.strip().lower(), _MISSING)
    if kind in ("integer", "number", "object", "array"):
        try:
            made = msgspec.json.decode(value.strip())
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return _MISSING
        return made if _is(kind, made) else _MISSING
    return _MISSING


def _bounds(schema: Mapping[str, Any], value: Any, at: str, problems: list[str]) -> None:
    size = len(value) if isinstance(value, str | list) else None
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    what = "items" if isinstance(value, list) else "characters"
    low, high = ("minItems", "maxItems") if isinstance(value, list) else ("minLength", "maxLength")
    if number is not None and "minimum" in schema and number < schema["minimum"]:
        problems.append(f"{at or 'value'}: must be at least {schema['minimum']}")
    if number is not None and "maximum" in schema and number > schema["maximum"]:
        problems.append(f"{at or 'value'}: must be at most {schema['maximum']}")
    if size is not None and low in schema and size < schema[low]:
        problems.append(f"{at or 'value'}: must have at least {schema[low]} {what}")
    if size is not None and high in schema and size > schema[high]:
        problems.append(f"{at or 'value'}: must have at most {schema[high]} {what}")


def _named(value: Any) -> str:
    names = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "an array"}
    return names.get(type(value), "null" if value is None else "an object")
