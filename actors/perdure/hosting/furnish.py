"""Puts a host's services together from its settings and what the program gave. Chooses the plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.actors import tree
from perdure.actors.directory import Directory
from perdure.actors.resolver import HostResolver, ModelFactory
from perdure.actors.services import Services, configured_timing
from perdure.actors.triggering import choose
from perdure.actors.upkeep import Upkeep
from perdure.context.cache.contract import LIFE
from perdure.context.numbers import PRUNE_TTL_SECONDS
from perdure.contracts import Tool
from perdure.edges.blobs import LocalBlobs
from perdure.edges.images import scaler
from perdure.edges.log import Log
from perdure.edges.models import catalog
from perdure.edges.models.factories import default_factories
from perdure.edges.placement import LocalPlacement
from perdure.edges.session.files import SessionFiles
from perdure.edges.settings import Settings
from perdure.edges.state import StateFolder
from perdure.edges.tools.builtin import default_tools
from perdure.edges.tracing import tracing
from perdure.hosting.given import Given
from perdure.kernel.clock import Clock
from perdure.kernel.io import IoPolicy
from perdure.kernel.kernel import Kernel
from perdure.plugins.registry import Registry
from perdure.records import ModelInfo


@dataclass(frozen=True, slots=True)
class Ground:
    """What stands before the services do: the folder and who owns it, clock, kernel, log."""

    settings: Settings
    folder: StateFolder
    placement: LocalPlacement
    clock: Clock
    io: IoPolicy
    kernel: Kernel
    log: Log
    upkeep: Upkeep
    registry: Registry


def session_files(ground: Ground) -> SessionFiles:
    """The session files of the state folder, under the grant that the host has."""
    placement = ground.placement
    grant = placement.grant(0)
    assert grant is not None
    return SessionFiles(
        ground.folder.path,
        grant,
        sync=ground.io.sync,
        node=placement.node,
        boot=placement.boot,
        outgrow=placement.outgrow,
    )


def resolver(ground: Ground, given: Given, tools: Mapping[str, Tool]) -> HostResolver:
    """What sessions run with. A missing model or engine is told at the start, or refused."""
    default, factories = _models(ground, given)
    found = HostResolver(
        ground.settings,
        ground.folder,
        default=default,
        factories=factories,
        tools=tools,
        engine_of=lambda id: given.engine or ground.registry.create(id),
        workspace=given.workspace,
        shown_workspace=given.shown_workspace,
        models=given.models,
        window=given.window,
        log=ground.log.warning,
    )
    found.check(default)
    found.engine("")
    return found


@dataclass(frozen=True, slots=True)
class Furnished:
    """What a host runs on."""

    services: Services
    directory: Directory
    resolver: HostResolver


def furnish(ground: Ground, given: Given, more: tuple[Tool, ...]) -> Furnished:
    """All of it. `more`: tools of servers, beside the default set or the program's own."""
    settings, clock, kernel, log = ground.settings, ground.clock, ground.kernel, ground.log
    tools = given.tools if given.tools is not None else default_tools(settings)
    by_name = {tool.spec.name: tool for tool in (*tools, *more)}
    resolved = resolver(ground, given, by_name)
    events = kernel.channel("events", on_drop=lambda *_: None)
    tell = (log, resolved.stands_in, events.publish)
    compaction, cache = settings.compaction, settings.cache
    services: Services
    directory: Directory
    services = Services(
        kernel=kernel,
        clock=clock,
        io=ground.io,
        files=session_files(ground),
        blobs=LocalBlobs(ground.folder.evidence, ground.io),
        resolver=resolved,
        tools=by_name,
        pools=tree.grow(kernel, lambda: services, settings.host.workers),
        events=events,
        log=log,
        upkeep=ground.upkeep,
        timing=given.timing or configured_timing(settings),
        hooks=given.hooks,
        wanted=choose(settings, given.trigger, ground.registry.trigger, *tell),
        flush=given.flush,
        evidence_limit=settings.guard.evidence_kib * 1024,
        # Under virtual time nothing may depend on a library's version: pictures stay as they come.
        scaler=None if clock.virtual else scaler(settings.images.max_side),
        truncate_after=given.truncate_after or compaction.truncate_mb * 1024 * 1024,
        truncates=compaction.truncate,
        compacts_idle=compaction.idle,
        watches_cache=cache.watch,
        keep_alive=cache.max_refreshes if cache.keep_alive == "auto" else 0,
        cache_life=max(PRUNE_TTL_SECONDS, LIFE[settings.models.cache]),
        on_idle=lambda key: directory.rested(key),
        tracing=tracing(settings.tracing, given.environ, virtual=clock.virtual),
    )
    directory = Directory(services, given.most_awake or settings.host.awake)
    return Furnished(services, directory, resolved)


def _models(ground: Ground, given: Given) -> tuple[ModelInfo, Mapping[str, ModelFactory]]:
    providers = ground.settings.models.providers
    factories = {**default_factories(ground.clock, providers, given.environ), **given.factories}
    model = given.model
    if model is not None and not isinstance(model, str):
        factories[model.info.provider] = lambda _info: model
        return model.info, factories
    ref = model or ground.settings.models.default or catalog.default_ref(given.environ)
    info = given.models.get(ref) or catalog.resolve(ref, providers)
    return info, factories
