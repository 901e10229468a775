"""Pictures in a request: what a provider would refuse is replaced by a line of text that says so.

Pure: sizes are read from the first bytes, nothing is decoded or scaled (that is done once, before a
picture is written to its session: see `edges.images`). No picture goes silently.
"""

from __future__ import annotations

import binascii
from functools import lru_cache

from perdure.context.pictures.pixels import Facts, facts
from perdure.context.policy import ImageRules
from perdure.records import Image, Text

EMPTY = "no data"
BROKEN = "its data is not valid base64"
UNKNOWN = "its format is not one the model reads"
UNREAD = "this model does not read images"
OLDER = "an older image, taken out to stay inside the limit on images of one request"
GONE = "its bytes, kept beside the session, could not be read"
IN_ERROR = "the result of a failed call holds text only"
OF_MODEL = "images of the model itself can't be sent back to it"
_HEAD = 64 * 1024  # base64 characters looked at for the size; a JPEG's frame header stands inside


def notice(reason: str, image: Image, ref: str = "") -> Text:
    """The text that stands where an image stood: why, what it was, and, with `ref`, how to see it."""
    about = _about(image)
    how = f"; `recall {ref}` shows it" if ref else ""
    return Text(f"[image omitted: {reason}{f' ({about})' if about else ''}{how}]")


def described(image: Image) -> str:
    """The line for programs that don't know where we keep an image's bytes, and for people."""
    where = f"; evidence sha256:{image.kept.digest}, read it with recall" if image.kept else ""
    return f"[image: {_about(image) or 'no data'}{where}]"


def _about(image: Image) -> str:
    """Media type, sides and size, as far as they can be told; the same whether kept bytes are read or not."""
    found, size = known(image), size_of(image)
    sides = f" {found.width}x{found.height}" if found.side else ""
    return f"{found.mime or 'unknown kind'}{sides}, {_told(size)}" if size else ""


def _told(size: int) -> str:
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{-(-size // 1024)} KB"


def wire_image(image: Image, rules: ImageRules, ref: str = "") -> Image | Text:
    """The image as it may be sent, its media type told by its bytes; else a notice.

    `ref` is what `recall` knows the image by, where it can be asked for again.
    """
    reason = problem(image, rules)
    if reason:
        return notice(reason, image, "" if reason in (EMPTY, BROKEN, GONE) else ref)
    mime = known(image).mime
    return image if mime == image.mime else Image(image.data, mime, image.kept)


def problem(image: Image, rules: ImageRules) -> str:
    """Why this image can't be sent; empty if it can."""
    if not image.data.strip():
        return GONE if image.kept else EMPTY
    size = size_of(image)
    if size == 0:
        return BROKEN
    if size > rules.max_bytes:
        return f"over the limit of {_told(rules.max_bytes)}"
    found = known(image)
    if found.mime not in rules.media:
        return UNKNOWN
    if found.side > rules.max_side:
        return f"over the limit of {rules.max_side} pixels a side"
    return ""


def known(image: Image) -> Facts:
    """Media type and sides; of a kept image from its record, so that no bytes are needed."""
    if image.kept is not None:
        return Facts(image.mime, image.kept.width, image.kept.height)
    return _facts(image.data[:_HEAD])


def size_of(image: Image) -> int:
    """Bytes of the picture; 0 where its data are no base64."""
    if image.kept is not None:
        return image.kept.size
    try:
        return len(binascii.a2b_base64(image.data, strict_mode=True))
    except (binascii.Error, ValueError):
        return 0


@lru_cache(maxsize=256)
def _facts(head: str) -> Facts:
    try:
        return facts(binascii.a2b_base64(head[: len(head) // 4 * 4]))
    except (binascii.Error, ValueError):
        return Facts()
