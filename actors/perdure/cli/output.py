"""What commands print: one JSON object or text for a person, terminal-safe; errors in one line."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

# Control characters, lone surrogates, and marks that reorder what stands beside them.
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000), *range(0x202A, 0x202F))
_UNSAFE: Final = {
    **dict.fromkeys((*_CONTROLS, *range(0x2066, 0x206A)), "\ufffd"),
    0x09: "\t",
    0x0A: "\n",
    0x2028: "\n",
    0x2029: "\n",
    0x200E: "",
    0x200F: "",
    0x061C: "",  # invisible, and common in right-to-left text
}
_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|\r(?=\n)"
)
# The same in JSON, where they stand in strings only: what the encoder leaves as it is.
_HIDDEN: Final = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]|\xd8\x9c")
LARGE: Final = 64 * 1024 * 1024  # bytes of a file that takes more than a moment
_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


def streams() -> None:
    """Make stdout and stderr take any text; closed ones swallow it (as every program's do)."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def emit(value: Any) -> None:
    """One JSON object on stdout."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair: a file's name, or what a model said
        data = msgspec.json.encode(_encodable(value))
    try:
        data = msgspec.json.format(data, indent=2)
    except msgspec.DecodeError:
        pass  # stored text with half a surrogate pair as an escape: JSON that the formatter refuses
    data = hidden_escaped(data)
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def say(text: str = "") -> None:
    """A line for a person."""
    sys.stdout.write(safe(text) + "\n")


def warn(text: str) -> None:
    """A line on stderr."""
    try:
        sys.stderr.write(safe(text) + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody hears: the exit code says it


def refuse_taken(out: Path, *, force: bool) -> None:
    """Fail where a file is to be made and something is: `--force` replaces a file, and nothing else."""
    if not os.path.lexists(out):
        return
    if not force:
        fail(f"{out}: exists: name another file, or give --force")
    if not out.is_file() or out.is_symlink():
        fail(f"{out}: is no plain file, and is never replaced: name another")


def patience(path: str | os.PathLike[str]) -> None:
    """Tell somebody who waits at a terminal that a large file is being read."""
    try:
        count = os.stat(path).st_size
    except (OSError, ValueError):
        return
    if count > LARGE and sys.stderr.isatty():
        warn(f"perdure: reading {size(count)} …")


def fail(text: str, code: int = 2) -> NoReturn:
    """One clear line, then the exit code."""
    warn(f"perdure: {' '.join(text.split())}")
    raise SystemExit(code)


def safe(text: str) -> str:
    """Text that moves no cursor and colours nothing: sequences are left out, other controls shown as �."""
    return _SEQUENCE.sub("", text).translate(_UNSAFE)


def one_line(text: str, most: int = 200) -> str:
    """The text on one line, shortened to `most` characters."""
    line = " ".join(safe(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def table(rows: Sequence[tuple[str, ...]], right: frozenset[int] = frozenset()) -> str:
    """Columns aligned by what they take on a terminal; `right` are aligned to the right."""
    cells = [tuple(one_line(cell, 400) for cell in row) for row in rows]
    if not cells:
        return ""
    widths = [max(width(row[n]) for row in cells) for n in range(len(cells[0]))]
    lines = ("  ".join(_padded(cell, widths[n], n in right) for n, cell in enumerate(row)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def size(count: int) -> str:
    """Bytes for a person: `512 bytes`, `1.4 MB`."""
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{count:,} bytes" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def hidden_escaped(data: bytes) -> bytes:
    """JSON, or text, whose invisible and reordering characters are spelled out."""
    return _HIDDEN.sub(_escaped, data)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(found[0].decode())


def _padded(cell: str, columns: int, right: bool) -> str:
    blanks = " " * (columns - width(cell))
    return blanks + cell if right else cell + blanks


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode() if not value.isascii() else value
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(part) for name, part in value.items()}
    return [_encodable(part) for part in value] if isinstance(value, list | tuple) else value
