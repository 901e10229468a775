"""What a session runs with, resolved in one place: model, prompt, tools, engine, workspace.

The turn and the compaction worker get the same `Environment`; nobody resolves a second time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.actors.prompting import agent_of, agent_settings, prompt_parts
from perdure.context import environment
from perdure.context.cache.contract import LIFE
from perdure.context.compaction.prompts import Instructions
from perdure.context.environment import Environment
from perdure.context.numbers import (
    CHARS_PER_TOKEN_ESTIMATE,
    MIN_BUDGET_CHARS,
    TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE,
    Limits,
    limits,
)
from perdure.context.prompt.system import build as build_prompt
from perdure.context.results.prune import PruneSettings
from perdure.context.safety.limit import history_limit
from perdure.contracts import Lacking, Model, Tool
from perdure.edges import state as state_folder
from perdure.edges.models import catalog
from perdure.edges.settings import Settings
from perdure.edges.workspace import Snapshot, WorkspaceReader
from perdure.errors import ConfigError
from perdure.records import ModelInfo

ModelFactory = Callable[[ModelInfo], Model]


class HostResolver:
    """`factories` make models by provider; `chosen` gives the engine's id for a session's own choice, and
    `engine_tools` what that engine offers; `guidance` is what the memory says of its tools.
    """

    def __init__(
        self,
        settings: Settings,
        folder: state_folder.StateFolder,
        *,
        default: ModelInfo,
        factories: Mapping[str, ModelFactory],
        tools: Mapping[str, Tool],
        chosen: Callable[[str | None], str] = lambda choice: choice or "legacy",
        engine_tools: Callable[[str], tuple[Tool, ...]] = lambda _id: (),
        workspace: Path | None = None,
        shown_workspace: str | None = None,
        models: Mapping[str, ModelInfo] | None = None,
        window: int | None = None,
        guidance: str = "",
        log: Callable[..., None] = lambda *_a, **_k: None,
    ) -> None:
        self._settings, self._folder, self._default = settings, folder, default
        self._factories, self._tools = factories, tools
        self._chosen, self._engine_tools = chosen, engine_tools
        self._workspace, self._window, self._log = workspace, window, log
        self._shown, self._known, self._guidance = shown_workspace, models or {}, guidance
        self._models: dict[str, Model] = {}
        self._reader = WorkspaceReader()
        self._shown_to: OrderedDict[str, Snapshot] = OrderedDict()  # by session key
        self.replaced = ""  # in words, where a chosen plugin is not the one in use

    def adopt(self, settings: Settings) -> None:
        """From now on, for whatever is resolved anew. Raises `ConfigError` for what can't work together."""
        lines_for(settings, self._window or settings.models.window or self._default.window)
        for ref in (settings.compaction.model, *(agent.model for agent in settings.agents)):
            if ref:
                self.model_info(ref)
        self._settings = settings

    def workspace(self, key: str) -> Path:
        """`--workspace`, else the agent's from the configuration, else its folder in the state."""
        if self._workspace is not None:
            return self._workspace
        told = agent_settings(self._settings, key).workspace or self._settings.tools.workspace
        return Path(told).expanduser() if told else state_folder.make_workspace(self._folder, agent_of(key))

    def shown_workspace(self, key: str) -> str:
        """The workspace as prompts and headers name it."""
        return self._shown if self._shown is not None else str(self.workspace(key))

    def model_for(self, key: str, ref: str | None) -> ModelInfo:
        for choice in (ref, agent_settings(self._settings, key).model):
            if choice:
                try:
                    return self.model_info(choice)
                except ConfigError as error:
                    self._log("session.model_gone", session=key, model=choice, error=str(error))
        return self._default

    def model_info(self, ref: str) -> ModelInfo:
        if ref in (self._default.ref, self._default.id):
            return self._default
        info = self._known.get(ref) or catalog.resolve(ref, self._settings.models.providers)
        self.check(info)
        return info

    def check(self, info: ModelInfo) -> None:
        """Raises `ConfigError` for a provider that nothing here speaks to, and an address that is none."""
        if info.provider not in self._factories:
            known = ", ".join(sorted(self._factories))
            raise ConfigError(
                f"model {info.ref}: nothing here speaks to provider {info.provider!r} ({known} do)"
            )
        self.model(info)

    def model(self, info: ModelInfo) -> Model:
        """One client for each model, made on first use."""
        if info.ref not in self._models:
            self._models[info.ref] = self._factories[info.provider](info)
        return self._models[info.ref]

    def lacks(self, info: ModelInfo) -> str:
        """Why no call of a model can work, where that is known without one; else empty."""
        model = self.model(info)
        return model.lacks() if isinstance(model, Lacking) else ""

    def models(self) -> tuple[Model, ...]:
        """The clients in use, for `status`."""
        return tuple(self._models.values())

    def summariser(self, info: ModelInfo) -> ModelInfo:
        """The configured summarising model, else the session's own."""
        chosen = self._settings.compaction.model
        return self.model_info(chosen) if chosen else info

    def instructions(self, focus: str) -> Instructions:
        """The rules for a summary: identifier policy, the operator's words, a user's focus."""
        told = self._settings.compaction
        return Instructions(
            identifiers=told.identifier_policy,
            identifiers_text=told.identifier_instructions,
            focus="\n".join(filter(None, (told.instructions, focus))),
        )

    def stands_in(self, told: str) -> None:
        """A chosen plugin is not the one in use, in words for whoever starts the host."""
        self.replaced = "; ".join(filter(None, (self.replaced, told)))

    def environment(
        self,
        key: str,
        model: ModelInfo,
        thinking: str,
        *,
        fresh: bool = True,
        query: str = "",
        knowledge: bool = True,
        engine: str | None = None,
    ) -> Environment:
        """The prompt is built from the workspace as it stands now (`fresh`), or as the session knows it.

        What a session was shown is remembered while it sleeps, too: an edited file must not cost its
        cached prefix. Sessions of one workspace share one object. `query`: what workspace knowledge is
        ranked by; `knowledge` false: there is no room for any.
        """
        told = self._settings
        window = self._window or told.models.window or model.window
        lines = lines_for(told, window)
        id = self._chosen(engine)
        more = (tool for tool in self._engine_tools(id) if tool.spec.name not in self._tools)
        specs = tuple(tool.spec for tool in (*self._tools.values(), *more))
        snapshot = replace(self._look(key, fresh), root=self.shown_workspace(key))
        parts = prompt_parts(
            key, snapshot, specs, model, lines, told, thinking,
            query=query, knowledge=knowledge, memory=self._guidance,
        )  # fmt: skip
        return environment.resolve(
            key,
            model,
            build_prompt(parts),
            specs,
            lines,
            thinking=thinking,
            retention=told.models.cache if model.caching else "none",
            history_limit=history_limit(key, channels(told)),
            knowledge=parts.knowledge,
            heartbeat=told.heartbeat.prompt,
            output_cap=told.models.max_tokens or min(model.max_output, OUTPUT_CAP),
            pruning=pruning(told, model),
            engine=id,
        )

    def heartbeat(self, key: str, model: ModelInfo) -> tuple[str | None, Environment]:
        """The text of HEARTBEAT.md as it is now, and an environment with it and the tools, and little else.

        It is no turn of the session: what that was shown, and its cached prefix, stay as they are.
        """
        told = self._settings
        lines = lines_for(told, self._window or told.models.window or model.window)
        specs = tuple(tool.spec for tool in self._tools.values())
        snapshot = replace(self._reader.read(self.workspace(key)), root=self.shown_workspace(key), skills=())
        parts = prompt_parts(key, snapshot, specs, model, lines, told, "off", knowledge=False, heartbeat=True)
        text = next((file.text for file in snapshot.files if file.name == "HEARTBEAT.md"), None)
        cap = told.models.max_tokens or min(model.max_output, OUTPUT_CAP)
        prompt = build_prompt(parts)
        return text, environment.resolve(
            key, model, prompt, specs, lines, retention="none", output_cap=cap, pruning=None
        )

    def _look(self, key: str, fresh: bool) -> Snapshot:
        found = None if fresh else self._shown_to.get(key)
        if found is None:
            found = self._shown_to[key] = self._reader.read(self.workspace(key))
        self._shown_to.move_to_end(key)
        if len(self._shown_to) > REMEMBERED:
            self._shown_to.popitem(last=False)
        return found


REMEMBERED = 16_384  # sessions whose shown workspace is known: a key and a reference each
OUTPUT_CAP = 32_000  # tokens of one answer, unless configured: room that the input can't use


def lines_for(settings: Settings, window: int) -> Limits:
    """Every line for a window, as configured."""
    told, guard = settings.compaction, settings.guard
    lines = limits(window, threshold=told.threshold_tokens or None, kept_tail=told.keep_tokens or None)
    chars = window * CHARS_PER_TOKEN_ESTIMATE
    total = max(MIN_BUDGET_CHARS, int(chars * guard.total))
    return replace(
        lines,
        total_chars=total,
        overflow_chars=max(total, int(chars * guard.overflow)),
        single_chars=max(MIN_BUDGET_CHARS, int(window * TOOL_RESULT_CHARS_PER_TOKEN_ESTIMATE * guard.single)),
        size_entries=told.max_entries,
        size_bytes=told.max_mb * 1024 * 1024,
    )


def pruning(settings: Settings, model: ModelInfo) -> PruneSettings | None:
    """On for models with prompt caching; off is a setting. A cache that lives longer is cold later."""
    told = settings.pruning
    if told.mode == "off" or (told.mode == "auto" and not model.caching):
        return None
    return PruneSettings(
        ttl=max(told.ttl_seconds, LIFE[settings.models.cache if model.caching else "none"]),
        keep_last=told.keep_last_assistants,
        soft_ratio=told.soft_trim_ratio,
        hard_ratio=told.hard_clear_ratio,
        soft_max=told.soft_chars,
        head=told.head_chars,
        tail=told.tail_chars,
        hard_clear=told.hard_clear,
        least=told.min_chars,
        allow=told.allow_tools,
        deny=told.deny_tools,
    )


def channels(settings: Settings) -> dict[str, Any]:
    """The channels' limits in the shape that the limit's rule reads."""
    return {
        c.name: {
            "historyLimit": c.history_limit,
            "dmHistoryLimit": c.dm_history_limit,
            "dms": {dm.name: {"historyLimit": dm.history_limit} for dm in c.dms},
        }
        for c in settings.channels
    }
