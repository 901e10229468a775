"""Where the command line begins and ends: whatever happens, one clear line and an honest exit code.

0 done, 1 what was looked for is not well (damage, overflow, findings), 2 a mistake in the call or its
files, 70 a bug of ours, 74 the output can't be written, 130 interrupted, 141 nobody reads the output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perdure.cli.exits import BUG, INTERRUPTED, UNREAD, UNWRITABLE
from perdure.cli.output import streams, warn
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from cyclopts import CycloptsError


def main() -> None:
    """The console script."""
    raise SystemExit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Run one command line and say how it ended; never raises on a user's mistake, nor on a bug."""
    streams()
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
        return code
    except SystemExit as stop:
        return _flushed(stop.code if isinstance(stop.code, int) else 0)
    except BaseException as error:
        return _ended(error)


def _run(arguments: Sequence[str]) -> int:
    if target := _examined(arguments):
        from perdure.cli.doctor import run

        return run(target, as_json="--json" in arguments)
    return _parsed(arguments)


def _examined(arguments: Sequence[str]) -> str:
    """The target of a plain `doctor TARGET [--json]`: over many files, half the time were the parser's."""
    names = [word for word in arguments[1:] if word != "--json"]
    plain = arguments[0:1] == ["doctor"] and len(names) == 1 and not names[0].startswith("-")
    return names[0] if plain else ""


def _parsed(arguments: Sequence[str]) -> int:
    from cyclopts import CycloptsError

    from perdure.cli.app import app

    try:
        result = app(
            list(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except CycloptsError as mistake:
        return _told(_misused(mistake))
    return result if isinstance(result, int) else 0


def _misused(mistake: CycloptsError) -> str:
    from cyclopts import UnusedCliTokensError

    command = " ".join(("perdure", *(mistake.command_chain or ())))
    text = str(mistake).strip()
    if isinstance(mistake, UnusedCliTokensError) and mistake.unused_tokens:
        text = f"unexpected argument {mistake.unused_tokens[0]!r}"
    text = text if text.endswith("..") else text.removesuffix(".")
    return f"{text} (see `{command} --help`)"


def _ended(error: BaseException) -> int:
    """The exit code of what was raised, its line written."""
    causes = list(_leaves(error))
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return INTERRUPTED
    if any(isinstance(cause, BrokenPipeError) for cause in causes):
        _hush()
        return UNREAD
    known = [line for cause in causes if (line := _mistake(cause))]
    if len(known) < len(causes):
        return _bug(next(cause for cause in causes if not _mistake(cause)))
    return _told(known[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _mistake(error: BaseException) -> str:
    """The line for what a person can act on; empty for a bug."""
    if isinstance(error, PerdureError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
        return f"{name}: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "there is not enough memory for this: stop other programs, or look at a smaller file"
    return ""


def _told(text: str) -> int:
    warn(f"perdure: {' '.join(text.split())}")
    return _flushed(2)


def _flushed(code: int) -> int:
    """The code, unless what was printed before can't be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _hush()
        return UNREAD
    except OSError as error:
        return _unwritable(error)
    return code


def _unwritable(error: OSError) -> int:
    _hush()
    warn(f"perdure: the output can't be written ({error.strerror}): make room, or send it elsewhere")
    return UNWRITABLE


def _hush() -> None:
    """Python flushes at exit and would complain there once more."""
    try:
        empty = os.open(os.devnull, os.O_WRONLY)
        os.dup2(empty, sys.stdout.fileno())
        os.close(empty)
    except (OSError, ValueError):
        pass  # a stream without a descriptor: nothing is flushed to one


# --- bugs -----------------------------------------------------------------------------------------


def _bug(error: BaseException) -> int:
    if isinstance(error, OSError):  # without a file's name: the output itself
        return _unwritable(error)
    import traceback

    from perdure.context.text.secrets import redact

    trace = redact("".join(traceback.format_exception(error)))
    if os.environ.get("PERDURE_DEBUG", "") not in ("", "0"):
        warn(trace.rstrip())
    name, text = type(error).__name__, " ".join(redact(str(error)).split())[:300]
    warn(f"perdure: a bug of perdure: {name}: {text} ({_place(error)}); {_kept(trace)}")
    return BUG


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nowhere"
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"


def _kept(trace: str) -> str:
    """Where the trace is: what was done is not asked for twice."""
    import tempfile

    try:
        fd, path = tempfile.mkstemp(prefix="perdure-trace-", suffix=".txt", text=True)
        with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(trace)
    except OSError:
        return "PERDURE_DEBUG=1 prints the trace"
    return f"the trace is in {path}, and PERDURE_DEBUG=1 prints it"
