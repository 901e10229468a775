"""Bootstrap files: gates, budgets, and the report about them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.prompt.bootstrap import NAMES, BootstrapFile, Kind, inject, session_kind, warning

FILES = tuple(BootstrapFile(name, f"/w/{name}", f"text of {name}") for name in NAMES)


def names(kind: str) -> list[str]:
    return [file.path for file in inject(FILES, kind, per_file=1_000, total=10_000).files]  # type: ignore[arg-type]


def test_each_kind_of_session_gets_its_own_files() -> None:
    assert names("main") == list(NAMES)
    delegated = ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md"]
    assert names("subagent") == names("cron") == delegated
    assert names("heartbeat") == ["HEARTBEAT.md"]
    assert names("first_run") == [*delegated, "BOOTSTRAP.md"]


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("agent:main:main", "main"), ("agent:main:cli:dm:local", "main"), ("", "main"),
        ("agent:main:telegram:group:5", "group"), ("agent:a:discord:channel:7", "group"),
        ("agent:main:subagent:abc", "subagent"), ("subagent:abc", "subagent"),
        ("agent:a:cron:job:run:1", "cron"), ("agent:a:telegram:dm:subagent", "main"),
        ("agent:a:heartbeat", "heartbeat"), ("Agent:A:SubAgent:X", "subagent"), ("cron:job", "cron"),
        ("agent:a:subagent:x:subagent:y", "subagent"), ("agent:a:direct:ann", "main"),
        ("agent:a:telegram:work:direct:ann", "main"), ("agent:a:telegram:group:5:thread:9", "group"),
    ],
)  # fmt: skip
def test_the_session_key_says_what_a_session_is(key: str, kind: str) -> None:
    assert session_kind(key) == kind


@pytest.mark.parametrize("key", ["agent:a:telegram:group:5", "agent:a:subagent:x", "agent:a:cron:job"])
def test_only_a_main_session_is_a_first_run_in_a_new_workspace(key: str) -> None:
    assert session_kind("agent:a:main", first_run=True) == "first_run"
    assert session_kind(key, first_run=True) == session_kind(key)


def test_the_heartbeat_file_is_for_heartbeat_runs_only_where_their_guidance_is_off() -> None:
    def shown(kind: Kind) -> list[str]:
        made = inject(FILES, kind, per_file=1_000, total=10_000, heartbeats=False)
        return [file.path for file in made.files]

    assert "HEARTBEAT.md" not in shown("main")
    assert shown("heartbeat") == ["HEARTBEAT.md"]


def test_a_long_file_keeps_head_and_tail_and_names_itself() -> None:
    text = "H" * 700 + "m" * 9_000 + "T" * 200
    made = inject((BootstrapFile("AGENTS.md", "/w/AGENTS.md", text),), "main", per_file=1_000, total=10_000)
    shown = made.files[0].text
    assert shown.startswith(
        "H" * 700 + "\n\n[... shortened: kept the first 700 and the last 200 of 9,900 characters"
    )
    assert "read AGENTS.md for the rest" in shown
    assert shown.endswith("T" * 200)
    assert made.report[0].cause == "file"
    assert "AGENTS.md" in warning(made.report)


def test_a_missing_file_leaves_a_placeholder_unless_its_absence_is_normal() -> None:
    made = inject(
        tuple(BootstrapFile(name, f"/w/{name}") for name in NAMES), "main", per_file=100, total=1_000
    )
    assert made.files[0].text == "[MISSING] Expected at: /w/AGENTS.md"
    assert [file.path for file in made.files] == [
        "AGENTS.md",
        "SOUL.md",
        "TOOLS.md",
        "IDENTITY.md",
        "USER.md",
    ]


def test_the_total_is_spent_in_order_and_what_is_left_out_is_reported() -> None:
    files = tuple(BootstrapFile(name, name, "x" * 900) for name in NAMES)
    made = inject(files, "main", per_file=1_000, total=1_850)
    assert [share.injected for share in made.report] == [900, 900, 0, 0, 0, 0, 0]
    assert {share.cause for share in made.report[2:]} == {"total"}


def test_a_file_of_another_name_never_gets_in() -> None:
    assert not inject((BootstrapFile("EVIL.md", "EVIL.md", "x"),), "main", per_file=99, total=99).files


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.text(max_size=3_000)), max_size=9),
    st.integers(1, 2_000),
    st.integers(0, 5_000),
)
def test_no_files_ever_cost_more_than_the_total(
    files: list[tuple[str, str | None]], per_file: int, total: int
) -> None:
    made = inject(tuple(BootstrapFile(n, n, t) for n, t in files), "main", per_file=per_file, total=total)
    assert sum(len(file.text) for file in made.files) == made.chars <= total
