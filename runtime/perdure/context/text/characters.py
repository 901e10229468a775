"""Characters that no request may carry, and what stands in their place.

Lone surrogates can't be encoded, NUL and control bytes cut bodies short further down, terminal and
direction codes let tool output lie to its reader. The same text always gives the same result.
"""

from __future__ import annotations

import re

NUL_SIGN = "\u2400"  # ␀, visible where the NUL stood

_CONTROL_BYTES = bytes([*range(9), 11, 12, *range(14, 32), 127])
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_TERMINAL = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    "|(?:\x1b\\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)"  # OSC: titles, links
    "|\x1b[PX^_][^\x1b]*\x1b\\\\"  # DCS, SOS, PM, APC
    "|\x1b[ -/]*[0-Z\\\\^-~]"  # the two-character ones
)
_HIDDEN = re.compile(
    "(\U0001f3f4[\U000e0020-\U000e007f]{1,16})"  # a flag made of tags is a real picture: kept
    "|([^\x00-\x7f][\u200c\u200d](?=[^\x00-\x7f]))"  # joiners inside emoji and joining scripts: kept
    "|[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)

# UTF-8 that a C1 control or a hidden character could begin with: looked for before any expression runs,
# because a text is many kilobytes and hardly ever holds one.
_LATIN = b"\xc2"
_HIDING = (b"\xd8\x9c", b"\xe1\xa0\x8e", b"\xe2\x81", b"\xef\xbb\xbf", b"\xf3\xa0")
_PUNCTUATION, _HIDING_PUNCTUATION = b"\xe2\x80", re.compile(rb"\xe2\x80[\x8b-\x8f\xaa-\xae]")


def encodable(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates as U+FFFD; all else untouched."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def clean(text: str, *, foreign: bool = False) -> str:
    """The text as a model may read it.

    Lone surrogates become U+FFFD, NUL a visible sign; terminal sequences and other control
    characters (but tab and line ends) go. `foreign` text (output of tools and commands) also loses
    invisible and direction-changing characters; joiners inside real emoji stay.
    """
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        text = encodable(text)
        raw = text.encode()
    if len(raw.translate(None, _CONTROL_BYTES)) == len(raw) and (len(raw) == len(text) or _LATIN not in raw):
        cleaned = text
    else:
        cleaned = _plain(text)
    return _HIDDEN.sub(_visible, cleaned) if foreign and _may_hide(raw) else cleaned


def _may_hide(raw: bytes) -> bool:
    if _LATIN in raw or any(mark in raw for mark in _HIDING):
        return True
    return _PUNCTUATION in raw and _HIDING_PUNCTUATION.search(raw) is not None


def _plain(text: str) -> str:
    if "\x1b" in text or "\x9b" in text or "\x9d" in text:
        text = _TERMINAL.sub("", text)
    if "\x00" in text:
        text = text.replace("\x00", NUL_SIGN)
    return _CONTROL.sub("", text)


def _visible(found: re.Match[str]) -> str:
    return found.group(1) or found.group(2) or ""
