"""Turns nested tables into records, with findings instead of exceptions.

The record types are the schema. Layers are merged key by key, later ones win, and each finding names
the layer it came from, the dotted key, the problem and what is accepted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union

import msgspec
from msgspec import inspect

from perdure.edges.settings import ListedModel, PluginOptions
from perdure.records import Record

R = TypeVar("R", bound=Record)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = re.compile(r"[A-Za-z0-9_.:@+-]{1,128}")
_MODEL = re.compile(r"[A-Za-z0-9_.:@+/-]{1,256}")  # ids of models may hold a path


class Finding(Record):
    """One thing wrong with a configuration: where it stands, which key, what, and what would be taken."""

    source: str
    key: str
    problem: str
    accepted: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: {self.key}: " if self.key else f"{self.source}: "
        return f"{where}{self.problem}" + (f" (accepted: {self.accepted})" if self.accepted else "")


class _Leaf:
    """A value and the layer it came from, so that a finding can name it after merging."""

    __slots__ = ("source", "value")

    def __init__(self, value: Any, source: str) -> None:
        self.value, self.source = value, source


class _Table(dict[str, Any]):
    """A merged table and the layer that opened it."""

    source = ""


def build(kind: type[R], layers: Sequence[tuple[Mapping[str, Any], str]]) -> tuple[R, list[Finding]]:
    """The record that the layers make, and all findings; wrong values keep their defaults."""
    findings: list[Finding] = []
    merged: dict[str, Any] = {}
    for table, source in layers:
        _merge(merged, table, source)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return kind(**_fields(info, merged, "", findings)), findings


def snake(key: str) -> str:
    """`contextEngine` → `context_engine`; snake_case stays."""
    return _CAMEL.sub("_", key).lower() if not key.isupper() else key.lower()


def _merge(into: dict[str, Any], table: Mapping[str, Any], source: str) -> None:
    for key, value in table.items():
        if isinstance(value, Mapping):
            below = into.get(key)
            if not isinstance(below, _Table):
                below = into[key] = _Table()
            below.source = source
            _merge(below, value, source)
        else:
            into[key] = _Leaf(value, source)


def _fields(
    info: inspect.StructType, table: Mapping[str, Any], at: str, findings: list[Finding]
) -> dict[str, Any]:
    """The fields that `table` sets; `name` is the table's own key, never a setting."""
    fields = {field.name: field for field in info.fields if field.name != "name"}
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key, value in table.items():
        name = key if key in fields else snake(key)
        if name not in fields:
            findings.append(_unknown(key, fields, value, at))
        elif sources.get(name) == _source(value):
            findings.append(Finding(_source(value), f"{at}{key}", "given twice, in two spellings"))
        else:
            sources[name] = _source(value)
            ok, made = _convert(fields[name].type, value, f"{at}{key}", findings)
            if ok:
                values[name] = made
    return values


def _unknown(key: str, fields: Mapping[str, Any], value: Any, at: str) -> Finding:
    known = sorted(fields)
    close = difflib.get_close_matches(snake(key), known, n=1)
    hint = f"unknown key; did you mean {close[0]}?" if close else "unknown key"
    return Finding(_source(value), f"{at}{key}", hint, ", ".join(known))


def _source(value: Any) -> str:
    return value.source if isinstance(value, _Leaf | _Table) else "the configuration"


def _convert(kind: inspect.Type, value: Any, at: str, findings: list[Finding]) -> tuple[bool, Any]:
    if isinstance(kind, inspect.StructType):
        ok, made = _table(kind, value, at, findings)
        return ok, kind.cls(**made)
    if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.StructType):
        return _named_tables(kind.item_type, value, at, findings)
    if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.TupleType):
        return _pairs(value, at, findings)
    if not isinstance(value, _Leaf):
        findings.append(Finding(_source(value), at, "a table where a value belongs", accepted(kind)))
        return False, None
    return _scalar(kind, value, at, findings)


def _table(
    kind: inspect.StructType, value: Any, at: str, findings: list[Finding]
) -> tuple[bool, dict[str, Any]]:
    if isinstance(value, _Leaf):
        fields = ", ".join(sorted(field.name for field in kind.fields if field.name != "name"))
        findings.append(Finding(value.source, at, "a value where a table belongs", f"a table of {fields}"))
        return False, {}
    if kind.cls is PluginOptions:  # a plugin's own keys: only the plugin knows them
        return True, {"values": msgspec.json.encode(_plain(value))}
    return True, _fields(kind, value, at + ".", findings)


def _plain(value: Any) -> Any:
    if isinstance(value, _Leaf):
        return value.value
    return {key: _plain(each) for key, each in value.items()}


def _named_tables(kind: inspect.StructType, value: Any, at: str, findings: list[Finding]) -> tuple[bool, Any]:
    if isinstance(value, _Leaf):
        findings.append(Finding(value.source, at, "a value where tables belong", f"[{at}.<name>] tables"))
        return False, None
    records = []
    valid, more = (_MODEL, " /") if kind.cls is ListedModel else (_NAME, "")
    for name in sorted(value):
        if not valid.fullmatch(name):
            findings.append(
                Finding(_source(value), f"{at}.{name!r}", "not a name", f"letters, digits, _ . : @ + -{more}")
            )
            continue
        ok, made = _table(kind, value[name], f"{at}.{name}", findings)
        if ok:
            records.append(kind.cls(name=name, **made))
    return True, tuple(records)


def _pairs(value: Any, at: str, findings: list[Finding]) -> tuple[bool, Any]:
    if isinstance(value, _Leaf):
        findings.append(Finding(value.source, at, "a value where a table of texts belongs", 'NAME = "text"'))
        return False, None
    pairs = []
    for name in sorted(value):
        leaf = value[name]
        if not isinstance(leaf, _Leaf) or not isinstance(leaf.value, str):
            findings.append(Finding(_source(leaf), f"{at}.{name}", "not a text", 'NAME = "text"'))
        else:
            pairs.append((name, leaf.value))
    return True, tuple(pairs)


def _scalar(kind: inspect.Type, leaf: _Leaf, at: str, findings: list[Finding]) -> tuple[bool, Any]:
    value = leaf.value
    if isinstance(kind, inspect.FloatType) and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    try:
        if (isinstance(value, int) and abs(value) >= 1 << 53) or value != value:
            raise OverflowError  # no setting means this, and not every reader of JSON could tell it
        return True, msgspec.convert(value, _python(kind), strict=True)
    except (msgspec.ValidationError, OverflowError):
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:59] + "…"
        findings.append(Finding(leaf.source, at, f"{shown} is not accepted", accepted(kind)))
        return False, None


def _python(kind: inspect.Type) -> Any:
    """The Python type of an inspected scalar, constraints included."""
    if isinstance(kind, inspect.UnionType):
        return Union[tuple(_python(item) for item in kind.types)]  # noqa: UP007
    if isinstance(kind, inspect.LiteralType):
        return Literal[kind.values]
    if isinstance(kind, inspect.VarTupleType):
        return tuple[_python(kind.item_type), ...]  # type: ignore[misc]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        bounds: dict[str, Any] = {"ge": kind.ge, "le": kind.le, "gt": kind.gt, "lt": kind.lt}
        number = int if isinstance(kind, inspect.IntType) else float
        return Annotated[number, msgspec.Meta(**bounds)]
    return {inspect.BoolType: bool, inspect.StrType: str, inspect.NoneType: None}[type(kind)]


def accepted(kind: inspect.Type) -> str:
    """What a key takes, in words a person can act on."""
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(map(str, kind.values))
    if isinstance(kind, inspect.UnionType):
        return " or ".join(accepted(item) for item in kind.types if not isinstance(item, inspect.NoneType))
    if isinstance(kind, inspect.VarTupleType):
        return "a list of texts"
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return _number(kind)
    return {inspect.BoolType: "true, false", inspect.StrType: "a text"}.get(type(kind), "a value")


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    word = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
    low = f" from {kind.ge}" if kind.ge is not None else f" above {kind.gt}" if kind.gt is not None else ""
    high = f" up to {kind.le}" if kind.le is not None else ""
    return word + low + high
