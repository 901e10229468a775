"""Recordings become scenarios: each rule of the conversion on a session in miniature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_replay import assistant, out_of_step, result, session_file, stamp, user
from perdure.errors import PerdureError, UsageError
from perdure.replay.importer import Imported, convert, write
from perdure.replay.rescript import CONTINUE, INTERRUPTED
from perdure.replay.scenario import parse
from perdure.replay.steps import (
    BashStep,
    ModelChangeStep,
    ModelStep,
    ThinkingStep,
    ToolStep,
    UserStep,
    moment,
)


def made(tmp_path: Path, *entries: dict[str, Any]) -> Imported:
    """The import of a session of these entries; every one must be a script that keeps in step."""
    imported = convert(session_file(tmp_path / "s.jsonl", list(entries)))
    assert out_of_step(imported.scenario) == []
    assert parse(write(imported), "out.jsonl") == imported.scenario
    return imported


def told(imported: Imported) -> list[tuple[str, str]]:
    """Each step as its kind and its words."""
    return [
        (
            str(type(step).__struct_config__.tag),
            getattr(step, "text", None) or getattr(step, "error", "") or "",
        )
        for step in imported.scenario.steps
    ]


def lost(imported: Imported) -> dict[str, int]:
    return {row.what: row.count for row in imported.lost}


def test_a_turn_with_a_tool_comes_through_whole(tmp_path: Path) -> None:
    imported = made(
        tmp_path, user("run it"), assistant("I do", "c1"), result("c1", "ran"), assistant("It ran.")
    )
    assert told(imported) == [("user", "run it"), ("model", "I do"), ("tool", "ran"), ("model", "It ran.")]
    asked, call, tool, _ = imported.scenario.steps
    assert isinstance(asked, UserStep)
    assert isinstance(call, ModelStep)
    assert isinstance(tool, ToolStep)
    assert (asked.at, moment(asked)) == (1.0, "rest")
    assert (call.calls[0].id, call.calls[0].name, bytes(call.calls[0].arguments)) == (
        "c1",
        "exec",
        b'{"n":"c1"}',
    )
    assert (tool.id, tool.error, tool.latency) == ("c1", False, 1.0)
    header = imported.scenario.header
    assert (header.model, header.cwd, header.start) == (
        "anthropic/claude-sonnet-4-5",
        "/srv/project",
        1767603600000,
    )
    assert imported.report("out.jsonl") == {
        "source": str(tmp_path / "s.jsonl"),
        "format": "session-v3",
        "entries": 4,
        "kept": 4,
        "lost": [],
        "out": "out.jsonl",
    }


def test_parallel_results_keep_their_calls_whatever_order_they_came_in(tmp_path: Path) -> None:
    imported = made(
        tmp_path, user(), assistant("", "c1", "c2"), result("c2", "two"), result("c1", "one"), assistant("ok")
    )
    tools = [step for step in imported.scenario.steps if isinstance(step, ToolStep)]
    assert [(tool.id, tool.text, tool.latency) for tool in tools] == [("c2", "two", 1.0), ("c1", "one", 2.0)]


def test_a_reused_call_id_gets_the_result_that_followed_it(tmp_path: Path) -> None:
    imported = made(
        tmp_path,
        user(),
        assistant("a", "c"),
        result("c", "first"),
        assistant("b", "c"),
        result("c", "second"),
        assistant("end"),
    )
    assert [words for kind, words in told(imported) if kind == "tool"] == ["first", "second"]


def test_a_call_without_a_result_is_answered_as_interrupted(tmp_path: Path) -> None:
    imported = made(
        tmp_path, user(), assistant("go", "c1", "c2"), result("c1"), user("still there?"), assistant("yes")
    )
    assert told(imported)[2:] == [
        ("tool", "done"),
        ("tool", INTERRUPTED),
        ("user", "still there?"),
        ("model", "yes"),
    ]
    assert moment(imported.scenario.steps[4]) == "during"  # type: ignore[arg-type]
    assert lost(imported) == {"calls without a result (answered as interrupted)": 1}


def test_a_result_without_a_call_and_a_second_result_are_counted_only(tmp_path: Path) -> None:
    imported = made(
        tmp_path,
        user(),
        result("c9"),
        assistant("", "c1"),
        result("c1"),
        result("c1", "again"),
        assistant("ok"),
    )
    assert [words for kind, words in told(imported) if kind == "tool"] == ["done"]
    assert lost(imported) == {"repeated tool results": 1, "tool results without a call": 1}


def test_a_recorded_error_ends_its_turn(tmp_path: Path) -> None:
    failed = assistant(stop="error", errorMessage="529 Overloaded")
    imported = made(tmp_path, user("a"), failed, user("b"), assistant("ok"))
    assert told(imported) == [("user", "a"), ("model", "529 Overloaded"), ("user", "b"), ("model", "ok")]
    answer = imported.scenario.steps[1]
    assert isinstance(answer, ModelStep)
    assert (answer.stop, answer.fault) == ("error", None)


def test_of_attempts_that_were_retried_at_once_the_last_is_the_reply(tmp_path: Path) -> None:
    failed = assistant(stop="error", errorMessage="429")
    imported = made(tmp_path, user("a"), failed, failed, assistant("at last"))
    assert told(imported) == [("user", "a"), ("model", "at last")]
    assert lost(imported) == {"failed attempts that were retried at once": 2}


def test_the_calls_of_an_aborted_answer_never_run(tmp_path: Path) -> None:
    imported = made(
        tmp_path, user("a"), assistant("half", "c1", stop="aborted"), result("c1"), user("b"), assistant("ok")
    )
    assert [kind for kind, _ in told(imported)] == ["user", "model", "user", "model"]
    assert lost(imported) == {"tool results without a call": 1}


def test_a_message_behind_a_result_steers_the_running_turn(tmp_path: Path) -> None:
    imported = made(
        tmp_path, user("a"), assistant("", "c1"), result("c1"), user("wait"), user("and"), assistant("ok")
    )
    asked = [step for step in imported.scenario.steps if isinstance(step, UserStep)]
    assert [moment(step) for step in asked] == ["rest", "during", "during"]


def test_a_question_without_a_reply_gets_an_aborted_one(tmp_path: Path) -> None:
    imported = made(tmp_path, user("a"), user("b"), assistant("to b"), user("c"))
    answers = [step for step in imported.scenario.steps if isinstance(step, ModelStep)]
    assert [answer.stop for answer in answers] == ["aborted", None, "aborted"]
    assert lost(imported) == {"replies missing in the recording (made up as aborted)": 2}


def test_a_reply_without_a_question_gets_one(tmp_path: Path) -> None:
    imported = made(tmp_path, user("a"), assistant("b"), assistant("and another thing"))
    assert told(imported)[2:] == [("user", CONTINUE), ("model", "and another thing")]
    assert lost(imported) == {"questions missing in the recording (made up)": 1}


def test_settings_and_commands_become_steps_once_the_turn_is_over(tmp_path: Path) -> None:
    bash = {
        "type": "message",
        "message": {
            "role": "bashExecution",
            "command": "ls",
            "output": "a\nb",
            "exitCode": 2,
            "cancelled": False,
        },
    }
    imported = made(
        tmp_path,
        {"type": "model_change", "provider": "anthropic", "modelId": "claude-sonnet-4-5"},
        {"type": "thinking_level_change", "thinkingLevel": "low"},
        user("a"),
        bash,
        {"type": "thinking_level_change", "thinkingLevel": "high"},
        assistant("b"),
        {"type": "model_change", "provider": "anthropic", "modelId": "claude-opus-4-5"},
        user("c"),
        assistant("d", model="claude-opus-4-5"),
    )
    assert [kind for kind, _ in told(imported)] == [
        "user",
        "model",
        "bash",
        "thinking",
        "model_change",
        "user",
        "model",
    ]
    ran, level, change = imported.scenario.steps[2:5]
    assert isinstance(ran, BashStep)
    assert isinstance(level, ThinkingStep)
    assert isinstance(change, ModelChangeStep)
    assert (ran.command, ran.text, ran.exit_code) == ("ls", "a\nb", 2)
    assert (level.level, change.model) == ("high", "anthropic/claude-opus-4-5")
    assert imported.scenario.header.thinking == "low"
    assert imported.kept == imported.entries == 9


def test_a_model_that_changed_untold_is_changed_before_the_question(tmp_path: Path) -> None:
    imported = made(tmp_path, user("a"), assistant("b"), user("c"), assistant("d", model="claude-haiku-4-5"))
    change = imported.scenario.steps[2]
    assert isinstance(change, ModelChangeStep)
    assert (change.model, change.at) == ("anthropic/claude-haiku-4-5", 3.0)


def test_compactions_and_other_entries_are_dropped_and_counted(tmp_path: Path) -> None:
    imported = made(
        tmp_path,
        user("a"),
        assistant("b"),
        {"type": "compaction", "summary": "so far", "firstKeptEntryId": f"{2:016x}", "tokensBefore": 9},
        {"type": "custom", "customType": "model-snapshot", "data": {}},
        {"type": "label", "targetId": f"{1:016x}", "label": "here"},
        user("c"),
        assistant("d", provider="openclaw", model="delivery-mirror"),
        assistant("e"),
    )
    assert [words for _, words in told(imported)] == ["a", "b", "c", "e"]
    assert lost(imported) == {
        "compactions (the replay makes its own)": 1,
        "custom entries": 1,
        "labels": 1,
        "mirrors of delivered messages": 1,
    }
    assert imported.kept + sum(lost(imported).values()) == imported.entries == 8


def test_only_the_live_branch_comes_in(tmp_path: Path) -> None:
    turned = {"parentId": f"{1:016x}"}
    imported = made(tmp_path, user("a"), assistant("left behind"), assistant("taken") | turned)
    assert told(imported) == [("user", "a"), ("model", "taken")]
    assert lost(imported) == {"entries of other branches": 1}


def test_images_thinking_and_signatures_are_carried_as_they_are(tmp_path: Path) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    thinking = {"type": "thinking", "thinking": "hm", "thinkingSignature": "proof"}
    imported = made(
        tmp_path,
        user([{"type": "text", "text": "look"}, image]),
        assistant(content=[thinking, {"type": "text", "text": "a cat"}]),
    )
    asked, answer = imported.scenario.steps
    assert (
        b'"content":[{"type":"text","text":"look"},{"type":"image","data":"AAAA","mimeType":"image/png"}]'
        in write(imported)
    )
    assert isinstance(answer, ModelStep)
    assert isinstance(asked, UserStep)
    assert answer.content is not None
    assert '"thinkingSignature":"proof"' in write(imported).decode()


def test_details_of_results_stay_behind_and_are_counted(tmp_path: Path) -> None:
    imported = made(tmp_path, user(), assistant("", "c"), result("c", details={"secret": 1}), assistant("ok"))
    assert b"secret" not in write(imported)
    assert lost(imported) == {"details of tool results": 1}


def test_times_that_run_backwards_are_moved_forward(tmp_path: Path) -> None:
    imported = made(tmp_path, user("a"), assistant("b"), user("c") | {"timestamp": stamp(0)}, assistant("d"))
    times = [step.at for step in imported.scenario.steps if isinstance(step, UserStep)]
    assert times == [1.0, 2.0]
    assert lost(imported) == {"times that ran backwards (moved forward)": 1}


def test_a_wait_of_hours_for_a_tool_becomes_a_minute(tmp_path: Path) -> None:
    late = result("c") | {"timestamp": stamp(7200)}
    imported = made(tmp_path, user(), assistant("", "c"), late, assistant("ok") | {"timestamp": stamp(7201)})
    tool = imported.scenario.steps[2]
    assert isinstance(tool, ToolStep)
    assert tool.latency == 60.0


def test_lone_surrogates_and_odd_arguments_become_what_a_scenario_can_hold(tmp_path: Path) -> None:
    call = {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"t": "\ud83d"}}
    imported = made(
        tmp_path,
        user("half a pair: \ud83d"),
        assistant(content=[call]),
        result("c", "\udc00"),
        assistant("a whole one: \U0001f600"),
    )
    assert [words for kind, words in told(imported) if kind != "model"] == ["half a pair: \ufffd", "\ufffd"]
    write(imported).decode()


# --- the rule above all ---------------------------------------------------------------------------

ENTRIES = st.one_of(
    st.builds(
        user, st.sampled_from(["hi", "", "  ", [], None, [{"type": "image", "data": "", "mimeType": "x"}]])
    ),
    st.builds(
        lambda calls, stop, text: assistant(text, *calls, stop=stop),
        st.lists(st.sampled_from(["c1", "c2", "c3", ""]), max_size=3),
        st.sampled_from(["stop", "length", "toolUse", "error", "aborted", None]),
        st.sampled_from(["", "words"]),
    ),
    st.builds(result, st.sampled_from(["c1", "c2", "c3", ""])),
    st.sampled_from(
        [
            {"type": "compaction", "summary": "s", "firstKeptEntryId": "none", "tokensBefore": 1},
            {"type": "thinking_level_change", "thinkingLevel": "high"},
            {"type": "model_change", "provider": "p", "modelId": "m"},
            {"type": "custom_message", "customType": "x", "content": "an extension speaks", "display": True},
            {"type": "message", "message": {"role": "bashExecution", "command": "ls", "output": ""}},
            {"type": "message", "message": {"role": "nobody"}},
            {"type": "message"},
        ]
    ),
)


@given(st.lists(ENTRIES, max_size=25))
def test_any_history_becomes_a_script_that_keeps_in_step(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]]
) -> None:
    path = session_file(tmp_path_factory.getbasetemp() / "any.jsonl", entries)
    imported = _convert(path)
    if imported is not None:
        assert out_of_step(imported.scenario) == []
        assert parse(write(imported), "out.jsonl") == imported.scenario


def _convert(path: Path) -> Imported | None:
    try:
        return convert(path)
    except UsageError:
        return None  # nothing in it that could be replayed


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no known recording; import reads pi and OpenClaw"),
        (b"\x7fELF\x00\x01\x02", "no known recording"),
        (b"plain words\n", "no known recording"),
        (b'{"scenario": 1, "name": "t"}\n', "is a scenario already"),
        (b'{"type": "session", "version": 3, "id": "s"}\n', "nothing to replay"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(data)
    with pytest.raises(PerdureError) as refused:
        convert(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == data


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        convert(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="can't be read"):
        convert(tmp_path)
