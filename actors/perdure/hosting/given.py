"""What a program gave its host, checked once and kept together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perdure.actors import arguments
from perdure.actors.approvals import Approver, approver
from perdure.actors.budgeting import Budget
from perdure.actors.outbox import Outlet
from perdure.actors.resolver import ModelFactory
from perdure.actors.services import Timing
from perdure.context.pipeline import TransformContext
from perdure.contracts import (
    CompactionTrigger,
    ContextEngine,
    Memory,
    MemoryFlush,
    Model,
    OutboundChannel,
    Tool,
)
from perdure.records import ModelInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The arguments of `Host` that say what its sessions run with; `None` and empty: as configured."""

    model: Model | str | None = None
    window: int | None = None
    models: Mapping[str, ModelInfo] = field(default_factory=dict)
    factories: Mapping[str, ModelFactory] = field(default_factory=dict)
    tools: tuple[Tool, ...] | None = None
    engine: ContextEngine | None = None
    trigger: CompactionTrigger | None = None
    flush: MemoryFlush | None = None
    memory: Memory | None = None
    workspace: Path | None = None
    shown_workspace: str | None = None
    hooks: tuple[TransformContext, ...] = ()
    timing: Timing | None = None
    approve: Approver | Literal["events"] | None = None
    most_awake: int | None = None
    budget: Budget | None = None
    truncate_after: int | None = None
    channels: tuple[Outlet, ...] = ()
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def checked(
    *,
    model: Model | str | None,
    models: Mapping[str, ModelInfo] | None,
    factories: Mapping[str, ModelFactory] | None,
    tools: Iterable[Tool] | None,
    engine: ContextEngine | None,
    trigger: CompactionTrigger | None,
    flush: MemoryFlush | None,
    memory: Memory | None,
    workspace: str | Path | None,
    window: int | None,
    shown_workspace: str | None,
    hooks: tuple[TransformContext, ...],
    timing: Timing | None,
    approve: object,
    most_awake: int | None,
    budget: Budget | None,
    truncate_after: int | None,
    channels: Iterable[OutboundChannel | Outlet],
    environ: Mapping[str, str] | None,
) -> Given:
    """A wrong type is a `UsageError` now, not a crash later."""
    return Given(
        model=arguments.a_model(model),
        models=dict(models or {}),
        factories=dict(factories or {}),
        tools=arguments.some_tools(tools),
        engine=arguments.an_engine(engine),
        trigger=arguments.a_trigger(trigger),
        flush=arguments.a_flush(flush),
        memory=arguments.a_memory(memory),
        workspace=arguments.a_folder(workspace),
        window=window,
        shown_workspace=shown_workspace,
        hooks=hooks,
        timing=timing,
        approve=approver(approve),
        most_awake=most_awake,
        budget=budget,
        truncate_after=truncate_after,
        channels=arguments.some_channels(channels),
        environ=os.environ if environ is None else environ,
    )
