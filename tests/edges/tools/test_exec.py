"""exec: off unless allowed, bounded, scrubbed, and nothing it started is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from helpers_tools import LOOPS, Context, call, facts, said
from perdure.edges.settings import ExecSettings, Settings, ToolSettings
from perdure.edges.tools.builtin import default_tools
from perdure.edges.tools.command import plan
from perdure.edges.tools.exec import ExecTool, scrubbed

ON = ExecSettings(mode="on")


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def gone(pid: int) -> bool:
    """Whether a process has ended; one that was killed may need a moment to be seen so."""
    for _ in range(10_000):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
    return False


@pytest.mark.parametrize("loop", LOOPS)
def test_output_and_exit_code_come_back(tmp_path: Path, loop: str) -> None:
    answer = call(ExecTool(ON), tmp_path, loop, command="echo out; echo err >&2; exit 3")
    assert said(answer) == "out\nerr\n[exit code 3]"
    assert answer.is_error
    assert facts(answer)["exit_code"] == 3
    assert said(call(ExecTool(ON), tmp_path, loop, command=["printf", "%s", "a  b;c"])) == "a  b;c"


def test_it_runs_in_the_workspace_and_in_no_folder_outside(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert said(call(ExecTool(ON), tmp_path, command="pwd -P", cwd="sub")) == str(tmp_path.resolve() / "sub")
    assert "outside the workspace" in said(call(ExecTool(ON), tmp_path, command="pwd", cwd=".."))
    assert "no such file" in said(call(ExecTool(ON), tmp_path, command="pwd", cwd="nowhere"))


def test_a_command_that_does_not_exist_is_an_error_result(tmp_path: Path) -> None:
    assert facts(call(ExecTool(ON), tmp_path, command=["no-such-command-here"]))["exit_code"] == 127


@pytest.mark.parametrize("loop", LOOPS)
def test_the_timeout_ends_the_whole_group(tmp_path: Path, loop: str) -> None:
    command = "sleep 300 & echo $! > child; echo started; trap '' TERM; wait; sleep 300"
    answer = call(ExecTool(ON), tmp_path, loop, command=command, timeout=1)
    assert "started\n[stopped: not finished after 1 seconds]" in said(answer)
    assert gone(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_grandchild_that_holds_the_output_neither_delays_nor_survives(tmp_path: Path, loop: str) -> None:
    answer = call(ExecTool(ON), tmp_path, loop, command="sleep 300 & echo $! > child; echo done")
    assert said(answer) == "done"
    assert gone(int((tmp_path / "child").read_text()))


@pytest.mark.parametrize("loop", LOOPS)
def test_cancelling_the_call_kills_the_command(tmp_path: Path, loop: str) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            arguments = {"command": "echo $$ > pid; mkfifo ready; echo > ready; sleep 300"}
            tasks.start_soon(ExecTool(ON).run, arguments, Context(tmp_path))
            with anyio.fail_after(20):
                while not (tmp_path / "ready").exists():
                    await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=loop)
    assert gone(int((tmp_path / "pid").read_text()))


def test_500_megabytes_cost_bounded_memory_and_keep_both_ends(tmp_path: Path) -> None:
    code = "import sys; w = sys.stdout.write; w('FIRST '); [w('x' * 2**20) for _ in range(500)]; w(' LAST')"
    answer = call(ExecTool(ExecSettings(mode="on", output_mb=1)), tmp_path, command=python(code))
    assert answer.full is not None
    assert len(answer.full) < 1.2 * (1 << 20)
    assert said(answer).startswith("FIRST")
    assert said(answer).endswith("LAST")
    assert len(said(answer)) < 40_000
    assert facts(answer)["bytes"] == 500 * (1 << 20) + 11


def test_invalid_utf8_and_terminal_codes_become_text(tmp_path: Path) -> None:
    code = r"import sys; sys.stdout.buffer.write(b'\x1b[31mred\x1b[0m \xff\xfe ok')"
    assert said(call(ExecTool(ON), tmp_path, command=python(code))) == "red \ufffd\ufffd ok"


def test_output_over_the_evidence_limit_is_kept_whole_and_shown_at_both_ends(tmp_path: Path) -> None:
    answer = call(ExecTool(ON), tmp_path, command=python("print('a' * 400_000 + 'END')"))
    assert answer.full == b"a" * 400_000 + b"END\n"
    assert said(answer).endswith("END")
    assert "400,004 characters" in said(answer)


def test_the_child_sees_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-abcdefghijklmnop")
    monkeypatch.setenv("HARMLESS_NAME", "ghp_abcdefghijklmnopqrstuvwxyz0123456789")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:hunter2@db/x")
    monkeypatch.setenv("PLAIN", "kept")
    shown = said(call(ExecTool(ON), tmp_path, command="env"))
    assert "PLAIN=kept" in shown
    for secret in ("sk-ant", "ghp_", "hunter2"):
        assert secret not in shown
    assert scrubbed({"MY_TOKEN": "x"}, ("MY_TOKEN",))["MY_TOKEN"] == "x"


def test_limits_hold_in_the_child(tmp_path: Path) -> None:
    limited = ExecTool(ExecSettings(mode="on", file_mb=1))
    answer = call(limited, tmp_path, command=python("open('big','wb').write(b'x' * (4 << 20))"))
    assert answer.is_error
    assert (tmp_path / "big").stat().st_size <= 1 << 20


def test_no_command_runs_under_virtual_time(tmp_path: Path) -> None:
    answer = call(ExecTool(ON), tmp_path, virtual=True, command="touch ran")
    assert answer.is_error
    assert "virtual time" in said(answer)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("answer", "ran"), [(True, True), (False, False), (None, False)])
def test_asking_decides(tmp_path: Path, answer: bool | None, ran: bool) -> None:
    asked: list[tuple[str, str]] = []

    async def approve(session: str, command: str) -> bool:
        asked.append((session, command))
        return bool(answer)

    tool = ExecTool(ExecSettings(mode="ask"), None if answer is None else approve)
    output = call(tool, tmp_path, command="touch ran")
    assert (tmp_path / "ran").exists() is ran
    assert output.is_error is not ran
    assert asked == ([] if answer is None else [(Context.session, "touch ran")])


@pytest.mark.parametrize(
    ("command", "allow", "deny", "runs"),
    [
        ("git status", ("git",), (), True),
        ("git status -s", ("git status",), (), True),
        ("git push", ("git status",), (), False),
        ("git status; rm -rf /", ("git",), (), False),
        ("git $(rm x)", ("git",), (), False),
        ("git `rm x`", ("git",), (), False),
        ("git status\nrm x", ("git",), (), False),
        ("./git status", ("git",), (), False),
        ("gitx", ("git",), (), False),
        (["git", "a;b"], ("git",), (), True),
        ("make test", ("make *",), (), True),
        ("rm x", (), ("rm",), False),
        ("/bin/rm x", (), ("rm",), False),
        ("true && rm x", (), ("rm",), False),
        ("echo a|rm x", (), ("rm",), False),
        ("ls", (), ("rm",), True),
        ("git push", ("git",), ("git push",), False),
        ("", (), (), False),
        ("a\0b", (), (), False),
        ("echo 'x", ("echo",), (), False),
    ],
)
def test_lists_decide_what_runs(
    command: str | list[str], allow: tuple[str, ...], deny: tuple[str, ...], runs: bool
) -> None:
    made = plan(command, ExecSettings(mode="on", allow=allow, deny=deny))
    assert isinstance(made, str) is not runs


def test_an_allowed_command_runs_without_a_shell() -> None:
    made = plan("git log --format='%h %s'", ExecSettings(mode="on", allow=("git",)))
    assert not isinstance(made, str)
    assert made.argv == ("git", "log", "--format=%h %s")


def test_the_default_set_has_one_order_and_one_form() -> None:
    names = [tool.spec.name for tool in default_tools(Settings())]
    assert names == ["read", "write", "edit", "grep", "find", "recall"]
    allowed = default_tools(ToolSettings(exec=ON))
    assert [tool.spec.name for tool in allowed] == ["read", "write", "edit", "grep", "find", "exec", "recall"]
    assert [t.spec for t in allowed] == [t.spec for t in default_tools(ToolSettings(exec=ON))]
    few = default_tools(ToolSettings(allow=("find", "read", "exec"), deny=("find",), exec=ON))
    assert [tool.spec.name for tool in few] == ["read", "exec"]
    assert os.environ  # the set is a function of the settings alone
