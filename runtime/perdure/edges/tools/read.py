"""`read`: a page of a text file, or an image as an image, from inside the workspace.

Bounded whatever the file: it is streamed, a page ends at a line count or a size, a single line that
would fill the page is cut, and binary files are described, not dumped.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, BinaryIO

from perdure.context.pictures.pixels import facts
from perdure.context.text.characters import clean
from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.tools.confine import Refused, open_file, shown
from perdure.edges.tools.outcome import decoded, details, failure
from perdure.edges.tools.scan import lines_of
from perdure.edges.tools.spec import make_spec, number, text
from perdure.records import Image, Record, Text

PAGE_LINES = 2_000
PAGE_BYTES = 64 * 1024
LINE_BYTES = 16 * 1024
IMAGE_BYTES = 24 * 1024 * 1024  # larger ones are no use to a model; the host scales the others
SNIFF_BYTES = 8_192

SPEC = make_spec(
    "read",
    "Read a file of the workspace. Text comes in pages of up to 2,000 lines or 64 KiB; use offset and limit "
    "for other pages. Images (PNG, JPEG, GIF, WebP) are shown as images.",
    "Read a file (text in pages, images as images)",
    {
        "path": text("File to read, relative to the workspace"),
        "offset": number("First line to read, counted from 1", 1),
        "limit": number("Most lines to read", 1),
    },
    required=("path",),
)


class Page(Record):
    """Lines `first` … `last` of a file; `more` if others follow; `cut` lines were too long."""

    data: bytes
    first: int
    last: int
    more: bool
    cut: int


class ReadTool:
    """See the module."""

    spec = SPEC

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        made = await context.run_blocking(lambda: _read(arguments, context))
        assert isinstance(made, ToolOutput)
        return made


def _read(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
    path = arguments["path"]
    try:
        name = shown(context.workspace, path)
        with open_file(context.workspace, path) as file:
            start = file.read(SNIFF_BYTES)
            file.seek(0, 2)
            size = file.tell()
            file.seek(0)
            return _by_kind(file, start, size, name, arguments)
    except (Refused, OSError) as error:
        return failure(str(error), path=path)


def _by_kind(file: BinaryIO, start: bytes, size: int, name: str, arguments: Mapping[str, Any]) -> ToolOutput:
    mime = facts(start).mime
    if mime:
        return _image(file, mime, size, name)
    encoding = "utf-16" if start[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    if b"\0" in start and encoding == "utf-8":
        line = f"{name}: a binary file of {size:,} bytes (begins with {start[:16].hex(' ')}); not shown."
        return ToolOutput((Text(line),), details=details(path=name, bytes=size, binary=True))
    page = read_page(file, arguments.get("offset", 1), arguments.get("limit", PAGE_LINES), encoding)
    return _page(page, size, name, encoding)


def _page(page: Page, size: int, name: str, encoding: str) -> ToolOutput:
    body = decoded(page.data) if encoding == "utf-8" else page.data.decode(encoding, "replace")
    body = clean(body.removeprefix("\ufeff"))
    notes = []
    if page.last < page.first:
        body, tail = "", "The file is empty." if size == 0 else f"The file has only {page.last} lines."
        notes.append(tail)
    if page.cut:
        notes.append(f"{page.cut} long line(s) cut at {LINE_BYTES:,} bytes; use exec or grep for the rest.")
    if page.more:
        notes.append(f"Lines {page.first}-{page.last} shown; go on with offset={page.last + 1}.")
    text_out = body + ("\n" if body and notes and not body.endswith("\n") else "")
    text_out += "".join(f"[{note}]\n" for note in notes)
    fields = {"path": name, "bytes": size, "first": page.first, "last": page.last, "more": page.more}
    return ToolOutput((Text(text_out.rstrip("\n") or f"[{name} is empty.]"),), details=details(**fields))


def _image(file: BinaryIO, mime: str, size: int, name: str) -> ToolOutput:
    fields = {"path": name, "bytes": size, "mime": mime}
    if size > IMAGE_BYTES:
        line = f"{name}: {mime}, {size:,} bytes, too large to show (limit {IMAGE_BYTES:,})."
        return ToolOutput((Text(line),), is_error=True, details=details(**fields))
    data = base64.b64encode(file.read(IMAGE_BYTES)).decode("ascii")
    return ToolOutput(
        (Text(f"{name} ({mime}, {size:,} bytes)"), Image(data, mime)), details=details(**fields)
    )


def read_page(file: BinaryIO, offset: int, limit: int, encoding: str = "utf-8") -> Page:
    """Lines from `offset` (1-based), streamed: memory is one page however large file or line are."""
    if encoding == "utf-16":
        return _page_of_utf16(file, offset, limit)
    number, size, cut, taken = 1, 0, 0, 0
    out: list[bytes] = []
    for line, whole in lines_of(file, LINE_BYTES):
        if number >= offset:
            if taken == limit or (out and size + len(line) > PAGE_BYTES):
                return Page(b"".join(out), offset, number - 1, True, cut)
            out.append(line if whole else line + "…\n".encode())
            size, cut, taken = size + len(line), cut + (not whole), taken + 1
        number += 1
    return Page(b"".join(out), offset, number - 1, False, cut)


def _page_of_utf16(file: BinaryIO, offset: int, limit: int) -> Page:
    """UTF-16 is rare and its line ends aren't bytes: its first part is turned into text whole."""
    whole = file.read(1 << 22)
    lines = whole.decode("utf-16", "replace").splitlines(keepends=True)
    page = lines[offset - 1 : offset - 1 + limit]
    more = offset - 1 + limit < len(lines)
    last = offset - 1 + len(page) if page else len(lines)
    return Page("".join(page).encode("utf-16"), offset, last, more, 0)
