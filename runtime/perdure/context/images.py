"""Pictures in a request: what a provider would refuse is replaced by a line of text that says so.

Pure: sizes are read from the first bytes, nothing is decoded or scaled. No picture goes silently.
"""

from __future__ import annotations

import binascii
from functools import lru_cache

from perdure.context.policy import ImageRules
from perdure.records import Image, Text

EMPTY = "no data"
BROKEN = "its data is not valid base64"
UNKNOWN = "its format is not one the model reads"
UNREAD = "this model does not read images"
OLDER = "an older image, taken out to stay inside the limit on images of one request"
_HEAD = 64 * 1024  # base64 characters looked at for the size; a JPEG's frame header stands inside


def notice(reason: str) -> Text:
    """The text that stands where an image stood."""
    return Text(f"[image omitted: {reason}]")


def wire_image(image: Image, rules: ImageRules) -> Image | Text:
    """The image as it may be sent, its media type told by its bytes; else a notice."""
    reason = problem(image, rules)
    if reason:
        return notice(reason)
    mime = _facts(image.data[:_HEAD])[0]
    return image if mime == image.mime else Image(image.data, mime)


def problem(image: Image, rules: ImageRules) -> str:
    """Why this image can't be sent; empty if it can."""
    data = image.data
    if not data.strip():
        return EMPTY
    size = _decoded_size(data)
    if size == 0:
        return BROKEN
    if size > rules.max_bytes:
        return f"{size / 2**20:.1f} MB is over the limit of {rules.max_bytes / 2**20:.0f} MB"
    mime, width, height = _facts(data[:_HEAD])
    if mime not in rules.media:
        return UNKNOWN
    if max(width, height) > rules.max_side:
        return f"{width}x{height} is over the limit of {rules.max_side} pixels a side"
    return ""


def side(image: Image) -> int:
    """The longer side in pixels; 0 where the bytes don't tell."""
    return max(size_of(image))


def size_of(image: Image) -> tuple[int, int]:
    """Width and height in pixels; zeros where the bytes don't tell."""
    _, width, height = _facts(image.data[:_HEAD])
    return width, height


def _decoded_size(data: str) -> int:
    try:
        return len(binascii.a2b_base64(data, strict_mode=True))
    except (binascii.Error, ValueError):
        return 0


@lru_cache(maxsize=256)
def _facts(head: str) -> tuple[str, int, int]:
    """Media type, width and height, from the beginning of the base64 text."""
    raw = _lenient(head)
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png", int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
    if raw.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif", int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")
    if raw.startswith(b"\xff\xd8\xff"):
        return "image/jpeg", *_jpeg(raw)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp", *_webp(raw)
    return "", 0, 0


def _lenient(head: str) -> bytes:
    try:
        return binascii.a2b_base64(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _jpeg(raw: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(raw) and raw[at] == 0xFF:
        kind = raw[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(raw[at + 7 : at + 9], "big"), int.from_bytes(raw[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return 0, 0


def _webp(raw: bytes) -> tuple[int, int]:
    if raw[12:16] == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if raw[12:16] == b"VP8 ":
        return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF
    return 0, 0
