"""Which model and tool steps are next: the script as queues, one a session, filled turn by turn."""

from __future__ import annotations

from collections import deque

from perdure.records import ToolCall
from perdure.replay.steps import (
    CommandStep,
    HeartbeatStep,
    ModelStep,
    Scenario,
    Step,
    ToolStep,
    UserStep,
    moment,
)

Cue = tuple[int, ModelStep | ToolStep]
OPENINGS = (UserStep, HeartbeatStep, CommandStep)


class Cues:
    """The cues of one session. `unused` were dropped when the next turn opened, `unscripted` made up."""

    def __init__(self) -> None:
        self.models: deque[Cue] = deque()
        self.tools: list[Cue] = []
        self.unused = self.unscripted = 0

    def open(self, cues: list[Cue], *, steering: bool) -> None:
        """A turn opens: what is left of the one before is dropped, unless this one steers it."""
        if not steering:
            self.unused += len(self.models) + len(self.tools)
            self.models.clear()
            self.tools.clear()
        for cue in cues:
            if isinstance(cue[1], ModelStep):
                self.models.append(cue)
            else:
                self.tools.append(cue)

    def model(self) -> tuple[int, ModelStep] | None:
        """What the model answers next; `None`: the script says nothing."""
        if not self.models:
            self.unscripted += 1
            return None
        at, step = self.models.popleft()
        assert isinstance(step, ModelStep)
        return at, step

    def tool(self, call: ToolCall) -> tuple[int, ToolStep] | None:
        """What this call returns: a step for its id, else for its name, else the next for any call."""
        for fits in (
            lambda step: bool(step.id) and step.id == call.id,
            lambda step: not step.id and step.name == call.name,
            lambda step: not step.id and not step.name,
        ):
            for n, (at, step) in enumerate(self.tools):
                if isinstance(step, ToolStep) and fits(step):
                    del self.tools[n]
                    return at, step
        return None


def by_opening(scenario: Scenario) -> dict[int, list[Cue]]:
    """For each opening step (its index) the model and tool steps of its turn, in order."""
    found: dict[int, list[Cue]] = {}
    open_at: dict[str, int] = {}
    for at, step in enumerate(scenario.steps):
        if isinstance(step, OPENINGS):
            open_at[step.session] = at
            found[at] = []
        elif isinstance(step, ModelStep | ToolStep) and step.session in open_at:
            found[open_at[step.session]].append((at, step))
    return found


def followed(scenario: Scenario) -> frozenset[int]:
    """Indexes of the cues that a step comes directly after."""
    steps = scenario.steps
    after = (
        n for n, s in enumerate(steps) if not isinstance(s, ModelStep | ToolStep) and moment(s) == "after"
    )
    return frozenset(at for n in after if (at := before(steps, n)) is not None)


def before(steps: tuple[Step, ...], at: int) -> int | None:
    """The index of the model or tool step that a step at `at` is `during` or `after`."""
    return next((n for n in range(at - 1, -1, -1) if isinstance(steps[n], ModelStep | ToolStep)), None)
