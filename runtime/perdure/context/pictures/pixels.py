"""What a picture is by its first bytes: media type, width and height. Nothing is decoded."""

from __future__ import annotations

from perdure.records import Record


class Facts(Record):
    """`mime` is empty where the bytes are of no kind we know; sides are 0 where they don't tell."""

    mime: str = ""
    width: int = 0
    height: int = 0

    @property
    def side(self) -> int:
        """The longer side in pixels."""
        return max(self.width, self.height)


def facts(raw: bytes) -> Facts:
    """The facts of a picture from its beginning: 48 KiB are enough for all but odd files."""
    if raw.startswith(b"\x89PNG\r\n\x1a\n"):
        return Facts("image/png", int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big"))
    if raw.startswith((b"GIF87a", b"GIF89a")):
        return Facts("image/gif", int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little"))
    if raw.startswith(b"\xff\xd8\xff"):
        return Facts("image/jpeg", *_jpeg(raw))
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return Facts("image/webp", *_webp(raw))
    return Facts(_other(raw))


def _other(raw: bytes) -> str:
    """Kinds that models don't read, so that a notice can name them and a library convert them."""
    if raw.startswith(b"BM") and raw[6:10] == b"\0\0\0\0":  # two letters alone would be a text's, too
        return "image/bmp"
    if raw.startswith((b"II*\x00", b"MM\x00*")):
        return "image/tiff"
    if raw[4:8] == b"ftyp":
        brand = raw[8:12]
        return "image/avif" if brand in (b"avif", b"avis") else "image/heic" if brand[:2] == b"he" else ""
    return ""


def _jpeg(raw: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(raw) and raw[at] == 0xFF:
        kind = raw[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(raw[at + 7 : at + 9], "big"), int.from_bytes(raw[at + 5 : at + 7], "big")
        at += 2 + max(2, int.from_bytes(raw[at + 2 : at + 4], "big"))
    return 0, 0


def _webp(raw: bytes) -> tuple[int, int]:
    if len(raw) < 30:
        return 0, 0
    if raw[12:16] == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if raw[12:16] == b"VP8 ":
        return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF
    return 0, 0
