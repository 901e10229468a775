"""A task as virtual time sees it: counted while it runs, known by name while it waits."""

from __future__ import annotations

from contextvars import ContextVar
from math import inf

from perdure.kernel.park import Park


class Scope:
    """One `fail_after` of a task; `shield` hides what lies outside of it."""

    __slots__ = ("deadline", "seconds", "shield")

    def __init__(self, seconds: float, deadline: float, shield: bool = False) -> None:
        self.seconds, self.deadline, self.shield = seconds, deadline, shield


class Stop:
    """One wait of one task. The first release wins; `reason` is what ended it."""

    __slots__ = ("label", "owner", "park", "reason", "released")

    def __init__(self, owner: Owner, park: Park, label: str) -> None:
        self.owner, self.park, self.label = owner, park, label
        self.released = False
        self.reason: object = None


class Owner:
    """The counted task: name, its own count of ties, the wait it is in, its scopes."""

    __slots__ = ("cancelled", "clock", "count", "main", "name", "refused", "scopes", "stop", "task")

    def __init__(self, clock: object, name: str, main: bool = False) -> None:
        self.clock, self.name, self.main = clock, name, main
        self.count = 0
        self.task: object = (
            None  # whose waits these are: a foreign child task inherits the context, not the name
        )
        self.stop: Stop | None = None
        self.scopes: list[Scope] = []
        self.cancelled = False
        self.refused = 0  # waits refused since it was cancelled: a task that swallows that is stopped by it

    def visible(self) -> list[Scope]:
        """The scopes that act on a wait now, the innermost first."""
        found: list[Scope] = []
        for scope in reversed(self.scopes):
            if scope.shield:
                break
            found.append(scope)
        return found

    def nearest(self) -> Scope | None:
        """The scope that ends first; of equal ones the inner."""
        if not self.scopes:
            return None
        return min(self.visible(), key=lambda scope: scope.deadline, default=None)

    @property
    def shielded(self) -> bool:
        """Whether cancellation has to wait."""
        return any(scope.shield for scope in self.scopes)

    def label(self) -> str:
        """Who waits for what, for a person."""
        return f"{self.name} waits for {self.stop.label or 'something'}" if self.stop else f"{self.name} runs"


current: ContextVar[Owner | None] = ContextVar("perdure_kernel_owner", default=None)

NEVER = inf
