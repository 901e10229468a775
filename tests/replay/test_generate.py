"""Generated texts: exactly as long as asked, and the same bytes in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.replay.generate import KINDS, text

GOLDEN = {
    "log": "55359b90badc2087",
    "json": "235a85cbf1c745e9",
    "code": "3e8e93df01b518cc",
    "prose": "a9e377fd1ba5f040",
    "cjk": "04d54d24255dd355",
    "base64": "e68fc9a4d8918f41",
}
SHOW = (
    "from hashlib import sha256; from perdure.replay.generate import KINDS, text\n"
    "for kind in KINDS: print(sha256(text(kind, 5000, 9, 'begin', 'end').encode()).hexdigest()[:16])"
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_never_changes(kind: str) -> None:
    made = text(kind, 5000, seed=9, head="begin", tail="end")
    assert sha256(made.encode()).hexdigest()[:16] == GOLDEN[kind]


def test_another_process_with_another_hash_seed_makes_the_same_texts() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SHOW],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert outputs == {"".join(f"{GOLDEN[kind]}\n" for kind in KINDS)}


@given(st.sampled_from(KINDS), st.integers(0, 4000), st.integers(), st.sampled_from(["", "a fact"]))
def test_a_text_is_exactly_as_long_as_asked_and_holds_its_ends(
    kind: str, chars: int, seed: int, end: str
) -> None:
    chars += 2 * len(end) + 2
    made = text(kind, chars, seed, head=end, tail=end)
    assert len(made) == chars
    assert len(made.encode("utf-16-le")) == 2 * chars
    assert made.startswith(end)
    assert made.endswith(end)


@pytest.mark.parametrize("kind", KINDS)
def test_seeds_make_different_texts_without_repeating_themselves(kind: str) -> None:
    made = [text(kind, 3000, seed) for seed in range(5)]
    assert len(set(made)) == 5
    rows = [row for row in made[0].splitlines() if row]
    assert all(one != other for one, other in pairwise(rows))


def test_cjk_is_cjk() -> None:
    made = text("cjk", 2000)
    assert sum("\u4e00" <= char <= "\u9fff" for char in made) > 1600


def test_ends_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="only 5 are asked"):
        text("log", 5, tail="too long")
