"""A law: what every context engine must keep, as data with a check that raises `Broken`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from perdure.testing.laws.bench import Bench

Check: TypeAlias = Callable[["Bench"], Awaitable[None]]
Loop: TypeAlias = Literal["asyncio", "trio"]


@dataclass(frozen=True, slots=True)
class Law:
    """`id` is `group.name`; `source` says where the rule comes from; `loops`: on which it is checked."""

    id: str
    sentence: str
    source: str
    check: Check
    loops: tuple[Loop, ...] = ("asyncio",)

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


class Broken(AssertionError):
    """A law was not kept: what was expected, what happened, in which history ("": in none)."""

    def __init__(self, expected: str, happened: str, history: str = "") -> None:
        where = f", in the history `{history}`" if history else ""
        super().__init__(" ".join(f"expected {expected}; {happened}{where}".split()))
        self.expected, self.happened, self.history = expected, happened, history


class Group:
    """The laws of one file, in their order. Call it with id, sentence and source to add a check."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.laws: list[Law] = []

    def __call__(
        self, id: str, sentence: str, source: str, *, loops: tuple[Loop, ...] = ("asyncio",)
    ) -> Callable[[Check], Check]:
        def added(check: Check) -> Check:
            self.laws.append(Law(f"{self.name}.{id}", sentence, source, check, loops))
            return check

        return added


def expect(kept: bool, expected: str, happened: str, history: str = "") -> None:
    """Raise `Broken` where it is not so."""
    if not kept:
        raise Broken(expected, happened, history)
