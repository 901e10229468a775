"""Images: real bytes of the declared type, within the limits of size and of many-image requests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from perdure.edges.models.rules.refusal import Json, invalid

TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_SIDE, MAX_SIDE_MANY, MANY = 8000, 2000, 20
MAX_BASE64 = 10 * 1024 * 1024  # newer models; older ones take 5 MB
HEAD = 64 * 1024  # base64 characters looked at for the size: a JPEG may carry long metadata first


def images(messages: list[Json]) -> Iterator[tuple[str, Json]]:
    """(path, block) of every image, nested ones included."""
    for n, message in enumerate(messages):
        if type(message["content"]) is list:
            yield from _of_blocks(message["content"], f"messages.{n}.content")


def _of_blocks(blocks: list[Any], path: str) -> Iterator[tuple[str, Json]]:
    for m, block in enumerate(blocks):
        if block["type"] == "image":
            yield f"{path}.{m}", block
        elif block["type"] == "tool_result" and type(block.get("content")) is list:
            yield from _of_blocks(block["content"], f"{path}.{m}.content")


def check_images(messages: list[Json], *, known: bool) -> None:
    """Each image, with the limit that the number of images in the request sets."""
    found = list(images(messages))
    many = len(found) > MANY
    for path, block in found:
        source = block["source"]
        if source.get("type") == "base64":
            _check_base64(source, f"{path}.image.source.base64", many, known)
        elif source.get("type") not in ("url", "file"):
            invalid(f"{path}.image.source: Input tag does not match any of: 'base64', 'file', 'url'")


def _check_base64(source: Json, path: str, many: bool, known: bool) -> None:
    mime, data = source.get("media_type"), source.get("data")
    if mime not in TYPES:
        invalid(f"{path}.media_type: Input should be {', '.join(map(repr, TYPES))}")
    if not isinstance(data, str) or not data:
        invalid(f"{path}.data: Field required")
    if len(data) > MAX_BASE64:
        invalid(f"{path}.data: image exceeds 10 MB maximum: {len(data)} bytes > {MAX_BASE64} bytes")
    head = decode_head(data)
    if head is None:
        invalid(f"{path}.data: Invalid base64 data")
    real = mime_of(head)
    if known and real and real != mime:
        invalid(
            f"{path}.media_type: Image does not match the provided media type {mime}: the bytes are {real}"
        )
    side = max(size_of(head) or (0, 0))
    if side > MAX_SIDE:
        invalid(
            f"{path}.data: At least one of the image dimensions exceed max allowed size: {MAX_SIDE} pixels"
        )
    if many and side > MAX_SIDE_MANY:
        invalid(
            f"{path}.data: At least one of the image dimensions exceed max allowed size for many-image "
            f"requests: {MAX_SIDE_MANY} pixels"
        )


def decode_head(data: str) -> bytes | None:
    """The first bytes of a base64 text; None where it is none."""
    try:
        return base64.b64decode(data[:HEAD], validate=True)
    except (binascii.Error, ValueError):
        return None


def mime_of(head: bytes) -> str | None:
    """The type that the first bytes tell."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def size_of(head: bytes) -> tuple[int, int] | None:
    """Width and height in pixels from the first bytes of a PNG, GIF, JPEG or WebP file."""
    kind = mime_of(head)
    if kind == "image/png" and len(head) >= 24:
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if kind == "image/gif" and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if kind == "image/jpeg":
        return _jpeg_size(head)
    return _webp_size(head) if kind == "image/webp" else None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[at + 7 : at + 9], "big"), int.from_bytes(head[at + 5 : at + 7], "big")
        at += 2 + max(2, int.from_bytes(head[at + 2 : at + 4], "big"))
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    if len(head) < 30:
        return None
    if head[12:16] == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
