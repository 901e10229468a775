"""`perdure chat`: talk to one session, a line at a time, or say one thing and exit."""

from __future__ import annotations

import base64
import os
import stat
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from perdure.actors.prompting import agent_settings
from perdure.actors.reporting import reply_line
from perdure.cli.config import names_of_nothing
from perdure.cli.conversation import Conversation, command
from perdure.cli.exits import INTERRUPTED
from perdure.cli.loops import loop_of
from perdure.cli.output import emit, one_line, say, warn
from perdure.cli.remote.address import elsewhere, running
from perdure.cli.remote.client import Remote
from perdure.cli.remote.talk import RemoteTalk
from perdure.cli.signals import Signals, attending, hosted
from perdure.cli.talk import HostTalk, Talk
from perdure.cli.typed import Lines, whole_stdin
from perdure.edges import state as state_folder
from perdure.edges.config import load
from perdure.errors import UsageError
from perdure.events import Event, Notice, Reply
from perdure.host import Host
from perdure.records import Block, Image, Text

IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".heic": "image/heic",
    ".avif": "image/avif",
}
MOST_ATTACHED = 5 * 1024 * 1024  # bytes of one attachment


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
    connect: str | None = None,
    as_json: bool,
) -> int:
    """One message (`-m`, or `--json`), or a conversation on the terminal. Exit 1 if the turn failed."""
    _refuse(message, model, window, as_json)
    if (at := elsewhere(connect) if connect is not None else running(state)) is not None:
        locate = partial(running, state) if connect is None else None
        return _attached(
            Remote(at, locate), key, message=message, attach=attach, model=model, window=window,
            workspace=workspace, backend=backend, as_json=as_json,
        )  # fmt: skip
    settings = load(state=state)
    for finding in names_of_nothing(settings, "the configuration"):
        warn(f"perdure: {finding}")
    if settings.tools.workspace == "" and workspace is not None and not workspace.is_dir():
        why = "is no folder: name one" if workspace.exists() else "no such folder: make it"
        raise UsageError(f"{workspace}: {why}, or leave --workspace away")
    blocks = tuple(attachment(path) for path in attach)
    text = None if message is None else said(message, blocks)
    host = Host(
        state_folder.state_folder(state).path,
        settings=settings,
        model=model,
        window=window,
        workspace=workspace,
        approve="events" if text is None and Lines.of_stdin().typed else None,
    )
    configured = bool(model or settings.models.default or agent_settings(settings, key).model)

    async def work(signals: Signals) -> int:
        await _choose(host, key, model)
        talk = HostTalk(host, key)
        if text is not None and command(text):
            return await _command(talk, key, text, as_json, signals)
        _introduce(host, key, configured)
        if text is None:
            return await Conversation(talk, key, blocks, signals).run()
        return await _once(talk, text, blocks, as_json, signals)

    loop, options = loop_of(backend)
    return anyio.run(hosted, host, key, work, backend=loop, backend_options=options)


def _attached(
    remote: Remote,
    key: str,
    *,
    message: str | None,
    attach: list[Path],
    model: str | None,
    window: int | None,
    workspace: Path | None,
    backend: Literal["asyncio", "uvloop", "trio"],
    as_json: bool,
) -> int:
    """The same through a running host, which goes on when this program ends."""
    if window is not None or workspace is not None:
        name = "--window" if window is not None else "--workspace"
        raise UsageError(f"{name}: the host at {remote.at.url} runs the session and decides: leave it away")
    blocks = tuple(attachment(path) for path in attach)
    text = None if message is None else said(message, blocks)
    talk = RemoteTalk(remote, key)

    async def work(signals: Signals) -> int:
        if model is not None:
            await talk.command(f"/model {model}")
        if text is not None and command(text):
            return await _command(talk, key, text, as_json, signals)
        if text is not None:
            return await _once(talk, text, blocks, as_json, signals)
        warn(f"Attached to the host at {remote.at.url}; /quit leaves the session running there.")
        return await Conversation(talk, key, blocks, signals).run()

    loop, options = loop_of(backend)
    return anyio.run(attending, remote, key, work, backend=loop, backend_options=options)


async def _choose(host: Host, key: str, model: str | None) -> None:
    """`--model` is the session's choice from now on, as `/model` is; else a known session keeps its own."""
    if model is not None or host.files.path(key).exists():
        await host.command(key, f"/model {model or ''}".strip())


def _refuse(message: str | None, model: str | None, window: int | None, as_json: bool) -> None:
    if message is None and as_json:
        raise UsageError("--json goes with -m: say what to send")
    if window is not None and window < 1:
        raise UsageError(f"--window {window}: a window is a positive number of tokens, such as 32000")
    if model is not None and not model.strip():
        raise UsageError("--model is empty: name one as provider/id, or leave it away")


def said(message: str, blocks: tuple[Block, ...]) -> str:
    """What `-m` says, `-` being standard input. Raises `UsageError` where that is nothing."""
    text = whole_stdin() if message == "-" else message
    if blocks and command(text):
        raise UsageError(f"--attach goes with a message, not with the command /{command(text)}")
    if text.strip():
        return text
    if message == "-" or not blocks:
        raise UsageError("the message is empty: say something, or attach a file")
    return ""


def attachment(path: Path) -> Block:
    """A file as a block: an image, or text under its name. Raises `UsageError` in one line."""
    try:
        data = _bytes(path)
    except OSError as error:
        raise UsageError(f"{path}: can't be attached ({error.strerror})") from None
    if len(data) > MOST_ATTACHED:
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


def _bytes(path: Path) -> bytes:
    """Of a regular file, one byte more at most than may be attached; a pipe is not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UsageError(f"{path}: not a regular file: only such can be attached")
        with open(fd, "rb", closefd=False) as file:
            return file.read(MOST_ATTACHED + 1)
    finally:
        os.close(fd)


async def _command(talk: Talk, key: str, line: str, as_json: bool, signals: Signals) -> int:
    signals.busy = lambda: True
    answer = await talk.command(line)
    stop = "aborted" if signals.aborting else "stop"
    emit({"key": key, "reply": answer, "stop": stop, "steps": 0}) if as_json else say(answer)
    return INTERRUPTED if signals.aborting else 0


async def _once(talk: Talk, text: str, blocks: tuple[Block, ...], as_json: bool, signals: Signals) -> int:
    signals.busy = lambda: True
    async with talk.following(_tell):
        reply = await talk.ask(text, blocks)
    emit(reply_line(reply)) if as_json else _print(reply)
    if signals.aborting:
        return INTERRUPTED
    return 0 if reply.stop in ("stop", "length") else 1


def _tell(event: Event) -> None:
    """What a person who waits should know: retries, compactions."""
    if isinstance(event, Notice) and event.kind != "said":
        warn(f"[{event.kind}: {event.text}]")


def _introduce(host: Host, key: str, configured: bool) -> None:
    if host.resolver.replaced:
        warn(f"[engine: {host.resolver.replaced}]")
    for problem in host.away:
        warn(f"[tools: {problem}]")
    session, default = host.directory.awake.get(key), host.resolver.model_for(key, None)
    model = session.environment.model if session is not None else default
    if model.provider == "scripted":
        why = "as configured" if configured else _keyless()
        if model.ref != default.ref:
            why = "this session's choice; /model changes it"
        warn(f"The embedded scripted model answers ({why}).")


def _keyless() -> str:
    if "ANTHROPIC_API_KEY" in os.environ:
        return "ANTHROPIC_API_KEY is empty"
    return "no ANTHROPIC_API_KEY in the environment"


def _print(reply: Reply) -> None:
    if reply.text:
        say(reply.text)
    if reply.stop not in ("stop", "length"):
        why = reply.errors[-1] if reply.errors else "no reason was given"
        warn(f"perdure: {one_line(f'the turn ended with {reply.stop}: {why}', 2000)}")
