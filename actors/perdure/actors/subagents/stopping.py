"""Stopping a tree from outside: everything below a session ends, each with its own record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.actors.messages import Mail
from perdure.actors.services import Services
from perdure.actors.subagents.mail import Halt
from perdure.errors import Busy, SessionNotFound
from perdure.kernel.waiter import Waiter

Ask = Callable[[str, Callable[[Waiter[Any]], Mail], float], Awaitable[Any]]


async def stopped(
    services: Services, key: str, ask: Ask, within: float, *, tree: bool
) -> tuple[bool, tuple[str, ...]]:
    """As `Host.stop`."""
    if not services.files.exists(key):
        raise SessionNotFound(f"{key}: no such session: see `perdure sessions list`")
    is_child = key in services.family.open
    below = services.family.below(key) if tree or is_child else []
    found = await ask(key, lambda done: Halt("stopped from outside", tree=tree, done=done), 30.0)
    every = [*below, key] if is_child else below
    if not await services.family.settled(every, within):
        left = sum(child in services.family.open for child in every)
        raise Busy(f"{key}: {left} of {len(every)} subagents have not ended within {within:g} s; they will")
    return bool(found), tuple(below)
