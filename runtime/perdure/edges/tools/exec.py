"""`exec`: run a command in the workspace. Off unless the configuration allows it.

The child gets no secrets (its environment is scrubbed by name and by shape), no terminal, its own
process group that is gone when the call ends, and resource limits. It is the user's own process all
the same: a command that may run can read what the user can.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from perdure.context.numbers import EVIDENCE_CHARS
from perdure.context.text.characters import clean
from perdure.context.text.secrets import is_secret_name, redact
from perdure.contracts import ToolContext, ToolOutput
from perdure.edges.settings import ExecSettings
from perdure.edges.tools.command import Plan, plan
from perdure.edges.tools.confine import Refused, folder, locate, named, refusing
from perdure.edges.tools.outcome import decoded, details, excerpt, failure
from perdure.edges.tools.process import Capture, Ended, Limits, run_process
from perdure.edges.tools.spec import make_spec, number, text
from perdure.edges.tools.virtual import is_virtual
from perdure.records import Text

Approve: TypeAlias = Callable[[str, str], Awaitable[bool]]
"""Asked with (session key, command line) before a command runs in mode `ask`."""

QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}

SPEC = make_spec(
    "exec",
    "Run a command in the workspace and return its output (stdout and stderr together) and exit code. "
    "Nothing it starts outlives the call; there is no terminal and no input.",
    "Run a command",
    {
        "command": {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                {"type": "string", "minLength": 1},
            ],
            "description": "A shell command line, or a list of words run without a shell",
        },
        "cwd": text("Folder to run in, relative to the workspace"),
        "timeout": number("Seconds until it is stopped", 1),
    },
    required=("command",),
)


class ExecTool:
    """See the module. `approve` is asked in mode `ask`; without it that mode refuses.

    `ahead`: the host asks before `run`, by what `asks` says, and `approve` only confirms that it did.
    """

    spec = SPEC

    def __init__(
        self, settings: ExecSettings, approve: Approve | None = None, *, ahead: bool = False
    ) -> None:
        self._settings, self._approve, self._ahead = settings, approve, ahead

    def asks(self, arguments: Mapping[str, Any]) -> str:
        """The command line that mode `ask` needs approval for; empty where none is, or `run` refuses."""
        if not self._ahead or self._settings.mode != "ask":
            return ""
        made = plan(arguments["command"], self._settings)
        return made.shown if isinstance(made, Plan) else ""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if is_virtual(context):
            return failure(
                "Commands are not run under virtual time: let the script return the tool's result."
            )
        made = plan(arguments["command"], self._settings)
        if isinstance(made, str):
            return failure(made, refused=True)
        refusal = await self._refusal(made, context)
        if refusal:
            return failure(refusal, refused=True)
        try:
            root = context.workspace
            parts = locate(root, arguments.get("cwd") or ".")
            with refusing(arguments.get("cwd") or "."), folder(root, parts) as opened:
                return await self._run(made, named(opened, root, parts), self._seconds(arguments))
        except Refused as error:
            return failure(str(error), refused=True)

    def _seconds(self, arguments: Mapping[str, Any]) -> float:
        return min(
            float(arguments.get("timeout") or self._settings.timeout_seconds),
            self._settings.max_timeout_seconds,
        )

    async def _refusal(self, made: Plan, context: ToolContext) -> str:
        if self._settings.mode == "on":
            return ""
        if self._settings.mode == "off":
            return "Commands are switched off here (tools.exec.mode)."
        if self._approve is None:
            return "Commands need approval and nobody is there to ask; it was not run."
        approved = await self._approve(context.session, made.shown)
        return "" if approved else "The user did not approve this command; it was not run."

    async def _run(self, made: Plan, cwd: str, seconds: float) -> ToolOutput:
        limits = Limits(
            self._settings.cpu_seconds,
            self._settings.memory_mb,
            self._settings.file_mb,
            self._settings.open_files,
        )
        capture = Capture(self._settings.output_mb << 20)
        try:
            ended = await run_process(
                limits.wrap(made.argv),
                cwd=cwd,
                env=scrubbed(os.environ, self._settings.pass_env),
                timeout=seconds,
                capture=capture,
            )
            return _output(capture, ended, seconds)
        except OSError as error:
            return failure(f"The command could not be started: {error.strerror or error}.")
        finally:
            capture.close()


def scrubbed(environ: Mapping[str, str], keep: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment without what is, or looks like, a secret; `keep` names exceptions."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in keep or not (is_secret_name(name) or redact(value) != value)
    }
    return kept | QUIET


def _output(capture: Capture, ended: Ended, seconds: float) -> ToolOutput:
    data = capture.whole()
    body = clean(decoded(data))
    full = data if len(body) > EVIDENCE_CHARS or capture.total > len(data) else None
    shown = excerpt(body) if full is not None else body
    state = _state(ended, seconds)
    content = "\n".join(part for part in (shown.rstrip("\n"), state) if part) or "[no output, exit code 0]"
    fields = {
        "exit_code": ended.code,
        "timed_out": ended.timed_out,
        "bytes": capture.total,
        "kept": len(data),
    }
    return ToolOutput(
        (Text(content),), is_error=ended.code != 0 or ended.timed_out, details=details(**fields), full=full
    )


def _state(ended: Ended, seconds: float) -> str:
    if ended.timed_out:
        return f"[stopped: not finished after {seconds:g} seconds]"
    if ended.code < 0:
        return f"[ended by signal {-ended.code}]"
    return f"[exit code {ended.code}]" if ended.code else ""
