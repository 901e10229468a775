"""A recording's acts → the steps of a scenario. Pure.

Rule: a replay asks the model exactly where the recording has an answer, else one is made up (aborted),
so that no reply ever slips to another question.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec import Raw

from perdure.records import Bash, Block, Custom, Image, Opaque, Stop, Text, Thinking, ToolCall, User
from perdure.replay.acts import Act, Aside, Ask, Ran, Reply
from perdure.replay.clean import clean, clean_json
from perdure.replay.content import parts
from perdure.replay.steps import (
    BashStep,
    Call,
    ModelChangeStep,
    ModelStep,
    Parts,
    Step,
    ThinkingStep,
    ToolStep,
    UserStep,
)

LONGEST = 60.0  # seconds: recorded waits for people (an approval, a laptop asleep) would run into deadlines
INTERRUPTED = "interrupted: the recording has no result of this call; it may have run"
NO_REPLY = "the recording has no reply here"
CONTINUE = "(continue)"


class Script:
    """Takes acts one after the other; `steps` is what has come of them so far."""

    def __init__(self, start: int, model: str, thinking: str, lost: Counter[str]) -> None:
        self.steps: list[Step] = []
        self.kept = 0  # entries of the recording that are in the steps
        self._start, self._model, self._thinking, self._lost = start, model, thinking, lost
        self._due: str = ""  # "", "asked" or "tools": why a model call is due
        self._free = start  # when the last act was over, epoch ms
        self._held: list[Aside] = []

    def take(self, act: Act, model: str) -> None:
        """One act; `model` is who answers next, as `provider/id` ("" where it isn't told)."""
        match act:
            case Ask():
                self._ask(act, model)
            case Reply():
                self._reply(act, model)
            case Aside() if self._due:
                self._held.append(act)
            case Aside():
                self._aside(act)

    def close(self) -> None:
        """The recording ends: a call that is still due gets no answer."""
        if self._due:
            self._unanswered()

    def _at(self, time: int) -> float:
        return max(0, time - self._start) / 1000

    def _ask(self, act: Ask, model: str) -> None:
        if self._due == "asked":
            self._unanswered()
        steering = self._due == "tools"
        if not steering:
            self._switch(model, act.time)
        at = None if steering else self._at(act.time)
        self.steps.append(_asked(act.message, at, steering))
        self.kept += 1
        self._due = self._due or "asked"
        self._free = act.time if not steering else self._free

    def _unanswered(self) -> None:
        self._lost["replies missing in the recording (made up as aborted)"] += 1
        self.steps.append(ModelStep(stop="aborted", error=NO_REPLY, latency=0.0))
        self._rest()

    def _rest(self) -> None:
        self._due = ""
        held, self._held = self._held, []
        for aside in held:
            self._aside(aside)

    def _switch(self, model: str, time: int) -> None:
        if model and model != self._model:
            self.steps.append(ModelChangeStep(model=model, at=self._at(time), when="rest"))
            self._model = model

    def _aside(self, act: Aside) -> None:
        what, at = act.what, self._at(max(act.time, self._free))
        self._free = max(act.time, self._free)
        if isinstance(what, Bash):
            self.steps.append(_bash(what, at))
        elif what.kind == "model":
            self._switch(what.value, self._free)
        elif what.value != self._thinking:
            self.steps.append(ThinkingStep(level=what.value, at=at, when="rest"))
            self._thinking = what.value
        self.kept += 1

    def _reply(self, act: Reply, model: str) -> None:
        if not self._due and act.failed:
            self._lost["failures without a question"] += 1
            return
        if not self._due:
            self._lost["questions missing in the recording (made up)"] += 1
            self._switch(model, self._free)
            self.steps.append(UserStep(text=CONTINUE, at=self._at(self._free), when="rest"))
        self.steps.append(_model(act, _seconds(act.time - self._free), self._lost))
        self.steps += [self._tool(ran, act.time) for ran in act.ran]
        self.kept += 1 + sum(ran.result is not None for ran in act.ran)
        self._free = max([act.time, *(ran.time for ran in act.ran)])
        self._due = "tools"
        if not act.ran:
            self._rest()

    def _tool(self, ran: Ran, called: int) -> ToolStep:
        id, name = clean(ran.call.id), "" if ran.call.id else clean(ran.call.name)
        if ran.result is None:
            self._lost["calls without a result (answered as interrupted)"] += 1
            return ToolStep(id=id, name=name, text=INTERRUPTED, error=True)
        result, latency = ran.result, _seconds(ran.time - called)
        self._lost["details of tool results"] += result.details is not None
        text, content = _said(result.content)
        return ToolStep(id=id, name=name, text=text, content=content, error=result.is_error, latency=latency)


def _seconds(ms: int) -> float:
    return min(max(0, ms) / 1000, LONGEST)


def _said(content: tuple[Block, ...]) -> tuple[str | None, Parts | None]:
    """One text as text, nothing as nothing, all else as exact blocks."""
    sent = tuple(_cleaned(block) for block in content if isinstance(block, Text | Image))
    if not sent:
        return None, None
    if len(sent) == 1 and isinstance(sent[0], Text) and sent[0].signature is None:
        return sent[0].text, None
    return None, parts(sent)


def _asked(message: User | Custom, at: float | None, steering: bool) -> UserStep:
    text, content = _said(message.content)
    if isinstance(message, Custom):
        kind = "internal_system"
    else:
        kind = message.provenance.kind if message.provenance else ""
    step = UserStep(text=text, content=content, at=at, when="during" if steering else "rest")
    if kind == "inter_session":
        return msgspec.structs.replace(step, kind="inter_session")
    return msgspec.structs.replace(step, kind="internal_system") if kind == "internal_system" else step


def _bash(what: Bash, at: float) -> BashStep:
    return BashStep(
        command=clean(what.command),
        text=clean(what.output),
        exit_code=what.exit_code,
        cancelled=what.cancelled,
        excluded=what.excluded,
        at=at,
        when="rest",
    )


def _model(act: Reply, latency: float, lost: Counter[str]) -> ModelStep:
    message = act.message
    lost["blocks of unknown types"] += sum(isinstance(block, Opaque) for block in message.content)
    content = tuple(_cleaned(block) for block in message.content if not isinstance(block, Opaque))
    if not act.ran and not act.failed:  # nothing ran, so the model must not seem to ask for it
        lost["calls cut off by the length limit"] += sum(isinstance(block, ToolCall) for block in content)
        content = tuple(block for block in content if not isinstance(block, ToolCall))
    failed = message.error if act.failed else None
    step = ModelStep(stop=_stop(act, content), error=clean(failed) if failed else None, latency=latency)
    return _worded(step, content)


def _stop(act: Reply, content: tuple[Block, ...]) -> Stop | None:
    """Written only where it doesn't follow from what is said."""
    stop = act.message.stop
    if act.failed or (stop == "length" and not act.ran):
        return stop
    return None if content else "stop"


def _worded(step: ModelStep, content: tuple[Block, ...]) -> ModelStep:
    """Thinking, text and calls where the blocks are just that, in that order; else exact blocks."""
    if not content:
        return step
    kinds = [type(block) for block in content]
    plain = [kind for kind in (Thinking, Text) if kind in kinds] + [ToolCall] * kinds.count(ToolCall)
    if kinds != plain or any(getattr(block, "signature", None) is not None for block in content):
        return msgspec.structs.replace(step, content=parts(content))
    if not any(block.text for block in content if isinstance(block, Text)) and Text in kinds:
        return msgspec.structs.replace(step, content=parts(content))
    calls = tuple(
        Call(name=b.name, arguments=Raw(b.arguments), id=b.id) for b in content if isinstance(b, ToolCall)
    )
    text = next((block.text for block in content if isinstance(block, Text)), None)
    thinking = next((block.thinking for block in content if isinstance(block, Thinking)), None)
    return msgspec.structs.replace(step, text=text, thinking=thinking, calls=calls)


def _call(block: ToolCall) -> Call:
    return Call(name=block.name, arguments=Raw(block.arguments), id=block.id)


def _cleaned(block: Block) -> Block:
    match block:
        case Text():
            return Text(clean(block.text), block.signature)
        case Thinking():
            return Thinking(clean(block.thinking), block.signature, block.redacted)
        case ToolCall():
            return ToolCall(clean(block.id), clean(block.name), clean_json(block.arguments), block.signature)
        case _:
            return block
