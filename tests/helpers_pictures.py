"""Real pictures, made with the image library of the extra."""

from __future__ import annotations

import base64
import io
from random import Random
from typing import Any

from PIL import Image as Pillow

from perdure.records import Image


def noise(width: int, height: int, mode: str = "RGB") -> Pillow.Image:
    """A picture that compresses badly, the same each time."""
    size = (max(1, width // 4), max(1, height // 4))
    small = Pillow.frombytes("L", size, Random(0).randbytes(size[0] * size[1]))
    return small.resize((width, height), Pillow.Resampling.NEAREST).convert(mode)


def saved(picture: Pillow.Image, kind: str, **options: Any) -> bytes:
    """A picture as the bytes of a file."""
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def opened(data: bytes) -> Pillow.Image:
    """The picture in these bytes, decoded."""
    picture = Pillow.open(io.BytesIO(data))
    picture.load()
    return picture


def image(data: bytes, mime: str) -> Image:
    """Bytes as a block."""
    return Image(base64.b64encode(data).decode(), mime)
