"""Where mutants are gathered: by name, with the laws that must catch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MUTANTS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {}


def mutant(*laws: str) -> Callable[[type], type]:
    """Adds an engine with one fault."""

    def named(kind: type) -> type:
        MUTANTS[kind.__name__] = (kind, laws)
        return kind

    return named
