"""Brings a picture into what every provider takes: orientation, sides, bytes, kind. Needs Pillow.

Done once, before a picture is written to its session, so that what a request shows never depends on the
version of a library. Blocking: callers go through the I/O policy.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, TypeAlias

from perdure.context.pictures.pixels import facts
from perdure.errors import UnreadableFile
from perdure.records import Record

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

MAX_SIDE = 1_568
"""The longer side that models look at without scaling it down themselves; the many-image limit is above."""

MAX_BYTES = 5 * 1024 * 1024 * 3 // 4
"""Five MiB of base64, the smallest limit of the providers in the policy table."""

MAX_PIXELS = 64_000_000
"""A picture that decodes to more is refused: 64 megapixels are about 200 MB while it is scaled."""

MEDIA = ("image/jpeg", "image/png", "image/gif", "image/webp")
KINDS = (
    *("PNG", "JPEG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "ICO", "HEIF", "AVIF", "JPEG2000", "PPM"),
    *("TGA", "PCX", "DDS", "ICNS", "SGI", "PSD", "QOI"),
)
"""Kinds of pictures that are read, where the library is built with them."""

SIDES = (1_800, 1_600, 1_400, 1_200, 1_000, 800)
QUALITIES = (85, 75, 65, 55, 45, 35)
_LOSSY = frozenset({"JPEG", "MPO", "HEIF", "AVIF"})


class Fitted(Record):
    """A picture as it may be sent; `changed` is false where the given bytes may be."""

    data: bytes
    mime: str
    width: int
    height: int
    changed: bool


Scaler: TypeAlias = Callable[[bytes], Fitted]


def scaler(max_side: int = MAX_SIDE) -> Scaler | None:
    """What fits pictures into `max_side` pixels; None where Pillow is not installed."""
    if find_spec("PIL") is None:
        return None
    return lambda data: fit(data, max_side)


def fit(data: bytes, max_side: int = MAX_SIDE) -> Fitted:
    """The picture within the limits. Raises `UnreadableFile` with the reason where that can't be.

    Turned upright, of several frames the first; lossless kinds stay so while that fits the bytes.
    """
    from PIL import Image, UnidentifiedImageError

    told = facts(data)
    if told.width * told.height > MAX_PIXELS and told.mime != "image/jpeg":
        raise UnreadableFile(_too_many(told.width, told.height))
    try:
        with _open(data) as picture:
            return _fitted(picture, data, max_side)
    except UnreadableFile:
        raise
    except Image.DecompressionBombError:
        raise UnreadableFile(_too_many(told.width, told.height)) from None
    except UnidentifiedImageError:
        if told.mime in ("image/heic", "image/avif"):  # some models read what this library was built without
            return Fitted(data, told.mime, told.width, told.height, changed=False)
        raise UnreadableFile("its format is not one that can be read") from None
    except MemoryError:
        raise UnreadableFile("it takes too much memory to decode") from None
    except Exception as error:  # a decoder of hostile bytes raises whatever it likes
        raise UnreadableFile(f"it can't be decoded ({type(error).__name__})") from None


def _open(data: bytes) -> Picture:
    """Reads its head. Only kinds that the library decodes by itself: for PostScript it runs a program."""
    from PIL import Image

    # It warns of what it would refuse at twice the size; a JPEG within is decoded at an eighth.
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    Image.init()
    return Image.open(io.BytesIO(data), formats=[kind for kind in KINDS if kind in Image.OPEN])


def _fitted(picture: Picture, data: bytes, max_side: int) -> Fitted:
    from PIL import Image, ImageOps

    kind, mime = picture.format or "", Image.MIME.get(picture.format or "", "")
    upright = picture.getexif().get(0x0112, 1) in (0, 1)
    small = max(picture.size) <= max_side
    if not small:
        share = max_side / max(picture.size)  # JPEG: decoded at a half, a quarter, an eighth
        picture.draft("RGB", (ceil(picture.width * share), ceil(picture.height * share)))
    if picture.width * picture.height > MAX_PIXELS:
        raise UnreadableFile(_too_many(*picture.size))
    picture.load()  # also of one that is sent as it is: a broken one would fail every later request
    if small and upright and mime in MEDIA and len(data) <= MAX_BYTES:
        return Fitted(data, mime, *picture.size, changed=False)
    whole = _plain(ImageOps.exif_transpose(picture))
    for made in _ladder(whole, max_side, lossy=kind in _LOSSY):
        if len(made.data) <= MAX_BYTES:
            return made
    raise UnreadableFile(f"it could not be brought under {MAX_BYTES / 2**20:.2f} MB")


def _ladder(picture: Picture, max_side: int, *, lossy: bool) -> Iterator[Fitted]:
    """Ever smaller forms of a picture: PNG first where it was lossless, then JPEG by side and quality."""
    start = min(max_side, max(picture.size))
    if not lossy:
        yield _saved(_scaled(picture, start), "PNG")
    flat = _flat(picture)
    for side in sorted({min(start, side) for side in (start, *SIDES)}, reverse=True):
        scaled = _scaled(flat, side)
        for quality in QUALITIES:
            yield _saved(scaled, "JPEG", quality)


def _scaled(picture: Picture, side: int) -> Picture:
    from PIL.Image import Resampling

    if max(picture.size) <= side:
        return picture
    scaled = picture.copy()
    scaled.thumbnail((side, side), Resampling.LANCZOS, reducing_gap=3.0)
    return scaled


def _plain(picture: Picture) -> Picture:
    """In one of the modes that scale and save well; 16-bit grey is brought down, palettes are resolved."""
    if picture.mode.startswith("I;16"):
        return picture.point(lambda value: value / 256).convert("L")
    if picture.mode in ("RGB", "RGBA", "L"):
        return picture
    clear = picture.mode in ("LA", "PA", "RGBa", "La") or "transparency" in picture.info
    return picture.convert("RGBA" if clear else "RGB")


def _flat(picture: Picture) -> Picture:
    """Without transparency, on white: JPEG has none."""
    from PIL import Image

    if picture.mode != "RGBA":
        return picture
    ground = Image.new("RGB", picture.size, "white")
    ground.paste(picture, mask=picture.getchannel("A"))
    return ground


def _saved(picture: Picture, kind: str, quality: int = 0) -> Fitted:
    out = io.BytesIO()
    picture.save(out, kind, **({"quality": quality} if quality else {}))
    return Fitted(out.getvalue(), f"image/{kind.lower()}", *picture.size, changed=True)


def _too_many(width: int, height: int) -> str:
    return f"{width}x{height} pixels are too many to decode (limit {MAX_PIXELS // 1_000_000} million)"
