"""Summarisers that fail in every known way, and a session in memory that they compact again and again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from helpers_messages import call, result, says, user
from helpers_summaries import BAD, GOOD
from perdure.actors import coordinator
from perdure.actors.coordinator import Coordinator, Reason, Start
from perdure.context.compaction.fold import Answered, Ask, Done, Failed, Fold, Reply, Stopped
from perdure.context.compaction.plan import Nothing, Plan, plan
from perdure.context.compaction.proof import Proof
from perdure.context.compaction.size import view_tokens
from perdure.context.numbers import limits
from perdure.context.tokens.estimator import Estimator, Gauge
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint
from perdure.records import Item, Items, Message, Summary

PLAIN = Estimator()
FOREIGN = [texts[kind] for name, texts in GOOD.items() if name != "en" for kind in texts]
LONG = " ".join(f"Step {n} was looked at from side {n * 7}." for n in range(2_000))

ANSWERS: dict[str, Callable[[random.Random], Reply]] = {
    "empty": lambda rng: Answered(rng.choice(BAD["empty"])),
    "refusing": lambda rng: Answered(rng.choice(BAD["refused"])),
    "skeleton": lambda rng: Answered(rng.choice(BAD["skeleton"])),
    "cut": lambda rng: rng.choice([Answered("three words only", "length"), Answered(rng.choice(BAD["cut"]))]),
    "foreign": lambda rng: Answered(rng.choice(FOREIGN)),
    "longer": lambda rng: Answered(LONG),
    "looping": lambda rng: Answered(rng.choice(BAD["loop"])),
    "slow": lambda rng: Failed("timeout"),
    "raising": lambda rng: Failed(rng.choice(["unknown", "server", "invalid", "overflow", "cut", "auth"])),
    "good": lambda rng: Answered(GOOD["en"][rng.choice(["plain", "headed"])]),
}
FAULTS = [name for name in ANSWERS if name != "good"]
NEVER = {"empty", "refusing", "skeleton", "cut", "foreign", "longer", "looping"}
"""Kinds whose text must stand in no summary."""


def summariser(kind: str, rng: random.Random) -> Callable[[Ask], Reply]:
    """One that always fails in one way, or (`mixed`) each time in another, sometimes not."""

    def answer(ask: Ask) -> Reply:
        return ANSWERS[rng.choice(list(ANSWERS)) if kind == "mixed" else kind](rng)

    return answer


WORDS = [
    "the",
    "lemon",
    "tree",
    "in",
    "row",
    "seven",
    "needs",
    "water",
    "and",
    "a",
    "stake",
    "before",
    "wind",
    "comes",
    "on",
    "thursday",
    "so",
    "please",
    "look",
]


class World:
    """A session without files and clocks: its log, its view, its coordinator, what became of each entry."""

    def __init__(self, seed: int, kind: str, window: int) -> None:
        self.rng = random.Random(seed)
        self.limits, self.answer = limits(window), summariser(kind, self.rng)
        self.log: dict[str, Message] = {}
        self.view: Items = ()
        self.commits: list[tuple[str, Plan, Proof, str, str]] = []
        self.state, self.now = Coordinator(), 0.0
        self.attempts = self.in_a_row = self.most_in_a_row = self.floors = self.fits = 0
        self.unproven: list[str] = []
        self._gauge = Gauge()

    # --- turns ------------------------------------------------------------------------------------

    def run(self, attempts: int) -> None:
        """Turns until so many compactions were tried."""
        while self.attempts < attempts:
            self._turn()

    def _turn(self) -> None:
        n = len(self.log)
        made: list[Message] = [user(f"{n}: {self._prose(30)}")]
        for step in range(self.rng.randrange(4)):
            made += [says(call(f"c{n}.{step}"), stop="toolUse"), result(f"c{n}.{step}", self._prose(200))]
        made.append(says(self._prose(80)))
        for message in made:
            self._append(message)
        self.now += 30.0
        if self.tokens > self.limits.overflow:
            self._overflow()
        else:
            self._accepted()
        if self.tokens > self.limits.threshold:
            self._try("threshold")
        elif self.rng.random() < 0.1:
            self._try(self.rng.choice(["manual", "idle", "size"]))

    def _prose(self, most: int) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randrange(3, most)))

    def _append(self, message: Message) -> None:
        entry = f"e{len(self.log)}"
        self.log[entry] = message
        self.view = (*self.view, Item(entry, message))

    @property
    def tokens(self) -> int:
        return view_tokens(self.view, self.limits, PLAIN, self._gauge)

    def _accepted(self) -> None:
        self.state = coordinator.accepted(self.state)
        self.in_a_row, self.fits = 0, self.fits + 1

    def _overflow(self) -> None:
        """As a turn does: compact until it fits, or end in the typed floor."""
        while self.tokens > self.limits.overflow:
            if not self._try("overflow"):
                self.floors += 1
                self._append(says("", stop="error", error="overflow"))
                return
        self._accepted()

    # --- compactions ------------------------------------------------------------------------------

    def _try(self, reason: Reason) -> bool:
        """One attempt, if the coordinator lets it; whether the view is smaller now."""
        leaf = list(self.log)[-1]
        verdict = coordinator.ask(self.state, reason, leaf=leaf, now=self.now)
        if not isinstance(verdict, Start):
            return False
        self.state = coordinator.begin(self.state, reason)
        self.attempts += 1
        self.in_a_row = 1 if reason == "manual" else self.in_a_row + 1
        self.most_in_a_row = max(self.most_in_a_row, self.in_a_row)
        outcome = self._fold(reason)
        if isinstance(outcome, Done):
            proof = outcome.prove_again((), limits=self.limits, estimator=PLAIN)
            if isinstance(proof, Proof):
                self._commit(reason, outcome, proof)
                return True
            self.unproven.append(proof.reason)
        hopeless = leaf if isinstance(outcome, Nothing) or outcome.why == "hopeless" else None  # type: ignore[union-attr]
        self.state = coordinator.failed(self.state, now=self.now, hopeless=hopeless)
        return False

    def _fold(self, reason: Reason) -> Done | Stopped | Nothing:
        forced = reason in ("overflow", "manual")
        chosen = plan(
            self.view, limits=self.limits, estimator=PLAIN, running=reason == "overflow", force=forced
        )
        if isinstance(chosen, Nothing):
            return chosen
        fold = Fold(chosen, limits=self.limits, estimator=PLAIN, trigger=reason)
        while isinstance(step := fold.step, Ask):
            fold.answer(self.answer(step))
        return step

    def _commit(self, reason: Reason, done: Done, proof: Proof) -> None:
        entry = f"e{len(self.log)}"
        self.log[entry] = Summary(done.summary, proof.tokens_before)
        self.commits.append((entry, done.plan, proof, done.summary, reason))
        self.view = (Item(entry, self.log[entry]), *done.plan.kept)
        self.state = coordinator.committed(self.state)

    # --- what must hold ---------------------------------------------------------------------------

    def covered(self) -> Iterator[str]:
        """Entries that the proofs account for, span by span, in the order of the log."""
        names = [name for name, message in self.log.items() if not isinstance(message, Summary)]
        place = {name: at for at, name in enumerate(names)}
        for _, _, proof, _, _ in self.commits:
            for span in proof.spans:
                found = names[place[span.first] : place[span.last] + 1]
                assert len(found) == span.count
                yield from found

    def unaccounted(self) -> list[str]:
        """Entries that are neither in the view nor covered with proof, or are covered twice."""
        every = [name for name, message in self.log.items() if not isinstance(message, Summary)]
        counts: dict[str, int] = {}
        for name in (*self.covered(), *(item.entry for item in self.view)):
            counts[name] = counts.get(name, 0) + 1
        return [name for name in every if counts.get(name, 0) != 1]

    def repeated(self) -> int:
        """Compactions that were equal to the one before."""
        pairs = zip(self.commits, self.commits[1:], strict=False)
        return sum((a[2].first, a[2].last, a[3]) == (b[2].first, b[2].last, b[3]) for a, b in pairs)

    def write(self, path: Path) -> None:
        """The session as a file of the format, with the proofs of its compactions."""
        rows, parent = [lines.header_line("s1", 0, "/w")], None
        proofs = {entry: (proof, summary) for entry, _, proof, summary, _ in self.commits}
        for entry, message in self.log.items():
            if entry in proofs:
                proof, summary = proofs[entry]
                told = msgspec.json.encode(proof)
                record = Checkpoint(session="s1", epoch=1, leaf=entry, kept=proof.first_kept)
                rows.append(
                    lines.compaction_line(
                        entry, parent, 0, summary, proof.first_kept or None, proof.tokens_before, record, told
                    )
                )
            else:
                rows.append(lines.message_line(entry, parent, 0, message))
            parent = entry
        path.write_bytes(b"".join(rows))
