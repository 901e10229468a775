"""Finds the factory of an engine by what somebody calls it: a registered id, or `module:factory`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from perdure.errors import UnknownEngine, UsageError
from perdure.plugins.registry import Registry


def factory_of(name: str) -> Callable[..., Any]:
    """Raises `UnknownEngine`, or `UsageError` for a module or name that isn't there."""
    if ":" in name:
        return _imported(*name.split(":", 1))
    registry = Registry()
    if name not in registry.ids():
        raise UnknownEngine(f"context engine {name!r} is not known: one of {', '.join(registry.ids())}")
    return partial(_made, registry, name)


def _made(registry: Registry, name: str, lent: Any) -> Any:
    return registry.create(name, lent)


def _imported(module: str, path: str) -> Callable[..., Any]:
    """A module is found in the working folder, too, as `python -m` finds it."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        raise UsageError(f"{module}: can't be imported ({told}): give an id, or module:factory") from None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise UsageError(
            f"{module} has no factory {path!r}: name a class or a function that makes the engine"
        )
    return found  # type: ignore[no-any-return]
