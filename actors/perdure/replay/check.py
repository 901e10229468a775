"""What a single step can't tell: whether a step makes sense where it stands. Pure; one pass, in order."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from perdure.replay.content import called
from perdure.replay.counts import COUNTS, bounds
from perdure.replay.generate import KINDS
from perdure.replay.steps import (
    CommandStep,
    CrashStep,
    ExpectStep,
    FileStep,
    Generate,
    HeartbeatStep,
    ImagePart,
    ModelStep,
    Parts,
    RestartStep,
    Step,
    TextPart,
    ToolStep,
    UserStep,
    moment,
)

MOST_CHARS = 64_000_000  # a generated text is made in memory; more is a mistake
_CAN_RETRY_AFTER = ("rate_limit", "overloaded")
_SPEAKING = ("cut", "stall", "refusal")  # faults before which something may arrive


class Wrong(Exception):
    """What is wrong with a line, and what to do; the caller adds file and line."""


class Checker:
    """Accepts the steps of one scenario in file order. `clock` is the latest `at` so far, in seconds."""

    def __init__(self) -> None:
        self.clock = 0.0
        self._open: set[str] = set()  # sessions in which something was said
        self._busy: set[str] = set()  # … and that have a model or tool step above
        self._calls: dict[str, set[str]] = {}  # names and ids called so far

    def accept(self, step: Step) -> Step:
        """The step with its session's full key. Raises `Wrong`."""
        step = _named(step)
        match step:
            case ModelStep():
                self._model(step)
            case ToolStep():
                self._tool(step)
            case _:
                self._timed(step)
        return step

    def _model(self, step: ModelStep) -> None:
        if step.session not in self._open:
            raise Wrong(
                f"nobody spoke to {step.session} yet; a model step stands below the user, heartbeat or "
                "command step that it answers"
            )
        _answer(step)
        self._busy.add(step.session)
        self._calls.setdefault(step.session, set()).update(called(step))

    def _tool(self, step: ToolStep) -> None:
        known = self._calls.get(step.session, set())
        for word in (step.name, step.id):
            if word and word not in known:
                names = ", ".join(sorted(known)) or "nothing"
                raise Wrong(f'no model step of this session above calls "{word}" (it calls {names})')
        if not known:
            raise Wrong("no model step of this session above calls a tool")
        _latency(step.latency)
        _text(step)
        self._busy.add(step.session)

    def _timed(self, step: Any) -> None:
        self._time(step)
        session = getattr(step, "session", None)
        if moment(step) in ("during", "after") and not (
            session in self._busy or (not session and self._busy)
        ):
            raise Wrong('"during" and "after" mean the model or tool step above, but there is none')
        if isinstance(step, UserStep | HeartbeatStep | CommandStep | CrashStep | RestartStep):
            _opens(step)
            self._open |= {session} if session else set()
        elif isinstance(step, ExpectStep):
            _expectation(step)
        _text(step)

    def _time(self, step: Any) -> None:
        if step.at is None:
            if step.when == "due":
                raise Wrong('"when": "due" needs "at"')
            return
        if moment(step) in ("during", "after"):
            raise Wrong('"during" and "after" happen at the step above; leave "at" out')
        if step.at < self.clock:
            raise Wrong(
                f"the time {step.at:g} s lies before the step above ({self.clock:g} s); order by time"
            )
        self.clock = step.at


def _named(step: Step) -> Step:
    """A short session name stands for a direct chat of the main agent."""
    session = getattr(step, "session", None)
    if session is None or ":" in session:
        return step
    if not session or session != session.strip() or not session.isprintable():
        raise Wrong('"session" is a key such as "agent:main:cli:dm:local", or a short name')
    return replace(step, session=f"agent:main:cli:dm:{session}")


def _opens(step: UserStep | HeartbeatStep | CommandStep | CrashStep | RestartStep) -> None:
    match step:
        case UserStep():
            if not _given(step) or (step.text is not None and not step.text.strip()):
                raise Wrong('a user step says something: give it "text", "generate" or "content"')
            if not step.sender:
                raise Wrong('"sender" must not be empty')
        case CommandStep() if not step.text.startswith("/"):
            raise Wrong(f'a command begins with "/": write "/{step.text}", or use a user step')
        case CrashStep() | RestartStep() if not 0 <= step.down < math.inf:
            raise Wrong('"down" is in seconds, 0 or more')
        case _:
            pass


def _given(step: Any) -> list[str]:
    forms = ("text", "generate", "content")
    return [form for form in forms if getattr(step, form, None) is not None]


def _text(step: Any) -> None:
    """At most one form of text, a possible generated one, and readable blocks."""
    given = _given(step)
    if len(given) > 1:
        raise Wrong(f'give one of "{given[0]}" and "{given[1]}", not both')
    made: Generate | None = getattr(step, "generate", None)
    if made is not None:
        _generate(made)
    if isinstance(step, FileStep) and not given:
        raise Wrong('a file step needs "text" or "generate"')
    content: Parts | None = getattr(step, "content", None)
    if isinstance(step, UserStep | ToolStep) and not all(
        isinstance(part, TextPart | ImagePart) for part in content or ()
    ):
        raise Wrong('"content" here is made of "text" and "image" blocks')


def _generate(made: Generate) -> None:
    if not 0 <= made.chars <= MOST_CHARS:
        raise Wrong(f'"chars" is 0 to {MOST_CHARS:,}')
    needs = sum(len(part) + 1 for part in (made.head, made.tail) if part)
    if needs > made.chars:
        raise Wrong(f'"head" and "tail" take {needs} characters of {made.chars}; raise "chars"')
    assert made.kind in KINDS


def _latency(seconds: float) -> None:
    if not 0 <= seconds < math.inf:
        raise Wrong('"latency" is in seconds, 0 or more')


def _answer(step: ModelStep) -> None:
    """The combinations of a model step that mean something."""
    _latency(step.latency)
    _text(step)
    said = _given(step) or step.calls or step.thinking
    if step.content is not None and (step.calls or step.thinking):
        raise Wrong('"content" is the whole answer; leave "calls" and "thinking" out')
    for call in step.calls:
        if bytes(call.arguments)[:1] not in (b"{", b'"'):
            raise Wrong('"arguments" is an object (or a string, to be sent as it stands)')
    if step.fault is not None:
        _fault(step, bool(said))
    elif step.retry_after is not None:
        raise Wrong('"retry_after" belongs to a "fault"')
    if step.error is not None and step.stop not in ("error", "aborted"):
        raise Wrong('"error" needs "stop": "error" or "aborted"; to fail one request, use "fault"')
    if step.stop == "toolUse" and not called(step):
        raise Wrong('"stop": "toolUse" needs "calls"')
    if step.fault is None and step.stop is None and not said:
        raise Wrong('a model step says something: "text", "generate", "calls", "thinking" or a "fault"')


def _fault(step: ModelStep, said: bool) -> None:
    if step.stop is not None or step.error is not None:
        raise Wrong('"fault" fails the request; "stop" and "error" are of answers')
    if step.fault == "malformed_arguments":
        if not step.calls:
            raise Wrong('"malformed_arguments" needs "calls" (the first one\'s arguments are cut)')
    elif said and step.fault not in _SPEAKING:
        raise Wrong(f'nothing arrives before a "{step.fault}" fault; leave text and calls out')
    if step.retry_after is not None and (step.fault not in _CAN_RETRY_AFTER or step.retry_after < 0):
        raise Wrong(f'"retry_after" is in seconds and belongs to {", ".join(_CAN_RETRY_AFTER)}')


def _expectation(step: ExpectStep) -> None:
    counts = {name: getattr(step, name) for name in COUNTS}
    texts = (step.reply, step.stop, step.visible, step.hidden, step.findable)
    if all(value is None for value in (*counts.values(), *texts)):
        raise Wrong("an expect step expects nothing; name a count or a text")
    for name, value in counts.items():
        if value is not None and bounds(value) is None:
            raise Wrong(f'"{name}" is a count: 3, ">=3", "<=3" or "2..5"')
