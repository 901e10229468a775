"""The memory that fills the slot, its tools and its words for the prompt: asked once, and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.contracts import Memory, Tool
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.builtin import offered
from perdure.errors import PerdureError, UsageError
from perdure.records import ToolSpec

NONE, DEFAULT = "none", "memory-core"


def slot_of(told: str, *, own_tools: bool = False) -> str:
    """The id that fills the slot. A program that brings its own tools has none by default: they are all."""
    return told or (NONE if own_tools else DEFAULT)


@dataclass(frozen=True, slots=True)
class Chosen:
    """`trouble` says in words why it is not the memory that was chosen, or what of it is left out."""

    memory: Memory
    tools: tuple[Tool, ...] = ()
    guidance: str = ""
    trouble: str = ""

    @property
    def id(self) -> str:
        return self.memory.info.id


def choose(
    name: str,
    given: Memory | None,
    make: Callable[[str], Memory],
    *,
    strict: bool,
    taken: frozenset[str] = frozenset(),
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
) -> Chosen:
    """The program's own memory, else the slot's. A missing or broken one is none, or refused if `strict`.

    `taken`: names of tools that the sessions have already; theirs is the name. Raises `PerdureError`.
    """
    try:
        memory = given or make(name)
        tools, guidance = tuple(memory.tools()), memory.guidance()
        _check(memory, tools, guidance)
    except Exception as error:  # a plugin's factory and its first words may raise whatever they want
        which = repr(name) if given is None else "of the program"
        told = str(error) if isinstance(error, PerdureError) else f"memory {which} broke: {error!r}"
        if strict:
            raise PerdureError(told) from None
        return Chosen(make(NONE), trouble=f"{told}; there is no memory instead")
    double = sorted({tool.spec.name for tool in tools} & taken)
    kept = tuple(
        Checked(tool)
        for tool in tools
        if tool.spec.name not in double and offered(tool.spec.name, allow, deny)
    )
    trouble = f"memory {memory.info.id}: other tools have the names {', '.join(double)}" if double else ""
    words = guidance if kept or not tools else ""  # they would speak of tools that nobody has
    return Chosen(memory, kept, words, trouble)


def forgets(chosen: Chosen) -> Callable[..., Any]:
    """Its `forget`. Raises `UsageError` for a memory that has none."""
    found: Callable[..., Any] | None = getattr(chosen.memory, "forget", None)
    if found is None:
        why = "keeps nothing" if chosen.id == NONE else "can't forget: it has to be done in its own store"
        raise UsageError(f"memory {chosen.id!r} {why}")
    return found


def _check(memory: Memory, tools: tuple[Tool, ...], guidance: object) -> None:
    """Raises `PerdureError` for what could not stand in a request."""
    if not isinstance(guidance, str):
        raise PerdureError(f"memory {memory.info.id!r}: its guidance is {type(guidance).__name__}, not text")
    names = []
    for tool in tools:
        if not isinstance(getattr(tool, "spec", None), ToolSpec) or not hasattr(tool, "run"):
            raise PerdureError(f"memory {memory.info.id!r}: {tool!r} is no tool: it needs `spec` and `run`")
        names.append(tool.spec.name)
    if len({*names}) < len(names):
        raise PerdureError(f"memory {memory.info.id!r}: two of its tools have one name: {', '.join(names)}")
