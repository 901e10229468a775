"""`perdure memory forget`: what says a text goes from an agent's memory, and from all that was made of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from perdure.actors.arguments import a_key
from perdure.actors.engines.lent import Lent
from perdure.actors.memories.chosen import forgets
from perdure.cli.output import emit, say
from perdure.cli.owning import Shop, now_ms, owning
from perdure.context.text.plural import counted
from perdure.contracts import Forgotten, MemoryContext
from perdure.errors import PerdureError, UsageError
from perdure.looking.memory import no_host, remembering
from perdure.looking.resolving import workspace

T = TypeVar("T")


def run(text: str, *, agent: str, state: Path | None, as_json: bool) -> int:
    """Exit 0 where something went, 1 where nothing said that. Raises `Locked` where a host runs."""
    key = a_key(f"agent:{agent}:cli:dm:local")
    with owning(state) as shop:
        name, done = anyio.run(_forget, shop, key, agent, text)
    if as_json:
        emit(_dict(name, agent, done))
    else:
        _show(name, agent, done)
    return 0 if _anything(done) else 1


class Handed(Lent):
    """What a memory is lent while a command owns the folder: all but a model."""

    def __init__(self, name: str, shop: Shop) -> None:
        super().__init__(name, shop.folder.path, shop.settings.plugins.options(name), no_host)
        self._log = shop.log

    virtual = False

    def wall_ms(self) -> int:
        return now_ms()

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work)

    async def complete(self, key: str, prompt: str, *, system: str = "", max_tokens: int = 2_000) -> str:
        raise UsageError("this memory asks a model in order to forget: let a running host do it")

    def log(self, event: str, **fields: object) -> None:
        self._log("plugin.told", plugin=self.name, what=event, **fields)


async def _forget(shop: Shop, key: str, agent: str, text: str) -> tuple[str, Forgotten]:
    chosen = remembering(shop.settings, shop.folder, partial(Handed, shop=shop))
    if chosen.trouble:
        raise PerdureError(chosen.trouble)
    forget, root = forgets(chosen), workspace(shop.settings, shop.folder, key)
    try:
        found = forget(MemoryContext(agent, key, root, Handed(chosen.id, shop)), text)
        done: Forgotten = await found if isawaitable(found) else found
    except (PerdureError, OSError):
        raise
    except Exception as error:  # a plugin's own bug, not ours
        raise PerdureError(f"memory {chosen.id}.forget: {type(error).__name__}: {error}") from error
    finally:
        if (dispose := getattr(chosen.memory, "dispose", None)) is not None and isawaitable(
            last := dispose()
        ):
            await last
    return chosen.id, done


def _anything(done: Forgotten) -> bool:
    return bool(done.notes or done.chunks or done.derived or done.sources)


def _dict(name: str, agent: str, done: Forgotten) -> dict[str, object]:
    return {
        "memory": name,
        "agent": agent,
        "done": _anything(done),
        "notes": done.notes,
        "chunks": done.chunks,
        "derived": done.derived,
        "sources": list(done.sources),
    }


def _show(name: str, agent: str, done: Forgotten) -> None:
    if not _anything(done):
        say(f"{name}: nothing of agent {agent} says that")
        return
    say(
        f"{name}: forgotten for agent {agent}: {counted(done.notes, 'passage')}, "
        f"{counted(done.chunks, 'chunk')} of the index, {counted(done.derived, 'derived row')}"
    )
    for source in done.sources:
        say(f"  {source}")
    say("What was said in a session stays there: see `perdure sessions delete`.")
