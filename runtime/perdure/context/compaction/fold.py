"""The ladder of a compaction, without I/O: it asks, is answered, and ends in a proven summary or a reason.

    fold = Fold(plan, limits=…, estimator=…)
    while isinstance(step := fold.step, Ask):
        fold.answer(await ask_the_model(step))

Rungs: all of it in stages → without the oversized, which are noted → small subsets, where a chunk that
fails is digested → a digest of everything, made without a model. A model that can't be reached is no
reason to lose detail: an automatic compaction is deferred, a commanded one fails, only overflow goes on.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Literal, TypeAlias

from perdure.context.compaction import prompts
from perdure.context.compaction.digest import digest, omitted, unavailable
from perdure.context.compaction.facts import Facts
from perdure.context.compaction.facts import collect as collect_facts
from perdure.context.compaction.identifiers import Found, collect
from perdure.context.compaction.judge import judge
from perdure.context.compaction.language import spoken
from perdure.context.compaction.plan import Plan
from perdure.context.compaction.proof import NO_FACTS, Draft, How, Proof, Refusal, Rung, compose, prove, spans
from perdure.context.compaction.redact import redact
from perdure.context.compaction.serialize import serialize
from perdure.context.compaction.size import weigher
from perdure.context.compaction.stages import (
    Weigh,
    adaptive_ratio,
    chunk_by_tokens,
    chunk_limit,
    oversized,
    stages,
)
from perdure.context.numbers import (
    CHARS_PER_TOKEN_ESTIMATE,
    FACT_SHARE,
    SERIALISED_RESULT_CHARS,
    SUMMARY_OUTPUT_TOKENS,
    Limits,
)
from perdure.context.safety.heartbeat import drop_silent_heartbeats
from perdure.context.tokens.estimator import CAREFUL, RESULT_WEIGHT, Estimator
from perdure.errors import ModelErrorKind
from perdure.records import Assistant, Item, Items, Record, Stop, Text, ToolResult

Trigger: TypeAlias = Literal["overflow", "threshold", "manual", "idle", "size", "model_switch"]

_ANSWER_AT_FAULT: frozenset[ModelErrorKind] = frozenset({"overflow", "invalid", "empty", "cut"})
"""Failures that a smaller or another request may not have; all others mean that nobody answers."""

_LEAST_OUTPUT = 256
_SUBSET_DIVISOR = 4
_FRUITLESS = 2
"""So many subsets in a row without one success, and the digest takes over: more calls won't help."""


class Ask(Record):
    """A request for the summariser: no tools, no history but `prompt`. `entries` are those it covers."""

    system: str
    prompt: str
    max_tokens: int
    stage: Literal["summary", "merge"]
    rung: Rung
    entries: tuple[str, ...] = ()
    tokens: int = 0


class Answered(Record):
    """The text of an answer, thinking left out, and how it ended."""

    text: str
    stop: Stop = "stop"


class Failed(Record):
    """The call failed, or was aborted (`aborted`)."""

    kind: ModelErrorKind


Reply: TypeAlias = Answered | Failed


class Done(Record):
    """A proven summary. `prove_again` is what the committer calls on the view as it is by then."""

    summary: str
    proof: Proof
    rung: Rung
    plan: Plan
    draft: Draft
    found: Found
    facts: Facts = NO_FACTS
    tried: tuple[str, ...] = ()

    def prove_again(self, grown: Items, *, limits: Limits, estimator: Estimator) -> Proof | Refusal:
        """The proof at commit: same summary, the view with what it gained meanwhile."""
        return prove(
            self.plan,
            self.draft,
            self.summary,
            found=self.found,
            limits=limits,
            estimator=estimator,
            grown=grown,
            facts=self.facts,
        )


class Stopped(Record):
    """No compaction. `hopeless`: this view can't be made smaller, so it isn't tried again."""

    why: Literal["aborted", "deferred", "failed", "hopeless"]
    reason: str
    tried: tuple[str, ...] = ()


Step: TypeAlias = Ask | Done | Stopped
_Text: TypeAlias = Generator[Ask, Reply, str | None]
_Drafting: TypeAlias = Generator[Ask, Reply, Draft | None]


class _Unreachable(Exception):
    def __init__(self, kind: ModelErrorKind) -> None:
        self.kind = kind


class Fold:
    """One compaction under way. `step` is what it wants now; `answer` gives it a model's reply."""

    def __init__(
        self,
        plan: Plan,
        *,
        limits: Limits,
        estimator: Estimator,
        rules: prompts.Instructions | None = None,
        trigger: Trigger = "threshold",
        window: int | None = None,
        max_output: int = SUMMARY_OUTPUT_TOKENS,
        chunk: int | None = None,
        weigh: Weigh | None = None,
        heartbeat: str = "",
    ) -> None:
        """`window` and `max_output` are the summariser's; `chunk` and `weigh` override sizes (tokens).

        `heartbeat`: the configured prompt, whose unanswered askings no summariser is shown.
        """
        self.plan, self.limits, self.estimator = plan, limits, estimator
        self.rules, self.trigger = rules or prompts.Instructions(), trigger
        self.window = window or limits.window
        self.careful = estimator if estimator.samples else CAREFUL
        self.weigh = weigh or self._read_size
        ratio = adaptive_ratio(plan.covered, self.window, self.weigh)
        self.chunk = chunk or chunk_limit(self.window, ratio)
        self.output = max(1, min(max_output, SUMMARY_OUTPUT_TOKENS, self.window // 8))
        self.silent = {line.entry for line in drop_silent_heartbeats(plan.covered, heartbeat).lines}
        self.previous = self._known()
        self.large = [oversized(item, self.window, weigher(limits, estimator)) for item in plan.covered]
        self.found = self._identifiers()
        self.facts = self._facts()
        self.last_answer, self.heard = _last_answer(plan.before), spoken(plan.before)
        self.tried: list[str] = []
        self._ladder = self._climb()
        self.step: Step = self._advance(None)

    def answer(self, reply: Reply) -> Step:
        """Take a reply to the current `Ask`; an abort ends everything at once."""
        if not isinstance(self.step, Ask):
            raise ValueError("the fold has ended: it asks nothing")
        if isinstance(reply, Failed) and reply.kind == "aborted":
            self._ladder.close()
            self.step = Stopped("aborted", "the compaction was aborted", tuple(self.tried))
        else:
            self.step = self._advance(reply)
        return self.step

    def _advance(self, reply: Reply | None) -> Step:
        try:
            return next(self._ladder) if reply is None else self._ladder.send(reply)
        except StopIteration as end:
            outcome: Step = end.value
            return outcome

    # --- the ladder -------------------------------------------------------------------------------

    def _climb(self) -> Generator[Ask, Reply, Step]:
        try:
            for rung in (self._staged, self._partial, self._subsets):
                draft = yield from rung()
                if draft is not None and isinstance(done := self._proven(draft), Done):
                    return done
        except _Unreachable as failure:
            if self.trigger != "overflow":
                return self._unanswered(failure.kind)
        done = self._proven(self._digest())
        if isinstance(done, Done):
            return done
        return Stopped(
            "hopeless", f"no summary is smaller than what it covers ({done.detail})", tuple(self.tried)
        )

    def _unanswered(self, kind: ModelErrorKind) -> Stopped:
        commanded = self.trigger in ("manual", "model_switch")
        then = "the conversation is as it was" if commanded else "it will be tried again later"
        why: Literal["failed", "deferred"] = "failed" if commanded else "deferred"
        return Stopped(why, f"the summarising model can't be used ({kind}): {then}", tuple(self.tried))

    def _proven(self, draft: Draft) -> Done | Refusal:
        clean = Draft(redact(draft.body), draft.rung, draft.spans)
        found, facts = self.found, self.facts
        summary = compose(clean.body, self.plan.pins, found, facts)
        proof = prove(
            self.plan, clean, summary, found=found, limits=self.limits, estimator=self.estimator, facts=facts
        )
        if isinstance(proof, Refusal):
            self.tried.append(f"{draft.rung}: {proof.reason}")
            return proof
        return Done(summary, proof, draft.rung, self.plan, clean, found, facts, tuple(self.tried))

    def _staged(self) -> _Drafting:
        covered = self.plan.covered
        parts = stages(covered, self.chunk, self.weigh)
        if len(parts) == 1:
            text = yield from self._chunks(covered, self.previous, "staged")
            return self._draft(text, "staged")
        partials: list[str] = []
        for part in parts:
            text = yield from self._chunks(part, "", "staged")
            if text is None:
                return None
            partials.append(text)
        text = yield from self._merge(tuple(partials))
        return self._draft(text, "staged")

    def _partial(self) -> _Drafting:
        if not any(self.large):
            return None
        small = tuple(item for item, large in zip(self.plan.covered, self.large, strict=True) if not large)
        text: str | None = self.previous
        if small:
            text = yield from self._chunks(small, self.previous, "partial")
        if text is None:
            return None
        return self._draft("\n\n".join(filter(None, [text, self._notes()])), "partial")

    def _subsets(self) -> _Drafting:
        """Small chunks, each message cut to fit; a chunk that fails is digested where it stands."""
        small = tuple(item for item, large in zip(self.plan.covered, self.large, strict=True) if not large)
        most = max(64, self.chunk // _SUBSET_DIVISOR)
        running, extracts, lost, fruitless = self.previous, [], set[str](), 0
        for chunk in chunk_by_tokens(small, most, self.weigh):
            text = yield from self._one(chunk, running, "subsets", most * RESULT_WEIGHT)
            if text is not None:
                running, fruitless = text, -1
                continue
            lost.update(item.entry for item in chunk)
            extracts.append(digest(chunk, previous="", tokens=max(60, most // 8), estimator=self.estimator))
            fruitless += fruitless >= 0
            if fruitless >= _FRUITLESS:
                return None
        if fruitless >= 0:
            return None
        body = "\n\n".join(filter(None, [running, *extracts, self._notes()]))
        return Draft(body, "subsets", spans(self.plan.covered, self._fates(lost)))

    def _digest(self) -> Draft:
        covered = self.plan.covered
        size = sum(map(weigher(self.limits, self.estimator), covered))
        room = min(self.limits.window // 16, size // 3)
        line = unavailable(len(covered), sum(self.large))
        text = digest(covered, previous=self.previous, tokens=room, estimator=self.estimator)
        how: list[How] = ["noted" if large else "digested" for large in self.large]
        body = "\n\n".join(filter(None, [line, text, self._notes()]))
        return Draft(body, "digest", spans(covered, how))

    # --- asking -----------------------------------------------------------------------------------

    def _chunks(self, items: Items, previous: str, rung: Rung) -> _Text:
        """Fold left: each chunk updates the summary of those before it."""
        running = previous
        for chunk in chunk_by_tokens(items, self.chunk, self.weigh):
            text = yield from self._one(chunk, running, rung, None)
            if text is None:
                return None
            running = text
        return running

    def _one(self, chunk: Items, previous: str, rung: Rung, most: int | None) -> _Text:
        split = self.plan.split_turn and chunk[-1] is self.plan.covered[-1]
        shown = tuple(item for item in chunk if item.entry not in self.silent) or chunk
        conversation = serialize(shown, most=most)
        prompt = prompts.summary_prompt(conversation, previous, self.rules, split_turn=split)
        entries, material = tuple(item.entry for item in chunk), f"{previous}\n{conversation}"
        return (yield from self._ask(prompt, "summary", rung, entries, material))

    def _merge(self, partials: tuple[str, ...]) -> _Text:
        entries = tuple(item.entry for item in self.plan.covered)
        prompt = prompts.merge_prompt(partials, self.previous, self.rules)
        return (
            yield from self._ask(prompt, "merge", "staged", entries, "\n".join((*partials, self.previous)))
        )

    def _ask(
        self,
        prompt: str,
        stage: Literal["summary", "merge"],
        rung: Rung,
        entries: tuple[str, ...],
        material: str,
    ) -> _Text:
        """One request, if it fits the summariser at all; None where its answer is no summary."""
        size = self.careful.text(prompt) + self.careful.text(prompts.SYSTEM)
        room = self.window - size
        if room < min(_LEAST_OUTPUT, self.output):
            self.tried.append(f"{rung}: too large to ask")
            return None
        reply = yield Ask(prompts.SYSTEM, prompt, min(self.output, room), stage, rung, entries, tokens=size)
        if isinstance(reply, Failed):
            self.tried.append(f"{rung}: {reply.kind}")
            if reply.kind not in _ANSWER_AT_FAULT:
                raise _Unreachable(reply.kind)
            return None
        flaw = judge(
            reply.text, stop=reply.stop, last_answer=self.last_answer, material=material, heard=self.heard
        )
        if flaw is not None:
            self.tried.append(f"{rung}: {flaw}")
        return None if flaw is not None else reply.text.strip()

    # --- small things -----------------------------------------------------------------------------

    def _draft(self, text: str | None, rung: Rung) -> Draft | None:
        if text is None:
            return None
        noted = self.large if rung == "partial" else [False] * len(self.large)
        how: list[How] = ["noted" if large else "summarised" for large in noted]
        return Draft(text, rung, spans(self.plan.covered, how))

    def _fates(self, lost: set[str]) -> list[How]:
        return [
            "noted" if large else "digested" if item.entry in lost else "summarised"
            for item, large in zip(self.plan.covered, self.large, strict=True)
        ]

    def _notes(self) -> str:
        size = weigher(self.limits, self.estimator)
        large = [item for item, is_large in zip(self.plan.covered, self.large, strict=True) if is_large]
        return "\n".join(omitted(item, size(item)) for item in large)

    def _identifiers(self) -> Found:
        if self.rules.identifiers == "off":
            return Found(())
        budget = self.limits.identifiers
        return collect(self.plan.covered, self.plan.previous, budget=budget, estimator=self.estimator)

    def _facts(self) -> Facts:
        """At most their share of the window, and of what is covered: beside them the view must shrink."""
        size = sum(map(weigher(self.limits, self.estimator), self.plan.covered))
        return collect_facts(
            self.plan.covered,
            self.plan.kept,
            self.plan.previous,
            budget=min(int(self.limits.window * FACT_SHARE), size // 6),
            estimator=self.estimator,
            pinned=[pin.text for pin in self.plan.pins],
        )

    def _known(self) -> str:
        """The earlier summary; a foreign one of any size is cut to an eighth of the window."""
        most = self.window // 8
        text = self.plan.previous
        if self.careful.text(text) <= most:
            return text
        return digest((), previous=text, tokens=most, estimator=self.careful)

    def _read_size(self, item: Item) -> int:
        """Tokens of a message as the summariser reads it: results are clipped, images are a line."""
        size = self.careful.item(item)
        if isinstance(item.message, ToolResult):
            clipped = (SERIALISED_RESULT_CHARS + 120) * RESULT_WEIGHT // CHARS_PER_TOKEN_ESTIMATE
            return min(size, clipped)
        return size


def _last_answer(items: Items) -> str:
    for item in reversed(items):
        if isinstance(item.message, Assistant):
            text = "\n".join(block.text for block in item.message.content if isinstance(block, Text))
            if text.strip():
                return text
    return ""
