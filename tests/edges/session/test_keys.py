import string
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.edges.session import keys
from perdure.errors import UsageError

any_text = st.text(min_size=1, max_size=300)


@given(any_text)
def test_every_key_comes_back_from_its_path(key):
    assert keys.key_of(keys.relative_path(key)) == key


@given(any_text, any_text)
def test_two_keys_never_share_a_path_even_where_case_does_not_count(one, other):
    paths = {str(keys.relative_path(key)).lower() for key in (one, other)}
    assert len(paths) == len({one, other})


@given(any_text)
def test_no_key_leaves_the_folder_or_needs_a_special_character(key):
    allowed = set(string.ascii_lowercase + string.digits + "_-+%~")
    for part in keys.relative_path(key).parts:
        assert len(part) < 190
        assert set(part.removesuffix(".jsonl")) <= allowed


def test_an_ordinary_key_stays_readable():
    path = keys.relative_path("agent:main:telegram:dm:123")
    assert path == PurePosixPath("main/agent+main+telegram+dm+123.jsonl")


@pytest.mark.parametrize(
    "key", ["../../etc/passwd", "a\0b", "agent:..:x", "agent:\ud800:x", "CON", "é" * 200]
)
def test_hostile_keys_have_a_plain_path(key):
    path = keys.relative_path(key)
    assert ".." not in path.parts
    assert keys.key_of(path) == key


@pytest.mark.parametrize("key", ["", "x" * 5000])
def test_an_empty_or_endless_key_gets_one_clear_line(key):
    with pytest.raises(UsageError) as told:
        keys.relative_path(key)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "path", ["main/Upper.jsonl", "main/a%2.jsonl", "main/x.txt", "wrong/agent+main+a.jsonl"]
)
def test_a_name_that_is_not_ours_is_no_key(path):
    with pytest.raises(ValueError):
        keys.key_of(PurePosixPath(path))
