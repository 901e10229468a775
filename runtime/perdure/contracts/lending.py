"""What a host lends a plugin: a folder, its settings, the one I/O policy, the clock, a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:  # the pure core imports this package, and no path
    from pathlib import Path

T = TypeVar("T")


class PluginRuntime(Protocol):
    """One for a plugin of a host; a factory that takes an argument gets it. Its calls have deadlines."""

    @property
    def store(self) -> Path:
        """A folder of the plugin's own in the state folder; it is there. What it holds is the plugin's."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table `[plugins.NAME]` of the configuration, as it was written."""
        ...

    @property
    def virtual(self) -> bool:
        """Time is virtual: no thread may be awaited, no process run; `run_blocking` works inline."""
        ...

    def wall_ms(self) -> int:
        """The time, in milliseconds since 1970. Plugins read no other clock."""
        ...

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run blocking work (SQLite, embeddings, files) where the I/O policy wants it."""
        ...

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        """One answer of the model that writes summaries for session `key`: its queue, its budget.

        Raises `ModelError`.
        """
        ...

    def log(self, event: str, **fields: object) -> None:
        """A line in `runtime.log`, as `plugin.<event>` with the plugin's name."""
        ...
