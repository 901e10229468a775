"""The live session: its view in memory, and the one place that appends to its file.

Nothing here waits. Each method writes first and changes memory after the acknowledgement, so a failed
append (`StorageFailed`, `Fenced`) leaves the view as the file has it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from perdure.actors.off_chain import OffChain
from perdure.actors.outgoing import mark_of, owes_of
from perdure.actors.upkeep import Upkeep
from perdure.actors.view import at_rest, joined
from perdure.context.changed import subject
from perdure.context.prompt.pins import marked
from perdure.context.tokens.estimator import Estimator, Measure, with_learned
from perdure.contracts import Ack, Letter, Receipt
from perdure.edges.schedule import came
from perdure.edges.session import lines
from perdure.edges.session.facts import (
    NEVER,
    RECENT_IDS,
    TIMERS,
    Checkpoint,
    Delivered,
    Facts,
    Opened,
    Origin,
    Outgoing,
    Pending,
    Seen,
    Settings,
)
from perdure.edges.session.files import Held
from perdure.edges.session.fold import owed
from perdure.edges.session.kin import ALONE, used
from perdure.edges.session.rewrite import Prepared, Truncated, commit
from perdure.edges.session.tail import descends, open_session
from perdure.edges.session.writer import ForeignWrite
from perdure.edges.spend import Amount
from perdure.errors import Fenced, StorageFailed
from perdure.records import (
    Assistant,
    Decision,
    Item,
    Message,
    Pinned,
    Provenance,
    Summary,
    User,
)

MOST_RESUMES = 3  # a turn that ends its host each time must not end it for ever
FOREIGN_TRIES = 3
LONG_TAIL = 1024 * 1024  # bytes since the last checkpoint after which a sleep writes a new one


class Transcript(OffChain):
    """State of one awake session. `weigh` measures an item, for the running size of the view; `told`
    hears of each message that is in the file.
    """

    def __init__(
        self,
        held: Held,
        upkeep: Upkeep,
        *,
        wall_ms: Callable[[], int],
        weigh: Callable[[Item], Measure],
        told: Callable[[Item], None],
    ) -> None:
        self._held, self._upkeep, self._told = held, upkeep, told
        self.file, self._ids, self._wall_ms, self._weigh = held.file, held.ids, wall_ms, weigh
        self.generation = 0  # rises when the view is switched; results made for an older one are dropped
        self.foreign = 0  # appends of other programs that were taken in
        self.channel = ""  # by which answers go out, if any
        self.stand_in = False  # the model in use is not the session's choice: its answers don't make it so
        self.spent: Callable[[], Amount | None] = lambda: None  # by a subagent's calls
        self.load(held.opened)

    def load(self, opened: Opened) -> None:
        """Take the state from what was read: at waking, and after a foreign program wrote."""
        self.session_id, self.cwd, self.leaf = opened.session_id, opened.cwd, opened.leaf
        self.items = list(opened.items)
        self.decisions = {d.key: d for d in opened.decisions}
        self.pending = {(p.letter.sender, p.letter.mid): p for p in opened.pending}
        self.recent = OrderedDict(((s.sender, s.mid), s.entry) for s in opened.recent)
        self.settings, self.name = opened.settings, opened.name
        self.compaction, self.compactions = opened.compaction, opened.compactions
        self.learned, self.covered_bytes = opened.learned, opened.covered_bytes
        self.since_checkpoint = opened.since_checkpoint
        self.gaps, self._resumed = opened.gaps, opened.resumed
        self.outgoing, self.owes = {each.entry: each for each in opened.outgoing}, opened.owes
        ended = any(isinstance(item.message, Assistant) and at_rest(item) for item in self.items)
        self.pins = marked(opened.pins) if ended else opened.pins
        self.timers = {timer.id: timer for timer in opened.timers}
        self.delivered = {each.engine: each.entry for each in opened.delivered}
        self.relatives = opened.relatives
        self._take_places(opened)
        self.size = sum(map(self._weigh, self.items), Measure())

    def _take_places(self, opened: Opened) -> None:
        self._positions = {e.id: (e.start, e.end + 1) for e in opened.entries}
        self._order = [e.id for e in opened.entries]
        self.view_bytes = sum(e.end - e.start for e in opened.entries)

    # --- letters ----------------------------------------------------------------------------------

    def seen(self, letter: Letter) -> Receipt | None:
        """The receipt of an earlier delivery of the same `(sender, mid)`.

        The last 1,024 are in the file; older ones are known as long as the index is.
        """
        who = (letter.sender, letter.mid)
        entry = self.pending[who].entry if who in self.pending else self.recent.get(who)
        if entry is None and len(self.recent) >= RECENT_IDS:
            entry = self._upkeep.older(self.session_id, *who)
        return None if entry is None else Receipt(letter.key, *who, entry, repeated=True)

    def receive(self, letter: Letter) -> Receipt:
        """Idle: the message entry itself is the acknowledgement. One line, one write."""
        item = self._append_user(letter, pending=None)
        return Receipt(letter.key, letter.sender, letter.mid, item.entry)

    def hold(self, letter: Letter) -> Receipt:
        """A turn runs: the letter waits in an inbox entry, off the chain, content included."""
        entry, now = self._new_id(), self._wall_ms()
        self._write(lambda leaf: lines.inbox_line(entry, leaf, now, letter, self.session_id, self.file.epoch))
        self.pending[letter.sender, letter.mid] = Pending(entry, letter)
        self._upkeep.settled(letter.evidence)
        self._came(letter)
        return Receipt(letter.key, letter.sender, letter.mid, entry)

    def take(self) -> list[Item]:
        """Waiting letters become message entries, in the order of their arrival."""
        return [self._append_user(p.letter, pending=p) for p in list(self.pending.values())]

    def _append_user(self, letter: Letter, *, pending: Pending | None) -> Item:
        kind, owes = letter.kind, owes_of(letter) if self.channel else ""
        origin = Origin(letter.sender, letter.mid, letter.arrived, owes)
        provenance = None if kind == "external_user" else Provenance(kind, source_session=letter.sender)
        message = User(letter.content, self._wall_ms(), provenance)
        item = self.append(message, origin=origin, evidence=letter.evidence)
        self.owes = owed(self.owes, owes)
        who = (letter.sender, letter.mid)
        self.pending.pop(who, None)
        self.recent[who] = item.entry
        if pending is None:
            self._came(letter)
        while len(self.recent) > RECENT_IDS:
            (sender, mid), entry = self.recent.popitem(last=False)
            self._upkeep.evicted(self.session_id, Seen(sender, mid, entry))
        return item

    def _came(self, letter: Letter) -> None:
        """A timer's letter is the record that it came (as `edges.session.fold` reads it)."""
        id, _, due = letter.mid.rpartition("@")
        if letter.sender == TIMERS and id in self.timers:
            self.timers[id] = came(self.timers[id], int(due), letter.arrived)

    # --- entries ----------------------------------------------------------------------------------

    def append(
        self,
        message: Message,
        *,
        origin: Origin | None = None,
        decisions: Iterable[Decision] = (),
        evidence: tuple[str, ...] = (),
        sent: str = "",
        learned: Estimator | None = None,
    ) -> Item:
        """Append a message entry behind the leaf; `decisions` are what its model call decided, `sent` is
        the fingerprint of that call's request, `learned` is what its usage taught. The answer that ends a
        turn is marked, in the same line, where it goes out.
        """
        made = tuple(decisions)
        entry, now = self._new_id(), self._wall_ms()
        out = mark_of(message, self.channel, self.owes, now, self.session_id) if self.owes else None
        aside = self.stand_in and isinstance(message, Assistant)
        spent = self.spent() if isinstance(message, Assistant) else None
        facts = Facts(self.file.epoch, origin, made, evidence, sent, learned, out, aside, spent)
        self._chain(entry, lambda leaf: lines.message_line(entry, leaf, now, message, facts))
        self._upkeep.settled(evidence)
        if out is not None:
            self.owes = ""
            if out.to:
                self.outgoing[entry] = Outgoing(entry, out.to, out.event, out.at)
        self.decisions.update((d.key, d) for d in made)
        item = Item(entry, message)
        self.items.append(item)
        self.size += self._weigh(item)
        if learned is not None:
            self.learn(learned)
        self._told(item)
        return item

    def learn(self, latest: Estimator) -> None:
        """Keep what usage, or a refusal that names its size, taught about a model."""
        self.learned = with_learned(self.learned, latest)

    def forget(self, model: str) -> None:
        """Drop what was learned about a model: it can't be true."""
        self.learned = tuple(each for each in self.learned if each.model != model)

    def choose_model(self, provider: str, model: str) -> None:
        """Record a model switch."""
        entry, now = self._new_id(), self._wall_ms()
        self._chain(
            entry, lambda leaf: lines.model_change_line(entry, leaf, now, provider, model, self.file.epoch)
        )
        s = self.settings
        self.settings = Settings(provider, model, s.thinking, s.engine)

    def choose_thinking(self, level: str) -> None:
        """Record a change of the thinking level."""
        entry, now = self._new_id(), self._wall_ms()
        self._chain(entry, lambda leaf: lines.thinking_line(entry, leaf, now, level, self.file.epoch))
        s = self.settings
        self.settings = Settings(s.provider, s.model, level, s.engine)

    def rename(self, name: str) -> None:
        """Give the session a name."""
        entry, now = self._new_id(), self._wall_ms()
        self._chain(entry, lambda leaf: lines.session_info_line(entry, leaf, now, name, self.file.epoch))
        self.name = name

    def already_resumed(self, entry: str) -> bool:
        """Whether this ownership took it up before, three earlier ones died of it, or nobody waits."""
        epochs = [epoch for resumed, epoch in self._resumed if resumed == entry]
        return bool({self.file.epoch, NEVER} & set(epochs)) or len(epochs) >= MOST_RESUMES

    # --- compaction -------------------------------------------------------------------------------

    def kept_from(self, first_kept: str) -> int | None:
        """Where in `items` the kept tail begins, `None` if that entry is not in the view."""
        return next((i for i, item in enumerate(self.items) if item.entry == first_kept), None)

    @property
    def requests(self) -> dict[str, str]:
        """What the running turn was asked and its view has covered, by entry."""
        return {pin.source: pin.text for pin in self.pins if pin.kind == "request"}

    def turn_ended(self) -> None:
        """Its requests are history now, like all others."""
        self.pins = marked(self.pins)

    def compact(
        self,
        summary: str,
        first_kept: str,
        tokens_before: int,
        proof: bytes,
        requests: Iterable[Pinned] = (),
    ) -> Item:
        """Commit a compaction: everything before `first_kept` is now covered by `summary`.

        `requests`: what the running turn was asked, as the summary quotes it.
        """
        at = self.kept_from(first_kept)
        kept = self.items[at:] if at is not None else []
        entry, now = self._new_id(), self._wall_ms()
        head = Item(entry, Summary(summary, tokens_before, now))
        decisions = self._decisions_of(kept)
        pins = (*marked(self.pins), *requests)
        record = self._checkpoint(
            entry, decisions, kept=first_kept if kept else None, prev=self.compaction, pins=pins
        )
        anchor = first_kept if kept else entry
        self._chain(
            entry,
            lambda leaf: lines.compaction_line(
                entry, leaf, now, summary, anchor, tokens_before, record, proof
            ),
        )
        before = self.view_bytes
        self._forget_before(first_kept if kept else entry)
        self.covered_bytes += before - self.view_bytes
        self.items = [head, *kept]
        self.decisions = {d.key: d for d in decisions}
        self.compaction, self.compactions = entry, self.compactions + 1
        self.pins = pins
        self.generation += 1
        self.since_checkpoint = 0
        self.size = sum(map(self._weigh, self.items), Measure())
        return head

    def swap(self, prepared: Prepared) -> tuple[Truncated, Opened | None]:
        """Put the rewritten file in place, and read it. Blocking, with no append at the same time."""
        report = commit(self.file, prepared)
        return report, open_session(self.file.path) if report.done else None

    def swapped(self, opened: Opened) -> None:
        """The file was rewritten. The view stays as it is; only places in the file change."""
        self._take_places(opened)
        self.covered_bytes = 0
        if self.leaf != self.compaction:  # nothing of ours stands directly behind a compaction
            self.checkpoint()

    def leave(self) -> None:
        """Before the session sleeps: a checkpoint where waking would have to read far."""
        if self.since_checkpoint > LONG_TAIL:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write a checkpoint off the chain."""
        entry, now = self._new_id(), self._wall_ms()
        record = self._checkpoint(self.leaf, tuple(self.decisions.values()), kept=None, prev=self.compaction)
        self._write(lambda leaf: lines.checkpoint_line(entry, leaf, now, record))
        self.since_checkpoint = 0

    def _decisions_of(self, kept: list[Item]) -> tuple[Decision, ...]:
        names = {item.entry for item in kept}
        return tuple(d for d in self.decisions.values() if subject(d) in names)

    def _checkpoint(
        self,
        leaf: str | None,
        decisions: tuple[Decision, ...],
        *,
        kept: str | None,
        prev: str | None,
        pins: tuple[Pinned, ...] | None = None,
    ) -> Checkpoint:
        return Checkpoint(
            session=self.session_id,
            epoch=self.file.epoch,
            leaf=leaf,
            settings=self.settings,
            name=self.name,
            pending=tuple(self.pending.values()),
            recent=tuple(Seen(s, m, e) for (s, m), e in self.recent.items()),
            decisions=decisions,
            learned=self.learned,
            compactions=self.compactions + (leaf not in (self.leaf, None)),
            prev=prev,
            kept=kept,
            ranges=joined(self._positions[entry] for entry in self._order),
            gaps=self.gaps,
            covered_bytes=self.covered_bytes,
            pins=self.pins if pins is None else pins,
            outgoing=tuple(self.outgoing.values()),
            owes=self.owes,
            timers=tuple(self.timers.values()),
            delivered=tuple(Delivered(*each) for each in self.delivered.items()),
            relatives=None if self.relatives == ALONE else used(self.relatives, self.spent() or Amount()),
        )

    # --- bytes ------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        return self._ids.entry(self._wall_ms())

    def _write(self, make: Callable[[str | None], bytes]) -> tuple[Ack, int]:
        """Append a line, by itself off the chain; where another program wrote first, read again and retry."""
        for _ in range(FOREIGN_TRIES):
            line = make(self.leaf)
            try:
                ack = self.file.append((line,))
            except ForeignWrite:
                self._take_in()
                continue
            self.since_checkpoint += len(line)
            self._upkeep.wrote(self._held)
            return ack, len(line)
        raise StorageFailed(
            f"{self.file.path}: another program keeps writing to it: stop it, then send again"
        )

    def _take_in(self) -> None:
        """Ours goes behind the foreign leaf if that descends from ours, else behind its own parent."""
        opened, ours = open_session(self.file.path), self.leaf
        if opened.epoch > self.file.epoch:
            raise Fenced(f"{self.file.path}: a later host owns it: nothing was acknowledged; send again")
        self.file.adopt(opened.size, opened.inode)
        self.foreign += 1
        if ours is None or descends(opened, ours):
            self.load(opened)
            self.generation += 1

    def _chain(self, entry: str, make: Callable[[str | None], bytes]) -> None:
        ack, length = self._write(make)
        self._positions[entry] = (ack.offset, ack.offset + length)
        self._order.append(entry)
        self.view_bytes += length
        self.leaf = entry

    def _forget_before(self, entry: str) -> None:
        at = self._order.index(entry) if entry in self._positions else 0
        for gone in self._order[:at]:
            del self._positions[gone]
        self._order = self._order[at:]
        self.view_bytes = sum(b - a for a, b in self._positions.values())
