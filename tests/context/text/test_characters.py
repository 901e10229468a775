"""Cleaning looks at bytes first, and gives what the expressions alone would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.text import characters
from perdure.context.text.characters import clean

ODD = st.sampled_from(
    ["\u00ad", "\u061c", "\u180e", "\u200b", "\u200d", "\u202e", "\u2060", "\u2069", "\ufeff", "\U000e0041",
     "\x1b[31m", "\x9b1m", "\x85", "\x00", "\x7f", "\ud83d", "\udc00", "\xa0", "—", "…", "’", "é", "👍🏽",
     "👩\u200d💻"]
)  # fmt: skip
TEXTS = st.lists(st.one_of(ODD, st.text(st.characters(codec=None), max_size=4))).map("".join)


@given(TEXTS, st.booleans())
def test_the_quick_look_misses_nothing(text: str, foreign: bool) -> None:
    slow = characters._plain(characters.encodable(text))
    slow = characters._HIDDEN.sub(characters._visible, slow) if foreign else slow
    assert clean(text, foreign=foreign) == slow


def test_every_character_alone_is_cleaned_as_the_expressions_say() -> None:
    for code in (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0100)):
        for text in (f"a{chr(code)}b", f"é{chr(code)}é"):
            slow = characters._plain(characters.encodable(text))
            slow = characters._HIDDEN.sub(characters._visible, slow)
            assert clean(text, foreign=True) == slow, hex(code)
