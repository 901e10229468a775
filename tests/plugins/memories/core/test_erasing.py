import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.plugins.memories.core.erasing import wanted, without


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("One. The code is SECRET. Two.", "One. Two."),
        ("- a\n- the secret\n- b", "- a\n- b"),
        ("- a. The secret. c\n", "- a. c\n"),
        ("A line that wraps\nwith the secret in it. The next.\n\nEnd", "The next.\n\nEnd"),
        ("```\nx = 1\nsecret = 2\ny = 3\n```", "```\nx = 1\ny = 3\n```"),
        ("| a | b |\n| secret | c |\n| d | e |", "| a | b |\n| d | e |"),
        ("# The secret\ntext", "text"),
        ("没有。这是 secret。还有。", "没有。还有。"),
        ("nothing here", "nothing here"),
    ],
)
def test_what_says_it_goes_and_the_rest_stays(text, left):
    assert without(text, wanted("secret"))[0] == left


def test_a_text_over_several_lines_is_found_whatever_its_white_space():
    left, lines = without("a\n\nthe quick\nbrown fox.\n\nb", wanted("The  quick brown"))
    assert (left.split(), lines) == (["a", "b"], (3, 4))


@pytest.mark.parametrize("text", ["", "  ", "a", "ab", "猫"])
def test_what_says_too_little_is_refused(text):
    with pytest.raises(UsageError, match="too short"):
        wanted(text)


parts = st.lists(
    st.sampled_from(["secret", "word", ". ", "\n", "- ", "。", "\n\n", "```\n", "se", "cret", " "]),
    max_size=25,
)


@given(parts)
def test_nothing_of_it_is_left_and_nothing_is_added(said):
    text = "".join(said)
    left, lines = without(text, wanted("secret"))
    assert "secret" not in left
    assert (left != text) == bool(lines)
    kept = iter(text)
    assert all(char in kept for char in left)  # a subsequence: nothing moved, nothing new
