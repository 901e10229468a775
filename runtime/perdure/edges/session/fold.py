"""What a session knows beside its branch: the newest checkpoint, and every fact written after it.

Facts belong to the file, not to a branch. Whether a file is read whole or from its tail, the same facts
after the same checkpoint are folded in file order, so that both ways end alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from perdure.context.tokens.estimator import with_learned
from perdure.context.truncation.dag import COMPACTION, Node
from perdure.edges.schedule import Timer, came
from perdure.edges.session import kin, own
from perdure.edges.session.decode import WireEntry, decode_entry
from perdure.edges.session.facts import (
    OVER,
    RECENT_IDS,
    TIMERS,
    Checkpoint,
    Delivered,
    Origin,
    Outgoing,
    Pending,
    Seen,
)
from perdure.records import Decision, Pinned


def tells(node: Node) -> bool:
    """Whether an entry may carry a fact that `Known` keeps."""
    return node.epoch >= 0 or node.type in {COMPACTION, "session_info"} or node.off_chain


def may_carry_checkpoint(node: Node) -> bool:
    """Whether it is worth decoding an entry to look for a checkpoint of ours."""
    if node.type == COMPACTION:
        return node.epoch >= 0
    return node.off_chain and node.custom == "perdure.checkpoint"


def epochs_of(nodes: Iterable[Node], at_least: int = 0) -> tuple[int, list[Node]]:
    """The highest epoch, and the lines of an owner that had already lost the file when it wrote them."""
    stale: list[Node] = []
    for node in nodes:
        if 0 <= node.epoch < at_least:
            stale.append(node)
        at_least = max(at_least, node.epoch)
    return at_least, stale


def owed(before: str, now: str) -> str:
    """As what a turn's answer goes out when one more letter enters it: somebody's reply comes first."""
    return before if before == "reply" or not now else now


def settle(outgoing: dict[str, Outgoing], told: Outgoing) -> None:
    """Take in where a delivery stands; its channel and event stay what the answer's mark says."""
    known = outgoing.get(told.entry)
    if known is None:
        return
    if told.state in OVER:
        del outgoing[told.entry]
    else:
        at, tries = told.at or known.at, max(known.tries, told.tries)
        outgoing[told.entry] = replace(known, state=told.state, tries=tries, why=told.why, at=at)


class Known:
    """The facts of a file up to now. Feed it entries in file order, after the checkpoint it began with."""

    def __init__(self, session: str, checkpoint: Checkpoint | None = None, at: int = -1) -> None:
        base = checkpoint or Checkpoint()
        self.session = session
        self.at = at  # where the checkpoint's line ends; -1 without one
        self.checkpoint = base
        self.name = base.name
        self.named = checkpoint is not None
        self.epoch = base.epoch
        self.compactions = base.compactions
        self.resumed: list[tuple[str, int]] = []
        self.sent = ("", "")
        mine = base.session in {"", session}
        self._pending = {(p.letter.sender, p.letter.mid): p for p in (base.pending if mine else ())}
        self._recent = {(s.sender, s.mid): s for s in (base.recent if mine else ())}
        self._decisions = {d.key: d for d in base.decisions}
        self._pins = {pin.id: pin for pin in base.pins}
        self._timers = {timer.id: timer for timer in (base.timers if mine else ())}
        self.learned = base.learned
        self._outgoing = {each.entry: each for each in (base.outgoing if mine else ())}
        self.owes = base.owes if mine else ""
        self.engine = base.settings.engine
        self._delivered = {each.engine: each.entry for each in (base.delivered if mine else ())}
        self.relatives = (base.relatives if mine else None) or kin.ALONE

    @property
    def outgoing(self) -> tuple[Outgoing, ...]:
        """Answers on their way out, and those that went nowhere, oldest first."""
        return tuple(self._outgoing.values())

    @property
    def pending(self) -> tuple[Pending, ...]:
        """Letters acknowledged and not yet taken, in their order of arrival."""
        return tuple(self._pending.values())

    @property
    def recent(self) -> tuple[Seen, ...]:
        """The newest letters, oldest first."""
        return tuple(self._recent.values())[-RECENT_IDS:]

    @property
    def pins(self) -> tuple[Pinned, ...]:
        """What is pinned. It holds for the file: a fork or a copy of it keeps what its user asked for."""
        return tuple(self._pins.values())

    @property
    def timers(self) -> tuple[Timer, ...]:
        """What is to come for this session."""
        return tuple(self._timers.values())

    @property
    def delivered(self) -> tuple[Delivered, ...]:
        """How far engines without a cursor of their own were told."""
        return tuple(Delivered(engine, entry) for engine, entry in self._delivered.items())

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The last decision about each key."""
        return tuple(self._decisions.values())

    def add(self, node: Node, raw: bytes) -> None:
        """One entry for which `tells` holds."""
        entry = decode_entry(raw)
        self.epoch = max(self.epoch, node.epoch)
        match node.type:
            case "compaction":
                self.compactions += 1
                own.compaction_facts(entry)
            case "session_info":
                self.name = (entry.name or "").strip() or None
                self.named = True
            case "custom":
                self._custom(node, entry)
            case _:
                pass
        if bytes(entry.perdure):
            self._facts(node, entry)

    def _custom(self, node: Node, entry: WireEntry) -> None:
        match node.custom:
            case "perdure.inbox":
                if (found := own.inbox_of(entry)) is None or found[0] != self.session:
                    return
                letter = found[1]
                self._pending.setdefault((letter.sender, letter.mid), Pending(node.id, letter))
                self._see(letter.sender, letter.mid, node.id)
                self._came(Origin(letter.sender, letter.mid, letter.arrived))
            case "perdure.timer":
                session, timer, gone = own.timers_of(entry)
                if session == self.session:
                    self._timers.update({timer.id: timer} if timer is not None else {})
                    for each in gone:
                        self._timers.pop(each, None)
            case "perdure.pin":
                if (pin := own.pin_of(node.id, entry)) is not None:
                    self._pins[pin.id] = pin
                for unpinned in own.unpinned_by(entry):
                    self._pins.pop(unpinned, None)
            case "perdure.outbox":
                if (told := own.outbox_of(entry)) is not None and told[0] == self.session:
                    settle(self._outgoing, told[1])
            case "perdure.engine":
                chosen, session, upto = own.engine_of(entry)
                self.engine = self.engine if chosen is None else chosen or None
                if session == self.session:
                    self._delivered |= {upto.engine: upto.entry} if upto is not None else {}
            case "perdure.child":
                if (told_of := own.kin_of(entry)) is not None and told_of[0] == self.session:
                    self.relatives = kin.taken(self.relatives, told_of[1])
            case "perdure.resume":
                if (resumed := own.resume_of(entry)) is not None:
                    self.resumed.append(resumed)
            case _:
                pass

    def _facts(self, node: Node, entry: WireEntry) -> None:
        facts = own.facts_of(entry)
        if facts is None:
            return
        self.sent = (node.id, facts.sent) if facts.sent else self.sent
        for decision in facts.decisions:
            self._decisions.pop(decision.key, None)
            self._decisions[decision.key] = decision
        if facts.learned is not None:
            self.learned = with_learned(self.learned, facts.learned)
        if facts.out is not None and facts.out.session == self.session:
            self.owes = ""
            if facts.out.to:
                mark = facts.out
                self._outgoing[node.id] = Outgoing(node.id, mark.to, mark.event, mark.at)
        if facts.spent is not None:
            self.relatives = kin.used(self.relatives, facts.spent)
        if facts.origin is not None:
            self.owes = owed(self.owes, facts.origin.owes)
            sender, mid = facts.origin.sender, facts.origin.mid
            self._pending.pop((sender, mid), None)
            self._see(sender, mid, node.id)
            self._came(facts.origin)

    def _came(self, origin: Origin) -> None:
        """A timer's letter is the record that it came, so that neither can be without the other."""
        if origin.sender != TIMERS:
            return
        id, _, due = origin.mid.rpartition("@")
        timer = self._timers.get(id)
        if timer is not None and due.isdecimal():
            self._timers[id] = came(timer, int(due), origin.arrived)

    def _see(self, sender: str, mid: str, entry: str) -> None:
        self._recent.pop((sender, mid), None)
        self._recent[sender, mid] = Seen(sender, mid, entry)
        if len(self._recent) > 2 * RECENT_IDS:
            for old in list(self._recent)[:-RECENT_IDS]:
                del self._recent[old]
