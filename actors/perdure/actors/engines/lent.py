"""What a host lends its plugins: a folder, their settings, the I/O policy, the clock, a model, the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from perdure.actors.engines.completing import completed
from perdure.actors.messages import Snapshot
from perdure.actors.services import Services
from perdure.context.tokens.estimator import Estimator
from perdure.contracts import EngineContext, PluginRuntime, Replacement, Rewritten
from perdure.edges.forgetting import PLUGINS
from perdure.edges.session.history import History
from perdure.edges.settings import PluginSettings
from perdure.errors import UsageError
from perdure.records import Items, Text, User

T = TypeVar("T")
Rewrite: TypeAlias = Callable[[tuple[Replacement, ...]], Awaitable[Rewritten]]


class Lent:
    """`PluginRuntime` of the plugin `name`; `services` is asked with each use, for it comes after plugins."""

    def __init__(
        self,
        name: str,
        state: Path,
        settings: Mapping[str, Any],
        services: Callable[[], Services],
        *,
        virtual: bool = False,
    ) -> None:
        self.name, self.settings, self._state, self._services = name, settings, state, services
        self.virtual = virtual

    @property
    def store(self) -> Path:
        """The plugin's folder, made on first use."""
        folder = self._state / PLUGINS / self.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def wall_ms(self) -> int:
        return self._services().clock.wall_ms()

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await self._services().io.run(work)

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        return await completed(self._services(), key, prompt, system=system, max_tokens=max_tokens)

    def log(self, event: str, **fields: object) -> None:
        self._services().log("plugin.told", plugin=self.name, what=event, **fields)


class Lending:
    """Makes what each plugin is lent, once."""

    def __init__(
        self, state: Path, settings: PluginSettings, services: Callable[[], Services], *, virtual: bool
    ) -> None:
        self._state, self._settings, self._services, self._virtual = state, settings, services, virtual
        self._made: dict[str, Lent] = {}

    def __call__(self, name: str) -> PluginRuntime:
        if name not in self._made:
            told = self._settings.options(name)
            self._made[name] = Lent(name, self._state, told, self._services, virtual=self._virtual)
        return self._made[name]


class SessionLent:
    """`EngineRuntime` of one call: what its plugin is lent, and the session that the call is about."""

    def __init__(
        self,
        plugin: PluginRuntime,
        services: Services,
        file: str,
        estimator: Estimator,
        rewrite: Rewrite | None,
    ) -> None:
        self._plugin, self._services, self._file, self._estimator = plugin, services, Path(file), estimator
        self._rewrite = rewrite
        self.settings, self.virtual = plugin.settings, plugin.virtual
        self.wall_ms, self.run_blocking = plugin.wall_ms, plugin.run_blocking
        self.complete, self.log = plugin.complete, plugin.log

    @property
    def store(self) -> Path:
        return self._plugin.store

    def estimate(self, items: Items) -> int:
        return sum(map(self._estimator.item, items))

    async def history(self, after: str = "", limit: int = 1_000) -> Items:
        return await self._services.io.run(partial(History(self._file).messages, after, limit))

    async def rewrite_transcript_entries(self, replacements: tuple[Replacement, ...]) -> Rewritten:
        if self._rewrite is None:
            raise UsageError("entries are rewritten in `maintain` only")
        return await self._rewrite(replacements)


def context_of(
    services: Services, view: Snapshot, budget: int | None = None, *, rewrite: Rewrite | None = None
) -> EngineContext:
    """What an engine is told about the session of a snapshot; `rewrite`: it may change entries."""
    env = view.environment
    plugin = services.lent(env.engine)
    return EngineContext(
        session_id=view.session_id,
        session_key=view.key,
        session_file=view.file,
        token_budget=max(0, env.limits.total - env.fixed_tokens) if budget is None else budget,
        runtime=SessionLent(plugin, services, view.file, view.estimator, rewrite),
        model=env.model,
        prompt=newest_prompt(view.items),
        tools=tuple(spec.name for spec in env.tools),
    )


def newest_prompt(items: Items) -> str:
    """The text of the newest user message, "" where there is none."""
    users = (item.message for item in reversed(items) if isinstance(item.message, User))
    newest = next(users, User(()))
    return "\n".join(block.text for block in newest.content if isinstance(block, Text))
