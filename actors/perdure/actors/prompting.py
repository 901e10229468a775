"""From a workspace to a session's system prompt: gates, budgets, sections. Pure given the snapshot.

The prompt is built when a session wakes, changes its model, or was compacted, and kept in between:
what stands below the boundary also precedes the messages, so a change there costs their cache too.
"""

from __future__ import annotations

from perdure.context.numbers import CHARS_PER_TOKEN_ESTIMATE, Limits
from perdure.context.prompt.bootstrap import KNOWLEDGE_KINDS, Kind, inject, session_kind
from perdure.context.prompt.knowledge import select
from perdure.context.prompt.system import PromptParts, Runtime
from perdure.edges.settings import AgentSettings, Settings
from perdure.edges.workspace import Snapshot
from perdure.records import ModelInfo, ToolSpec


def prompt_parts(
    key: str,
    snapshot: Snapshot,
    tools: tuple[ToolSpec, ...],
    model: ModelInfo,
    limits: Limits,
    settings: Settings,
    thinking: str,
    *,
    query: str = "",
    knowledge: bool = True,
    heartbeat: bool = False,
    memory: str = "",
) -> PromptParts:
    """Everything the prompt is made of, cut to its shares of the window.

    `query`: what knowledge is ranked by; `knowledge` false: it is given up, for nothing else could be.
    `heartbeat`: for a light run beside the conversation. `memory`: what the memory says of its tools.
    """
    first = any(f.name == "BOOTSTRAP.md" and f.text for f in snapshot.files)
    kind = session_kind(key, first_run=first, heartbeat=heartbeat)
    told = settings.prompt
    files = inject(
        snapshot.files,
        kind,
        heartbeats=settings.heartbeat.section,
        per_file=min(limits.bootstrap_file_chars, told.bootstrap_max_chars),
        total=min(limits.bootstrap_total_chars, told.bootstrap_total_max_chars),
    ).files
    agent = agent_settings(settings, key)
    return PromptParts(
        mode="minimal" if heartbeat or kind in ("subagent", "cron") else "full",
        identity=agent.identity,
        tools=tools,
        skills=snapshot.skills if told.skills else (),
        workspace=snapshot.root,
        documentation=told.documentation,
        files=files,
        memory=memory,
        knowledge=_knowledge(kind, snapshot, limits, told.knowledge_share, query) if knowledge else "",
        group_chat=_group(key) if kind == "group" else "",
        heartbeat=settings.heartbeat.prompt if settings.heartbeat.section else "",
        runtime=Runtime(agent=agent.name, model=model.ref, channel=_channel(key), thinking=thinking),
        override=told.override,
    )


def agent_of(key: str) -> str:
    """The agent of `agent:<agent>:…`; `main` for any other key."""
    parts = key.split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" and parts[1] else "main"


def agent_settings(settings: Settings, key: str) -> AgentSettings:
    """What the configuration says of the key's agent."""
    name = agent_of(key)
    return next((a for a in settings.agents if a.name == name), AgentSettings(name))


def _knowledge(kind: Kind, snapshot: Snapshot, limits: Limits, share: float, query: str) -> str:
    if kind not in KNOWLEDGE_KINDS or not snapshot.notes:
        return ""
    room = min(limits.knowledge, int(limits.window * share)) * CHARS_PER_TOKEN_ESTIMATE
    return select(snapshot.notes, query, room).text


def _channel(key: str) -> str:
    parts = key.split(":")
    return parts[2] if len(parts) > 3 and parts[0] == "agent" else ""


def _group(key: str) -> str:
    parts = key.split(":")
    where = f"{parts[2]} {parts[3]}" if len(parts) > 3 else "a group"
    return f"You are in {where}: several people write here, and not every message is for you."
