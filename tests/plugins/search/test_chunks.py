from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.plugins.search.chunks import cut, quarters

texts = st.lists(
    st.sampled_from(
        [
            "word ",
            "Sentence. ",
            "\n",
            "\n\n",
            "# Title\n",
            "東京の天気。",
            "    code()\n",
            "x" * 90,
            "👩‍👩‍👧‍👦",
            "```\n",
            "é",
            "e\u0301",
        ]
    ),
    max_size=60,
).map("".join)


@given(texts, st.integers(4, 40), st.integers(0, 20))
def test_pieces_are_bounded_hold_everything_and_know_their_lines(text, tokens, overlap):
    pieces = cut(text, tokens=tokens, overlap=overlap)
    lines = text.split("\n")
    for piece in pieces:
        assert quarters(piece.text) <= 4 * tokens + 40  # a visible character is never cut
        assert piece.text in "\n".join(lines[piece.start - 1 : piece.end])
    covered = {number for piece in pieces for number in range(piece.start, piece.end + 1)}
    assert covered.issuperset(number for number, line in enumerate(lines, 1) if line.strip())
    assert [piece.start for piece in pieces] == sorted(piece.start for piece in pieces)


def test_a_piece_ends_where_the_text_does():
    text = "intro words here. " * 6 + "\n\n# Second\n" + "more words. " * 9
    first, second = cut(text, tokens=40, overlap=10)
    assert second.text.startswith("# Second")
    assert first.text.endswith("here.")


def test_a_function_stays_whole():
    code = "\n\n".join(f"def f{n}():\n    a = 1\n\n    return a" for n in range(8))
    assert all(piece.text.startswith("def ") for piece in cut(code, tokens=30, overlap=0))


def test_the_end_is_repeated_at_the_beginning_of_the_next():
    pieces = cut("\n".join(f"line {n} of the text" for n in range(60)), tokens=60, overlap=20)
    assert all(b.start <= a.end < b.end for a, b in pairwise(pieces))


@pytest.mark.parametrize(
    "text", ["猫" * 60_000, "x" * 200_000, ".!?" * 20_000, "\n" * 30_000, "```\n" * 20_000]
)
def test_long_texts_are_cut_in_linear_time(text):
    assert all(quarters(piece.text) <= 1_600 for piece in cut(text))
