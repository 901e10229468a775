"""Long-running services, described as data, restarted one for one.

A child that breaks starts again after a back-off; one that breaks too often rests for its whole period (its
breaker is open) and is reported; when that happens too often in the tree, the root gives up and the program
ends, because a service that can't live is not a state to serve in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from perdure.kernel.deadlines import Timer
from perdure.kernel.errors import Escalated
from perdure.kernel.intensity import Backoff, Intensity
from perdure.kernel.jobs import Job, Jobs, Report
from perdure.kernel.outcome import Cancelled, Failed, Lost, Outcome

ROOT = Intensity(3, 600.0)  # services that may fail for good in ten minutes; one more ends the program
LOG = 256  # restarts remembered for `status`

State = Literal["running", "waiting", "resting", "done"]


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run and how to keep it running.

    permanent: restarted always; transient: only after a fault; temporary: never.
    """

    name: str
    factory: Callable[[], Awaitable[Any]]
    restart: Literal["permanent", "transient", "temporary"] = "permanent"
    intensity: Intensity = field(default=Intensity(5, 60.0))
    backoff: Backoff = field(default=Backoff())


@dataclass(frozen=True, slots=True)
class Restart:
    """One line of the log: who, when (of the clock's now), why, and the pause before the next start."""

    name: str
    at: float
    reason: str
    pause: float


class Child:
    """A running service. `stop` ends it for good."""

    __slots__ = ("_supervisor", "broke", "job", "spec", "state", "timer")

    def __init__(self, supervisor: Supervisor, spec: ChildSpec) -> None:
        self._supervisor, self.spec = supervisor, spec
        self.state: State = "waiting"
        self.job: Job | None = None
        self.timer: Timer | None = None
        self.broke: tuple[float, ...] = ()

    def stop(self) -> None:
        """Cancel it and don't restart it."""
        self.state = "done"
        if self.timer is not None:
            self.timer.cancel()
        if self.job is not None:
            self.job.cancel()


class Supervisor:
    """The root of the tree; sessions are actors, not children of it."""

    def __init__(
        self, jobs: Jobs, report: Report, escalate: Callable[[Escalated], None], root: Intensity = ROOT
    ) -> None:
        self._jobs, self._report, self._escalate, self._root = jobs, report, escalate, root
        self._failures: tuple[float, ...] = ()
        self.children: dict[str, Child] = {}
        self.log: deque[Restart] = deque(maxlen=LOG)
        self.stopping = False

    def start(self, spec: ChildSpec) -> Child:
        """Run this child from now on. A living child of the same name is an error of the caller."""
        old = self.children.get(spec.name)
        if old is not None and old.state != "done":
            raise ValueError(f"a service named {spec.name!r} runs already: stop it first")
        child = self.children[spec.name] = Child(self, spec)
        self._run(child)
        return child

    def _run(self, child: Child) -> None:
        if self.stopping or child.state == "done" or self._jobs.closed:
            return
        child.state, child.timer = "running", None
        child.job = self._jobs.start(child.spec.name, child.spec.factory, on_end=partial(self._ended, child))

    def _ended(self, child: Child, job: Job, outcome: Outcome) -> None:
        child.job = None
        if self.stopping or child.state == "done":
            child.state = "done"
            return
        fault = isinstance(outcome, Failed | Lost | Cancelled)
        if child.spec.restart == "temporary" or (child.spec.restart == "transient" and not fault):
            child.state = "done"
            if fault:
                self._report("service.failed", {"name": child.spec.name, "outcome": outcome})
            return
        self._again(
            child, repr(outcome.error) if isinstance(outcome, Failed) else type(outcome).__name__.lower()
        )

    def _again(self, child: Child, reason: str) -> None:
        spec, now = child.spec, self._jobs.clock.now()
        child.broke, within = spec.intensity.note(child.broke, now)
        pause = spec.backoff.delay(len(child.broke)) if within else spec.intensity.period
        child.state = "waiting" if within else "resting"
        self.log.append(Restart(spec.name, now, reason, pause))
        self._report(
            "service.restarts", {"name": spec.name, "reason": reason, "pause": pause, "state": child.state}
        )
        if not within:
            child.broke = ()
            self._failures, within = self._root.note(self._failures, now)
            if not within:
                self._escalate(Escalated(f"services fail too often, the last was {spec.name}: {reason}"))
                return
        child.timer = self._jobs.clock.call_after(pause, partial(self._run, child))

    def stop(self) -> None:
        """No more restarts; the jobs themselves are stopped by whoever owns them, in start order."""
        self.stopping = True
        for child in self.children.values():
            if child.timer is not None:
                child.timer.cancel()
