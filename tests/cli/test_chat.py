"""`perdure chat` on a terminal and on pipes: it listens while it answers, and ends at once and in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from helpers_chat import on_pipes, on_terminal
from helpers_cli import Ran, failed, process, run
from helpers_host import messages, said_by_users, session_path, text_of
from perdure.cli.signals import Signals, Stopped, hosted
from perdure.kernel.run import Backend, backend_options

LOOPS = ("asyncio", "uvloop", "trio")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder; the chat runs in the folder around it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def fed(data: bytes, *arguments: str | os.PathLike[str]) -> Ran:
    """A chat in this process, its input a file with that content."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file, pytest.MonkeyPatch.context() as patch:
        file.buffer.write(data)
        file.seek(0)
        patch.setattr(sys, "stdin", file)
        return run("chat", *arguments)


def left_whole(state: Path) -> bool:
    """Whether the host released everything that it held."""
    free = not list(state.rglob("*.jsonl.lock"))
    return free and '"clean":true' in (state / "shard.lock").read_text().replace(" ", "")


# --- Ctrl-C and other ends ------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_at_the_prompt_ends_at_once_with_130(loop: str, state: Path) -> None:
    with on_terminal("plain", "--state", state, "--loop", loop) as chat:
        chat.until("> ")
        chat.type("\x03")
        assert chat.ended() == 130
        assert chat.rest == "^C\n"
    assert left_whole(state)


@pytest.mark.parametrize("loop", LOOPS)
def test_ctrl_c_in_mid_answer_stops_the_answer_and_keeps_what_was_said(loop: str, state: Path) -> None:
    with on_terminal("half", "--state", state, "--loop", loop) as chat:
        chat.until("> ")
        chat.type("hello\n")
        chat.until("the first half")
        chat.type("\x03")
        assert "[aborted]\n" in chat.until("> ")
        chat.type("again\n")
        chat.until("heard hello; again.\n")
        chat.until("> ")
        chat.type("\x03")
        assert chat.ended() == 130
    aborted, answered = (entry["message"] for entry in messages(session_path(state.parent), "assistant"))
    assert aborted["stopReason"] == "aborted"
    assert "the first half" in text_of(aborted)
    assert answered["stopReason"] == "stop"
    assert left_whole(state)


def test_ctrl_c_stops_a_compaction_that_was_commanded_and_says_so(state: Path) -> None:
    with on_terminal("stalls", "--state", state) as chat:
        for text in ("one\n", "two\n"):
            chat.until("> ")
            chat.type(text)
        chat.until("> ")
        chat.type("/compact\n/status\n")
        chat.until("waiting messages 0")  # it has been begun
        chat.type("\x03")
        assert "Nothing was compacted: it was stopped, and nothing was changed.\n" in chat.until("> ")
        chat.type("\x03")
        assert chat.ended() == 130
    assert b'"compaction"' not in session_path(state.parent).read_bytes()
    assert left_whole(state)


def test_ctrl_c_on_a_single_message_prints_what_was_said_and_ends_with_130(state: Path) -> None:
    with on_terminal("half", "-m", "hello", "--state", state, "--json") as chat:
        chat.until("answers (")
        while not session_path(state.parent).exists():
            os.sched_yield()
        chat.type("\x03")
        assert chat.ended() == 130
    (aborted,) = messages(session_path(state.parent), "assistant")
    assert aborted["message"]["stopReason"] == "aborted"
    assert '"stop": "aborted"' in chat.shown
    assert left_whole(state)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_request_to_end_closes_the_host_and_its_turn_is_taken_up_later(loop: str, state: Path) -> None:
    with on_pipes("half", "--state", state, "--loop", loop) as chat:
        chat.type("hello\n")
        chat.until("the first half")
        chat.signal(signal.SIGTERM)
        assert chat.ended() == 143
        assert "Traceback" not in chat.shown
    assert left_whole(state)
    assert ": hello\n" in fed(b"/status\n", "--state", state).out


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("runs", [True, False])
def test_ctrl_c_ends_where_the_answer_does_not_stop_or_is_over(loop: Backend, runs: bool) -> None:
    closed = []

    class Stubborn(AbstractAsyncContextManager[None]):
        async def abort(self, key: str) -> bool:
            if runs:  # it does not stop: Ctrl-C once more
                os.kill(os.getpid(), signal.SIGINT)
                await anyio.sleep_forever()
            return False

        async def __aexit__(self, kind: object, error: object, trace: object) -> None:
            closed.append(kind)

    async def work(signals: Signals) -> int:
        signals.busy = lambda: True
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
        return 0

    name, options = backend_options(loop)
    host: Any = Stubborn()
    assert anyio.run(hosted, host, "key", work, backend=name, backend_options=options) == 130
    assert closed == [Stopped]  # turns are given no time, all else ends in order


# --- what is read while the agent answers ---------------------------------------------------------


def test_abort_is_read_while_the_agent_answers(state: Path) -> None:
    with on_pipes("half", "--state", state) as chat:
        chat.type("hello\n")
        chat.until("the first half")
        chat.type("/abort\n")
        chat.until("Stopping.")
        chat.until("[aborted]")
        chat.type("more\n")
        chat.until("heard hello; more.")


def test_a_line_typed_in_mid_turn_enters_it_after_the_running_batch(state: Path) -> None:
    os.mkfifo("gate")
    with on_terminal("gated", "--state", state) as chat:
        chat.until("> ")
        chat.type("hello\n")
        with open("gate", "wb"):
            chat.type("and this\n/status\n")
            chat.until("waiting messages 1, state running")
        chat.until("heard hello; and this.")
        chat.until("> ")
        chat.type("\x04")
        assert chat.ended() == 0
    assert said_by_users(session_path(state.parent))[-1].endswith("and this")


def test_lines_of_a_pipe_wait_for_the_answer_before(state: Path) -> None:
    lines = "one\n/think low\n/new\ntwo\n/think"
    ran = fed(lines.encode(), "--state", state)
    assert ran.code == 0
    out = ran.out
    places = [out.index(text) for text in (": one\n", "now low", "(1 message so far): two\n", "levels")]
    assert places == sorted(places)


@pytest.mark.parametrize("loop", LOOPS)
def test_lines_of_a_file_are_read_on_every_loop(loop: str, state: Path) -> None:
    ran = fed(b"hello\nand more", "--state", state, "--loop", loop)
    assert (ran.code, said_by_users(session_path(state.parent))) == (0, ["hello", "and more"])


def test_no_input_at_all_is_an_end(state: Path) -> None:
    assert fed(b"", "--state", state).code == 0
    assert process("chat", "--state", state, stdin=subprocess.DEVNULL).returncode == 0


def test_a_line_without_end_is_refused(state: Path) -> None:
    ran = fed(b"x" * 6_000_000, "--state", state)
    assert ran.code == 2
    assert ran.err.splitlines()[-1].startswith("perdure: a line of input is over")


# --- retries --------------------------------------------------------------------------------------


def test_text_that_a_retry_repeats_stands_on_a_line_of_its_own(state: Path) -> None:
    with on_terminal("cut", "--state", state) as chat:
        chat.until("> ")
        chat.type("hello\n")
        assert "\n  [retry: " in chat.until("trying again in 0.5 s]\n")
        assert chat.until("> ") == "the whole answer\n> "


def test_a_single_message_tells_of_retries_beside_the_reply(state: Path) -> None:
    with on_pipes("overloaded", "-m", "hello", "--state", state) as chat:
        assert chat.ended() == 0
    assert "[retry: 529 overloaded_error: Overloaded; trying again in 0.5 s]\nthe answer\n" in chat.shown


def test_names_in_the_configuration_that_nothing_bears_are_told_and_the_chat_goes_on(state: Path) -> None:
    state.mkdir()
    (state / "perdure.toml").write_text(
        '[tools]\nallow = ["reed"]\n[compaction]\nmodel = "antropic/x"\n[mcp.files]\ncommand = "/none/such"\n'
    )
    ran = run("chat", "-m", "hello", "--state", state)
    assert ran.code == 0
    assert "tools.allow: unknown tool 'reed'; did you mean read?" in ran.err
    assert "compaction.model: unknown model 'antropic/x'" in ran.err
    assert "the MCP server files is away" in ran.err


def test_a_model_that_nothing_posts_to_is_refused_before_the_message_is_taken(state: Path) -> None:
    told = failed(run("chat", "-m", "hello", "--model", "google/gemini-2.5-pro", "--state", state))
    assert "nothing here speaks to provider 'google'" in told
    assert not list(state.rglob("*.jsonl"))


def test_a_loop_that_is_not_installed_is_told(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.cli.loops.find_spec", lambda _name: None)
    told = failed(run("chat", "-m", "hello", "--loop", "uvloop", "--state", state))
    assert "pip install 'perdure[uvloop]'" in told


def test_an_engine_that_is_not_there_is_told(state: Path) -> None:
    state.mkdir()
    (state / "perdure.toml").write_text('[plugins.slots]\ncontext_engine = "nobody"\n')
    ran = run("chat", "-m", "hello", "--state", state)
    assert ran.code == 0
    assert "'nobody' is not known" in ran.err
    assert "legacy is in use" in ran.err


# --- attachments, messages, options ---------------------------------------------------------------


def test_what_is_no_regular_file_is_not_attached(state: Path) -> None:
    os.mkfifo("pipe")
    for path in ("/dev/zero", "pipe", "."):
        assert "not a regular file" in failed(run("chat", "-m", "x", "--attach", path, "--state", state))
    assert not state.exists()


def test_a_large_attachment_is_refused_unread(state: Path) -> None:
    with open("large", "wb") as large:
        large.truncate(1 << 40)
    assert "over 5,242,880 bytes" in failed(run("chat", "-m", "x", "--attach", "large", "--state", state))


def test_an_attachment_that_no_message_takes_is_told(state: Path) -> None:
    Path("f.txt").write_text("content")
    ran = fed(b"/status\n", "--attach", "f.txt", "--state", state)
    assert ran.code == 0
    assert "what was attached was not sent" in ran.err


def test_a_command_leaves_the_attachment_to_the_next_message(state: Path) -> None:
    Path("f.txt").write_text("content")
    ran = fed(b"/status\nread this\n", "--attach", "f.txt", "--state", state)
    assert "not sent" not in ran.err
    assert "content" in said_by_users(session_path(state.parent))[0]


def test_a_message_comes_by_standard_input(state: Path) -> None:
    ran = fed(b"what is\nthis?\n", "-m", "-", "--state", state)
    assert ran.code == 0
    assert said_by_users(session_path(state.parent)) == ["what is\nthis?"]


@pytest.mark.parametrize("data", [b" \n", b"\xff\xfe"])
def test_standard_input_that_is_no_message_is_refused(data: bytes, state: Path) -> None:
    ran = fed(data, "-m", "-", "--state", state)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert not state.exists()


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("chat", "-m", " \n\t"), "the message is empty"),
        (("chat", "-m", ""), "the message is empty"),
        (("chat", "--window", "0"), "--window 0"),
        (("chat", "--window=-5"), "--window -5"),
        (("chat", "--model", ""), "--model is empty"),
        (("chat", "--json"), "-m"),
        (("chat", "-m", "/status", "--attach", __file__), "/status"),
        (("demo", "--sessions", "0"), "--sessions 0"),
        (("demo", "--days=-1"), "--days -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], about: str, home: Path) -> None:
    assert about in failed(run(*words))
    assert not (home / ".perdure").exists()


def test_it_says_why_the_embedded_model_answers(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no ANTHROPIC_API_KEY in" in run("chat", "-m", "x", "--state", state).err
    assert "as configured" in run("chat", "-m", "x", "--model", "scripted", "--state", state).err
    monkeypatch.setenv("ANTHROPIC_API_KEY", " ")
    assert "ANTHROPIC_API_KEY is empty" in run("chat", "-m", "x", "--state", state).err


def test_a_model_named_with_the_command_is_the_sessions_choice(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sonnet = "anthropic/claude-sonnet-4-5"
    assert run("chat", "-m", "x", "--state", state).code == 0  # the scripted model is on record now
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    assert "this session's choice" in run("chat", "-m", "x", "--state", state).err
    for given, named in (((), "scripted/scripted"), (("--model", sonnet), sonnet), ((), sonnet)):
        assert named in run("chat", "-m", "/model", *given, "--state", state).out
    ran = run("chat", "-m", "x", "--model", "scripted", "--state", state)
    assert (ran.code, "scripted model answers" in ran.err) == (0, True)
    assert len(messages(session_path(state.parent), "assistant")) == 3


def test_a_message_may_begin_with_a_hyphen(state: Path) -> None:
    assert run("chat", "-m", "- one thing", "--state", state).code == 0
    assert said_by_users(session_path(state.parent)) == ["- one thing"]


def test_what_a_compaction_did_is_told_once(state: Path) -> None:
    ran = fed(b"one\ntwo\n/compact\n", "--state", state)
    assert (ran.out + ran.err).count("ompacted") == 1


def test_help_names_every_command(state: Path) -> None:
    ran = fed(b"/help\n", "--state", state)
    banner, told = ran.out.splitlines()
    for name in ("help", "status", "compact", "model", "think", "name", "new", "abort", "quit"):
        assert f"/{name}" in banner
        assert f"/{name}" in told
    assert "/name" in run("chat", "-m", "/help", "--state", state).out


@pytest.mark.parametrize(
    ("model", "environ", "told", "code"),
    [
        ("openai/gpt-4.1", {}, "set OPENAI_API_KEY", 2),
        ("mistral/mistral-large-latest", {}, "set MISTRAL_API_KEY", 2),
        ("openai/gpt-4.1", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "x"}, "OPENAI_BASE_URL: 'x'", 2),
        ("claude-sonnet-4-5", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "x"}, "ANTHROPIC_BASE_URL", 2),
        ("openai/gpt-3", {}, "unknown model", 2),
    ],
)
def test_a_provider_that_is_not_set_up_is_told_in_one_line_and_not_tried_again(
    model: str, environ: dict[str, str], told: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ran = run("chat", "-m", "x", "--model", model, "--state", tmp_path)
    assert ran.code == code
    assert told in ran.err
    assert "retry" not in ran.err
    assert len(ran.err.splitlines()) == 1
