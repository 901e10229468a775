"""What the next request of a session would be made under, resolved as a host would, creating nothing.

A key has the workspace that the configuration gives its agent. A bare file has none: no file of a
recorded folder is ever read, the tools are the default ones, and the history is not limited.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from perdure.actors.memories.chosen import Chosen
from perdure.actors.prompting import agent_of, agent_settings, prompt_parts
from perdure.actors.resolver import OUTPUT_CAP, HostResolver, lines_for, pruning
from perdure.actors.subagents.tools import subagent_tools
from perdure.context import environment
from perdure.context.environment import Environment
from perdure.context.prompt.knowledge import query_of
from perdure.context.prompt.system import build
from perdure.edges.models import catalog
from perdure.edges.session.facts import Opened
from perdure.edges.settings import Settings, ToolSettings
from perdure.edges.state import StateFolder
from perdure.edges.tools.builtin import default_tools
from perdure.edges.workspace import Snapshot, WorkspaceReader
from perdure.errors import UsageError
from perdure.looking.memory import remembering
from perdure.looking.target import Target
from perdure.records import Items, ModelInfo

BARE = "agent:main:cli:dm:local"  # the key a bare file is looked at under


def workspace(settings: Settings, folder: StateFolder, key: str) -> Path:
    """Where the key's agent works (`HostResolver.workspace`), without making the folder."""
    told = agent_settings(settings, key).workspace or settings.tools.workspace
    return Path(told).expanduser() if told else folder.workspace(agent_of(key))


def model_info(ref: str | None, key: str | None, settings: Settings) -> ModelInfo:
    """The model asked for, else the configured one, else the built-in default. Raises `ConfigError`."""
    own = agent_settings(settings, key).model if key is not None else ""
    chosen = ref or own or settings.models.default or catalog.default_ref(os.environ)
    return catalog.resolve(chosen, settings.models.providers)


def window_of(told: int | None, settings: Settings, info: ModelInfo) -> int:
    """The window in tokens. Raises `UsageError` for one that is none."""
    if told is not None and told < 1:
        raise UsageError(f"--window {told}: a window is a positive number of tokens, such as 32000")
    return told or settings.models.window or info.window


def resolve(
    target: Target,
    opened: Opened,
    settings: Settings,
    folder: StateFolder,
    *,
    model: str | None = None,
    window: int | None = None,
    asked: Items = (),
    chosen: Chosen | None = None,
) -> tuple[Environment, tuple[str, ...]]:
    """The environment of the next request, and what the workspace had to leave out.

    `asked`: messages that are not in the file yet; `chosen`: the memory, where it is known.
    """
    info = model_info(model, target.key, settings)
    room = window_of(window, settings, info)
    thinking = opened.settings.thinking
    if target.key is None:
        return _bare(opened, settings, replace(info, window=room), room, thinking), ()
    root, chosen = workspace(settings, folder, target.key), chosen or remembering(settings, folder)
    resolver = HostResolver(
        settings,
        folder,
        default=info,
        factories={},
        tools={
            tool.spec.name: tool
            for tool in (*default_tools(settings), *subagent_tools(settings), *chosen.tools)
        },
        workspace=root,
        window=room,
        guidance=chosen.guidance,
    )
    query = query_of((*opened.items, *asked))
    env = resolver.environment(target.key, replace(info, window=room), thinking, query=query)
    return env, WorkspaceReader().read(root).problems


def _bare(opened: Opened, settings: Settings, info: ModelInfo, room: int, thinking: str) -> Environment:
    lines = lines_for(settings, room)
    specs = tuple(tool.spec for tool in default_tools(ToolSettings()))
    parts = prompt_parts(BARE, Snapshot(opened.cwd), specs, info, lines, settings, thinking)
    return environment.resolve(
        BARE,
        info,
        build(parts),
        specs,
        lines,
        thinking=thinking,
        retention=settings.models.cache if info.caching else "none",
        knowledge=parts.knowledge,
        heartbeat=settings.heartbeat.prompt,
        output_cap=settings.models.max_tokens or min(info.max_output, OUTPUT_CAP),
        pruning=pruning(settings, info),
    )
