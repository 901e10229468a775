"""What a program gave a host, checked before anything starts: a wrong type is one line, not a crash later."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perdure.actors.outbox import Outlet
from perdure.contracts import (
    CompactionTrigger,
    ContextEngine,
    Memory,
    MemoryFlush,
    Model,
    OutboundChannel,
    Tool,
)
from perdure.edges.session.links import is_subagent
from perdure.edges.settings import Settings
from perdure.errors import UsageError
from perdure.records import ModelInfo, ToolSpec

OWN = "perdure."  # senders of the host itself


def a_model(model: Model | str | None) -> Model | str | None:
    """A `Model`, or its reference."""
    fits = hasattr(model, "stream") and isinstance(getattr(model, "info", None), ModelInfo)
    if model is not None and not isinstance(model, str) and not fits:
        raise UsageError(f"model={model!r}: give a reference, or an object with `info` and `stream`")
    return model


def an_engine(engine: ContextEngine | None) -> ContextEngine | None:
    """An engine itself; one that is chosen by its id is named in the settings."""
    if engine is not None and not isinstance(engine, ContextEngine):
        raise UsageError(
            f"engine={engine!r}: give an object with info, ingest, assemble and compact; an engine's id "
            "goes into the settings (plugins.slots.context_engine)"
        )
    return engine


def a_trigger(trigger: CompactionTrigger | None) -> CompactionTrigger | None:
    """A trigger itself; one that is chosen by its id is named in the settings."""
    if trigger is not None and not isinstance(trigger, CompactionTrigger):
        raise UsageError(
            f"trigger={trigger!r}: give an object with `wants`; a trigger's id goes into the settings "
            "(plugins.slots.compaction_trigger)"
        )
    return trigger


def a_memory(memory: Memory | None) -> Memory | None:
    """A memory itself; one that is chosen by its id is named in the settings."""
    if memory is not None and not isinstance(memory, Memory):
        raise UsageError(
            f"memory={memory!r}: give an object with info, tools and guidance; a memory's id goes into the "
            "settings (plugins.slots.memory)"
        )
    return memory


def a_flush(flush: MemoryFlush | None) -> MemoryFlush | None:
    """Something that can be called."""
    if flush is not None and not callable(flush):
        raise UsageError(f"flush={flush!r}: give an async function of (context, messages) that returns text")
    return flush


def some_tools(tools: Iterable[Tool] | None) -> tuple[Tool, ...] | None:
    """Tools with their specs."""
    found = None if tools is None else tuple(tools)
    for tool in found or ():
        if not isinstance(getattr(tool, "spec", None), ToolSpec) or not hasattr(tool, "run"):
            raise UsageError(f"tools: {tool!r} is no tool: it needs `spec` (a ToolSpec) and `run`")
    return found


def some_channels(channels: Iterable[OutboundChannel | Outlet]) -> tuple[Outlet, ...]:
    """Ways out; a bare channel serves the sessions whose key names it."""
    found = tuple(channels)
    for each in found:
        if not isinstance(each, Outlet | OutboundChannel):
            raise UsageError(f"channels: {each!r} is none: it needs `name`, `idempotent` and `send`")
    return tuple(each if isinstance(each, Outlet) else Outlet(each) for each in found)


def a_folder(workspace: str | Path | None) -> Path | None:
    """A workspace that is there."""
    path = None if workspace is None else Path(workspace).expanduser()
    if path is not None and not path.is_dir():
        raise UsageError(f"workspace {path}: no such folder: make it first")
    return path


def some_settings(settings: Settings) -> Settings:
    """Settings, as `perdure.edges.config.load` gives them."""
    if not isinstance(settings, Settings):
        raise UsageError(f"settings={settings!r}: give what perdure.edges.config.load returns")
    return settings


def a_key(key: str) -> str:
    """A session key as it may be used. Raises `UsageError` with what is wrong."""
    if not key or len(key) > 512 or any(ord(c) < 32 for c in key):
        raise UsageError(
            f"session key {key[:40]!r}: use 1 to 512 printable characters, such as agent:main:cli:dm:me"
        )
    return key


def a_sender(sender: str) -> str:
    """Who a letter is from. `perdure.…` is the host itself: by it a timer's letter is known."""
    if sender.startswith(OWN):
        raise UsageError(
            f"sender {sender[:40]!r}: names that begin with {OWN} are the host's own: choose another"
        )
    if is_subagent(sender):  # a letter under its run's id would stand for its result
        raise UsageError(f"sender {sender[:60]!r}: that is a subagent's own: choose another")
    return sender
