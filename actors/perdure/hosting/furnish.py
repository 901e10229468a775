"""Puts a host's services together from its settings and what the program gave. Chooses the plugins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perdure.actors import tree
from perdure.actors.approvals import Approvals
from perdure.actors.budgeting import UNBOUNDED, budget
from perdure.actors.calls import Calls
from perdure.actors.directory import Directory
from perdure.actors.durable import Durable
from perdure.actors.engines.lent import Lending
from perdure.actors.engines.roster import Roster
from perdure.actors.fallbacks import Fallbacks
from perdure.actors.gates import Gates
from perdure.actors.inbound import Inbound
from perdure.actors.memories.chosen import Chosen, slot_of
from perdure.actors.memories.chosen import choose as choose_memory
from perdure.actors.memories.slot import MemorySlot
from perdure.actors.memory import Memory
from perdure.actors.messages import Due
from perdure.actors.outbox import Outbox
from perdure.actors.owning import EVENT
from perdure.actors.resolver import HostResolver, ModelFactory
from perdure.actors.services import Services, configured_timing
from perdure.actors.spending import Spending
from perdure.actors.subagents.family import Family
from perdure.actors.subagents.tools import subagent_tools
from perdure.actors.tenancy import Tenancy
from perdure.actors.timers import Timers
from perdure.actors.triggering import choose
from perdure.actors.upkeep import Upkeep
from perdure.actors.waits import Waits
from perdure.context.cache.contract import LIFE
from perdure.context.numbers import PRUNE_TTL_SECONDS
from perdure.contracts import Tool
from perdure.edges.blobs import LocalBlobs
from perdure.edges.erasing import Eraser
from perdure.edges.images import scaler
from perdure.edges.log import Log
from perdure.edges.models import catalog
from perdure.edges.models.factories import default_factories
from perdure.edges.placement import LocalPlacement
from perdure.edges.resident import memory_bytes, rss_bytes
from perdure.edges.session.files import SessionFiles
from perdure.edges.settings import Settings
from perdure.edges.spend import SpendJournal
from perdure.edges.state import StateFolder
from perdure.edges.tools.builtin import default_tools
from perdure.edges.tracing import tracing
from perdure.errors import PerdureError
from perdure.hosting import storage
from perdure.hosting.deleting import Deleting
from perdure.hosting.given import Given
from perdure.hosting.outlets import configured
from perdure.hosting.retaining import Retaining
from perdure.kernel.channel import Channel
from perdure.kernel.clock import Clock
from perdure.kernel.daemons import Daemons
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
    durable: Durable
    timers: Timers
    registry: Registry
    awake: int  # sessions that may be, as far as the machine allows


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
        journal=ground.durable.journal,
    )


def remembering(ground: Ground, given: Given, taken: Mapping[str, Tool], lent: Lending) -> Chosen:
    """The memory. One that is missing or broken is told at the start, or refused."""
    plugins, tools = ground.settings.plugins, ground.settings.tools
    slot = slot_of(plugins.slots.memory, own_tools=given.tools is not None)
    found = choose_memory(
        slot,
        given.memory,
        lambda id: ground.registry.memory(id, lent(id)),
        strict=plugins.strict,
        taken=frozenset(taken),
        allow=tools.allow,
        deny=tools.deny,
    )
    if found.trouble:
        ground.log.error("memory.fallback", memory=slot, error=found.trouble)
    return found


def resolver(
    ground: Ground, given: Given, tools: Mapping[str, Tool], engines: Roster, guidance: str = ""
) -> HostResolver:
    """What sessions run with. A missing model or engine is told at the start, or refused."""
    default, factories = _models(ground, given)
    found = HostResolver(
        ground.settings,
        ground.folder,
        default=default,
        factories=factories,
        tools=tools,
        chosen=engines.chosen,
        engine_tools=lambda id: engines.of(id).tools(),
        workspace=given.workspace,
        shown_workspace=given.shown_workspace,
        models=given.models,
        window=given.window,
        guidance=guidance,
        log=ground.log.warning,
    )
    found.check(default)
    return found


def memory(ground: Ground, given: Given, events: Channel) -> Memory:
    """Bounded as given, else as configured. Under virtual time nothing may depend on the machine."""
    told, virtual = ground.settings.host, ground.clock.virtual
    bounds = given.budget
    if bounds is None:
        watched = not virtual or told.memory_mb
        bounds = budget(told.memory_mb, memory_bytes(), rss_bytes()) if watched else UNBOUNDED
    return Memory(bounds, ground.awake, ground.clock, ground.log, beside=lambda: events.buffered * EVENT)


@dataclass(frozen=True, slots=True)
class Furnished:
    """What a host runs on."""

    services: Services
    directory: Directory
    resolver: HostResolver
    deleting: Deleting
    retaining: Retaining


def furnish(ground: Ground, given: Given, more: tuple[Tool, ...]) -> Furnished:
    """All of it. `more`: tools of servers, beside the default set or the program's own."""
    settings, clock, kernel, log = ground.settings, ground.clock, ground.kernel, ground.log
    events = kernel.channel("events")
    approvals = Approvals(
        kernel,
        events.publish,
        given.approve,
        tools=settings.tools.approve,
        seconds=settings.tools.approval_seconds,
        epoch=getattr(ground.placement.grant(0), "token", 0),
    )
    tools = given.tools
    if tools is None:
        tools = default_tools(settings, approvals.granted, ahead=True)
    services: Services
    ours = subagent_tools(settings, lambda: services)
    own = {tool.spec.name for tool in tools}  # a program's tool of such a name goes before ours
    ours = tuple(tool for tool in ours if tool.spec.name not in own)
    by_name = {tool.spec.name: tool for tool in (*tools, *ours, *more)}
    lent = Lending(ground.folder.path, settings.plugins, lambda: services, virtual=clock.virtual)
    stand_ins: list[str] = []
    engines = Roster(
        lambda id: ground.registry.create(id, lent(id)),
        settings.plugins.slots.context_engine,
        given.engine,
        lambda: services,
        strict=settings.plugins.strict,
        log=log.warning,
        replaced=stand_ins.append,
        memories=ground.registry.memories,
    )
    if settings.plugins.shadow:
        try:
            engines.cast(settings.plugins.shadow, settings.plugins.shadow_share)
        except PerdureError as error:
            if settings.plugins.strict:
                raise
            stand_ins.append(f"plugins.shadow: {error}; nothing is compared")
    chosen = remembering(ground, given, by_name, lent)
    by_name |= {tool.spec.name: tool for tool in chosen.tools}
    resolved = resolver(ground, given, by_name, engines, chosen.guidance)
    resolved.stands_in(chosen.trouble)
    for each in stand_ins:
        resolved.stands_in(each)
    tell = (log, resolved.stands_in, events.publish)
    compaction, cache = settings.compaction, settings.cache
    blobs = LocalBlobs(ground.folder.evidence, ground.io)
    ground.upkeep.settled = blobs.settle
    tenancy, limits = Tenancy(settings), settings.limits
    capped = Spending.capped(tenancy, limits)
    journal = SpendJournal(ground.folder.path / "spend.jsonl") if capped else None
    directory: Directory
    services = Services(
        kernel=kernel,
        clock=clock,
        io=ground.io,
        files=session_files(ground),
        blobs=blobs,
        resolver=resolved,
        tools=by_name,
        pools=tree.grow(kernel, lambda: services, settings.host.workers),
        events=events,
        log=log,
        upkeep=ground.upkeep,
        durable=ground.durable,
        outbox=Outbox(
            clock,
            (*given.channels, *configured(settings.outbound, clock, given.environ)),
            lambda key, to: directory.ref(key).post(Due(to)),
            log.warning,
        ),
        gates=Gates(clock, tenancy, settings.models, log.warning, limits.tools_at_once),
        spending=Spending(clock, tenancy, limits, journal),
        inbound=Inbound(clock, tenancy, limits),
        waits=Waits(),
        timers=ground.timers,
        approvals=approvals,
        calls=Calls(),
        fallbacks=Fallbacks(clock, resolved, settings, log),
        memory=memory(ground, given, events),
        memories=MemorySlot(chosen, settings.memory, ground.folder.path, lambda: services),
        family=Family(settings.subagents, clock),
        lent=lent,
        engines=engines,
        state=ground.folder.path,
        mail=lambda key, mail: directory.ref(key).post(mail),
        daemons=Daemons(),
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
        on_opened=lambda key: directory.opened(key),
        on_not_opened=lambda key, error: directory.not_opened(key, error),
        tracing=tracing(settings.tracing, given.environ, virtual=clock.virtual),
    )
    directory = Directory(services)
    services.family.reach, services.spending.grants = directory.reach, directory.account
    forget = storage.forgetting(ground.folder, ground.durable.journal)
    eraser = Eraser(
        ground.folder.path, blobs, ground.upkeep.index, forget_journal=forget, sync=ground.io.sync
    )
    retaining = Retaining(services, directory, eraser, blobs, ground.folder, settings.retention)
    if settings.retention.anything:
        kernel.spawn("retention", retaining.run)
    deleting = Deleting(services, directory, eraser)
    services.family.delete = deleting.delete
    return Furnished(services, directory, resolved, deleting, retaining)


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
