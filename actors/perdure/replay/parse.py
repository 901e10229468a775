"""Bytes of a scenario file → checked records, strictly: what isn't understood is refused, with the fix.

Every refusal is one UsageError line, `file:line: what is wrong; what to do`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Raw, Struct

from perdure.errors import UsageError
from perdure.replay import times
from perdure.replay.check import Checker, Wrong
from perdure.replay.steps import VERSION, Header, Scenario, Step

_S = TypeVar("_S", bound=Struct)
_STEPS: Mapping[str, type[Struct]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Step)}
_DECODERS = {do: msgspec.json.Decoder(kind) for do, kind in _STEPS.items()}
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_NOTE = re.compile(r"(.*?)(?: - at `\$(.*)`)?", re.DOTALL)


def parse(data: bytes, name: str) -> Scenario:
    """The scenario in these bytes. `name` is the file's, for errors. Raises UsageError."""
    rows = [(number, row) for number, row in enumerate(data.split(b"\n"), 1) if row.strip()]
    if not rows:
        raise UsageError(f"{name}: the file is empty; its first line must be {_header_hint()}")
    number = rows[0][0]
    steps: list[Step] = []
    try:
        header = _header(rows[0][1])
        checker = Checker()
        for number, row in rows[1:]:  # noqa: B007 (the handler below reads it)
            steps.append(checker.accept(_step(row, header.start, checker.clock)))
    except Wrong as wrong:
        raise UsageError(f"{name}:{number}: {wrong}") from None
    return Scenario(header, tuple(steps))


def _header_hint() -> str:
    return f'the header, such as {{"scenario": {VERSION}, "name": "a short name"}}'


def _header(row: bytes) -> Header:
    fields = _fields(row)
    if "scenario" not in fields:
        kind = (
            "a session file (use `perdure import`)"
            if fields.get("type") == Raw(b'"session"')
            else "no scenario"
        )
        raise Wrong(f"this is {kind}; the first line of a scenario is {_header_hint()}")
    if bytes(fields["scenario"]).strip() != b"%d" % VERSION:
        written = bytes(fields["scenario"]).decode(errors="replace")
        raise Wrong(f"scenario format {written} is unknown, this perdure reads {VERSION}")
    start = _value(fields.get("start", Raw(b"0")))
    if isinstance(start, str):
        try:
            fields["start"] = Raw(b"%d" % times.epoch_ms(start))
        except ValueError:
            raise Wrong(f'"start" {start!r} is no time; write an ISO time or epoch milliseconds') from None
    header = _convert(fields, Header, msgspec.json.Decoder(Header), "the header")
    if header.window < 1:
        raise Wrong('"window" is in tokens and must be positive')
    return header


def _step(row: bytes, start: int, clock: float) -> Step:
    fields = _fields(row)
    if "do" not in fields:
        raise Wrong(f'a step needs "do"; one of {", ".join(_STEPS)}')
    do = _value(fields["do"])
    if not isinstance(do, str) or do not in _STEPS:
        raise Wrong(f'{do!r} is no step{_nearest(str(do), _STEPS)}; "do" is one of {", ".join(_STEPS)}')
    if "at" in fields:
        fields["at"] = Raw(repr(_at(_value(fields["at"]), start, clock)).encode())
    step: Any = _convert(fields, _STEPS[do], _DECODERS[do], f'a "{do}" step')
    checked: Step = step
    return checked


def _at(written: Any, start: int, clock: float) -> float:
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise Wrong(f'"at" must be {times.FORMS}')
    try:
        return times.seconds(written, start, clock)
    except ValueError as wrong:
        raise Wrong(f'"at": {wrong}') from None


def _fields(row: bytes) -> dict[str, Raw]:
    try:
        row.decode()
        return _FIELDS.decode(row)
    except UnicodeDecodeError as wrong:
        raise Wrong(f"byte {wrong.start} is not UTF-8; a scenario is a UTF-8 text file") from None
    except msgspec.ValidationError:
        raise Wrong("a line must be a JSON object, {…}") from None
    except msgspec.DecodeError as wrong:
        raise Wrong(f"this is no JSON ({wrong}); each line is one whole object") from None


def _value(raw: Raw) -> Any:
    return msgspec.json.decode(raw)


def _convert(fields: dict[str, Raw], kind: type[_S], decoder: msgspec.json.Decoder[Any], what: str) -> _S:
    known = tuple(kind.__struct_fields__)
    for key in fields:
        if key not in (*known, "do"):
            raise Wrong(f'{what} has no "{key}"{_nearest(key, known)}; it has {", ".join(known)}')
    try:
        made: _S = decoder.decode(msgspec.json.encode(fields))
    except msgspec.ValidationError as wrong:
        raise Wrong(_explain(str(wrong), what)) from None
    return made


def _explain(text: str, what: str) -> str:
    """msgspec's words about a value, in the words of the format."""
    found = _NOTE.fullmatch(text)
    said, where = (found.group(1), found.group(2) or "") if found else (text, "")
    said = said.replace("Object missing required field", "is missing").replace("`", '"')
    said = said.replace("Object contains unknown field", "has no field")
    said = re.sub(r"Expected (.*), got (.*)", r"must be \1, not \2", said)
    return f'in {what}, "{where.lstrip(".")}" {said}' if where else f"{what} {said}"


def _nearest(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""
