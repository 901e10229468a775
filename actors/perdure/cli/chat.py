"""`perdure chat`: talk to one session, a line at a time, or say one thing and exit."""

from __future__ import annotations

import base64
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from perdure.cli.output import emit, fail, say, warn
from perdure.contracts import Event, Notice, Reply, Said, ToolEnded, ToolStarted
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.errors import PerdureError, UsageError
from perdure.host import Host
from perdure.kernel.run import backend_options
from perdure.records import Block, Image, Text

IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
MOST_ATTACHED = 5 * 1024 * 1024  # bytes of one attachment
HELP = "/status, /compact [focus], /model [ref], /think [level], /new, /abort; /quit or Ctrl-D ends."


def run(
    key: str,
    *,
    message: str | None,
    attach: list[Path],
    state: Path | None,
    model: str | None,
    window: int | None,
    workspace: Path | None,
    backend: Literal["asyncio", "uvloop", "trio"],
    as_json: bool,
) -> int:
    """One message (`-m`, or `--json`), or a conversation on the terminal. Exit 1 if the turn failed."""
    settings = load(state=state)
    if settings.tools.workspace == "" and workspace is not None and not workspace.is_dir():
        raise UsageError(f"{workspace}: no such folder: make it, or leave --workspace away")
    blocks = tuple(attachment(path) for path in attach)
    host = Host(
        state_folder.state_folder(state).path,
        settings=settings,
        model=model,
        window=window,
        workspace=workspace,
    )
    loop, options = backend_options(backend)
    if message is None and as_json:
        raise UsageError("--json goes with -m: say what to send")
    once = partial(_once, host, key, message or "", blocks, as_json)
    talk = partial(_talk, host, key, blocks)
    return anyio.run(once if message is not None else talk, backend=loop, backend_options=options)


def attachment(path: Path) -> Block:
    """A file as a block: an image, or text under its name. Raises `UsageError` in one line."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MOST_ATTACHED else None
    except OSError as error:
        raise UsageError(f"{path}: can't be attached ({error.strerror})") from None
    if data is None:
        raise UsageError(
            f"{path}: over {MOST_ATTACHED:,} bytes: put it into the workspace and name it instead"
        )
    mime = IMAGES.get(path.suffix.lower())
    if mime is not None:
        return Image(base64.b64encode(data).decode(), mime)
    try:
        return Text(f"[file {path.name}]\n{data.decode()}")
    except UnicodeDecodeError:
        raise UsageError(
            f"{path}: neither an image nor UTF-8 text: put it into the workspace instead"
        ) from None


async def _once(host: Host, key: str, text: str, blocks: tuple[Block, ...], as_json: bool) -> int:
    async with host:
        if text.startswith("/"):
            answer = await host.command(key, text)
            emit({"key": key, "reply": answer, "stop": "stop", "steps": 0}) if as_json else say(answer)
            return 0
        _introduce(host)
        reply = await (await host.send(key, text, sender="cli", attachments=blocks)).reply()
    if as_json:
        emit(report(reply))
    else:
        _print(reply)
    return 0 if reply.stop in ("stop", "length") else 1


def report(reply: Reply) -> dict[str, Any]:
    """The JSON contract of `chat -m`."""
    usage = reply.usage
    return {
        "key": reply.key,
        "reply": reply.text,
        "stop": reply.stop,
        "steps": reply.steps,
        "tokens": {
            "input": usage.input,
            "cache_read": usage.cache_read,
            "cache_write": usage.cache_write,
            "output": usage.output,
        },
        "entries": list(reply.entries),
        "errors": list(reply.errors),
    }


async def _talk(host: Host, key: str, blocks: tuple[Block, ...]) -> int:
    async with host:
        _introduce(host)
        say(f"{key}. {HELP}")
        host.services.events.subscribe("terminal", partial(_show, key))
        while True:
            line = await anyio.to_thread.run_sync(_read, abandon_on_cancel=True)
            if line is None or line.strip() in ("/quit", "/exit"):
                return 0
            if line.strip() or blocks:
                await _say(host, key, line.strip(), blocks)
                blocks = ()


async def _say(host: Host, key: str, line: str, blocks: tuple[Block, ...]) -> None:
    try:
        if line.startswith("/"):
            say(await host.command(key, line))
            return
        reply = await (await host.send(key, line, sender="cli", attachments=blocks)).reply()
    except PerdureError as error:
        warn(str(error))
        return
    say()
    if reply.stop not in ("stop", "length"):
        warn(f"[{reply.stop}] {reply.errors[-1] if reply.errors else ''}")


def _read() -> str | None:
    """A line from the user; `None` at the end of input."""
    if sys.stdin.isatty():
        sys.stdout.write("> ")
        sys.stdout.flush()
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _show(key: str, event: Event) -> None:
    """What happens in the session, as it happens."""
    if event.key != key:
        return
    match event:
        case Said(_, text):
            sys.stdout.write(text)
            sys.stdout.flush()
        case ToolStarted(_, _, name):
            warn(f"  [{name} …]")
        case ToolEnded(_, _, name, True):
            warn(f"  [{name} failed]")
        case Notice(_, kind, text):
            warn(f"  [{kind}: {text}]")
        case _:
            pass


def _introduce(host: Host) -> None:
    info = host.resolver.model_for("", None)
    if info.provider == "scripted":
        why = (
            "no ANTHROPIC_API_KEY in the environment"
            if "ANTHROPIC_API_KEY" not in os.environ
            else "as configured"
        )
        warn(f"The embedded scripted model answers ({why}).")


def _print(reply: Reply) -> None:
    if reply.text:
        say(reply.text)
    if reply.stop not in ("stop", "length"):
        why = reply.errors[-1] if reply.errors else "no reason was given"
        fail(f"the turn ended with {reply.stop}: {why}", 1)


__all__ = ["report", "run"]
