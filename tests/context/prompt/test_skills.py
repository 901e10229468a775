"""Skills: reading front matter, and a list that fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.prompt.skills import MAX_SKILLS, Skill, listing, parse

PATH = "skills/deploy/SKILL.md"


@pytest.mark.parametrize(
    ("text", "name", "description"),
    [
        ("---\nname: ship\ndescription: Ships it\n---\nbody", "ship", "Ships it"),
        (
            "---\r\nname: \"ship\"\r\ndescription: 'It''s \"quoted\": yes'\r\n---\r\n",
            "ship",
            'It\'s "quoted": yes',
        ),
        ("---\ndescription: >\n  Folded\n  text\nother: x\n---\n", "deploy", "Folded text"),
        ("---\nname: a\ndescription: plain\n  continued # note\n...\n", "a", "plain continued"),
        ("\ufeff---\nmetadata: {x: 1}\nname: b\ndescription: 部署到服务器\n---", "b", "部署到服务器"),
    ],
)
def test_front_matter_as_people_write_it_is_read(text: str, name: str, description: str) -> None:
    assert parse(text, PATH) == Skill(name, description, PATH)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no front matter"),
        ("name: x", "no front matter"),
        ("---\nname: x\ndescription: never closed", "no front matter"),
        ("---\nname: x\n---", "no description"),
        ("---\nname: ../../etc\ndescription: d\n---", "not a skill's name"),
        ("---\nname: " + "x" * 99 + "\ndescription: d\n---", "not a skill's name"),
    ],
)
def test_a_file_that_declares_no_skill_says_why(text: str, reason: str) -> None:
    assert reason in str(parse(text, PATH))


def test_the_list_is_sorted_and_a_name_given_twice_counts_once() -> None:
    skills = (Skill("b", "two", "z/b"), Skill("a", "one", "z/a"), Skill("b", "other", "y/b"))
    assert listing(skills).split("\n")[1:] == ["- a: one (z/a)", "- b: other (y/b)"]
    assert listing(skills) == listing(tuple(reversed(skills)))


def test_a_list_that_is_too_long_loses_descriptions_first_then_skills_and_says_so() -> None:
    skills = tuple(Skill(f"s{n:03}", "d" * 200, f"skills/s{n:03}/SKILL.md") for n in range(100))
    assert "ddd" not in listing(skills, 10_000)
    assert "s099" in listing(skills, 10_000)
    short = listing(skills, 1_000)
    assert "⚠️ Skills truncated: included " in short
    assert len(short) <= 1_000
    assert listing(skills, 10) == ""
    many = tuple(Skill(f"s{n:03}", "d", "p") for n in range(MAX_SKILLS + 5))
    assert f"included {MAX_SKILLS} of {MAX_SKILLS + 5}" in listing(many)


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    assert isinstance(parse("---\n" + text, PATH), Skill | str)
    assert isinstance(parse(text, PATH), Skill | str)
