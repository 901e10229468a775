"""The session's inbox: acknowledge, answer redeliveries from the record, let letters into the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.messages import Deliver, Note
from perdure.context.tokens.estimator import measure
from perdure.contracts import Letter, Receipt
from perdure.edges.session.history import History
from perdure.errors import Busy, Closed, IdReused, MessageTooLarge, ModelUnusable, PerdureError
from perdure.events import Reply
from perdure.kernel.errors import Closed as KernelClosed
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Outcome, Returned
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant, Block, Item, Text, Usage, User

if TYPE_CHECKING:
    from perdure.actors.session import Session

Who = tuple[str, str]
NO_ANSWER = "this message was taken before, and no answer to it is on record: send it anew to be answered"
MOST_WAITING = 256  # letters that wait for one turn's end; checkpoints carry them, so there is a bound


class Letters:
    """Who waits for which answer. `asked` belong to the running turn, `held` to waiting letters."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.asked: list[Waiter[Reply]] = []
        self.held: dict[Who, list[Waiter[Reply]]] = {}

    def deliver(self, mail: Deliver) -> None:
        """Acknowledge one letter once it is in the file; a turn starts, or it waits for the running one."""
        session, letter = self.session, mail.letter
        transcript = session.transcript
        earlier = transcript.seen(letter)
        if earlier is not None and not self._reused(letter, earlier):
            session.services.durable.settle(mail.ack, earlier)
            self._answer_again(letter, earlier, mail.reply)
            return
        try:
            if earlier is not None:
                raise IdReused(f"{letter.key}: the id {letter.mid!r} was given to another text")
            self._fits(letter)
            busy = session.state in ("running", "settling")
            self._callable(letter, busy=busy)
            waits = busy or bool(transcript.pending)  # never past an earlier letter
            if waits and len(transcript.pending) >= MOST_WAITING:
                raise Busy(f"{letter.key}: {MOST_WAITING} messages wait already: send it again later")
            receipt = transcript.hold(letter) if waits else transcript.receive(letter)
        except PerdureError as error:
            session.not_written(error)
            mail.ack.fail(error)
            if mail.reply is not None:
                mail.reply.fail(error)
            return
        session.services.durable.settle(mail.ack, receipt)
        if mail.reply is not None:
            self._wait(letter, mail.reply, held=waits)
        if not busy:
            session.turns.start()

    def enter(self) -> list[Item]:
        """Between batches, waiting letters enter the transcript; who sent them waits for this turn now."""
        transcript, before = self.session.transcript, list(self.session.transcript.pending)
        try:
            return transcript.take()
        finally:  # a full disk may let some in and not others
            for who in before:
                if who not in transcript.pending:
                    self.asked += self.held.pop(who, [])

    def answer(self, reply: Reply) -> None:
        """Tell everybody who waits for the turn that has ended."""
        asked, self.asked = self.asked, []
        for waiter in asked:
            self.session.services.durable.settle(waiter, reply)

    def refuse(self, error: BaseException) -> None:
        """Nobody will be answered any more."""
        for waiter in [*self.asked, *(w for waiters in self.held.values() for w in waiters)]:
            waiter.fail(error)

    def note(self, mail: Note) -> None:
        """Between turns only: a message in the middle of a tool batch would break it."""
        if self.session.state != "idle":
            mail.done.fail(Busy("a turn is running: record it when the agent rests"))
            return
        try:
            entry = self.session.transcript.append(mail.message).entry
            self.session.services.durable.settle(mail.done, entry)
        except PerdureError as error:
            self.session.not_written(error)
            mail.done.fail(error)

    def _wait(self, letter: Letter, waiter: Waiter[Reply], *, held: bool) -> None:
        if held:
            self.held.setdefault((letter.sender, letter.mid), []).append(waiter)
        else:
            self.asked.append(waiter)

    def _reused(self, letter: Letter, earlier: Receipt) -> bool:
        """Whether the id came with another text before. What a summary covers is not looked up for that."""
        if letter.kind != "external_user":
            return False
        transcript, text = self.session.transcript, _text_of(letter.content)
        waiting = transcript.pending.get((letter.sender, letter.mid))
        if waiting is not None:
            return _text_of(waiting.letter.content) != text
        for item in reversed(transcript.items):
            if item.entry == earlier.entry:
                return isinstance(item.message, User) and _text_of(item.message.content) != text
        return False

    def _fits(self, letter: Letter) -> None:
        """A message that can't fit the window by itself is refused before it is acknowledged."""
        env = self.session.environment
        tokens = self.session.scales.estimator.tokens(measure(User(letter.content)))
        room = env.limits.overflow - env.identity_tokens  # knowledge gives way to it
        if tokens > room:
            raise MessageTooLarge(tokens, max(0, room))

    def _callable(self, letter: Letter, *, busy: bool) -> None:
        """No turn of a model without key or package. The host's own letters go on record with the error."""
        info = self.session.environment.model
        if busy or letter.kind != "external_user":
            return
        if lacking := self.session.services.resolver.lacks(info):
            raise ModelUnusable(
                f"{letter.key}: {info.ref} can't be called: {lacking}; /model chooses another"
            )

    def _answer_again(self, letter: Letter, receipt: Receipt, waiter: Waiter[Reply] | None) -> None:
        """From the record, or, while there is nothing recorded yet, with the turn that will answer it."""
        if waiter is None:
            return
        transcript = self.session.transcript
        answered = answer_to(transcript.items, receipt.entry)
        if answered is None and self.session.state in ("running", "settling"):
            self._wait(letter, waiter, held=(letter.sender, letter.mid) in transcript.pending)
        elif answered is None:
            self._look_back(letter.key, receipt.entry, waiter)
        else:
            waiter.set(recorded_reply(letter.key, answered))

    def _look_back(self, key: str, entry: str, waiter: Waiter[Reply]) -> None:
        """The answer may be covered by a summary: a job reads it from the file or its segments."""
        services, path = self.session.services, self.session.transcript.file.path

        def found(_job: Job, outcome: Outcome) -> None:
            answer = outcome.value if isinstance(outcome, Returned) else None
            waiter.set(recorded_reply(key, answer))

        try:
            services.kernel.start(
                f"{key}#answer", services.io.run, History(path).answer_to, entry, on_end=found
            )
        except KernelClosed:
            waiter.fail(Closed("the host is stopping"))


def _text_of(content: tuple[Block, ...]) -> str:
    return "".join(block.text for block in content if isinstance(block, Text))


def answer_to(items: list[Item], entry: str) -> Assistant | None:
    """The answer that ended the turn of `entry`, `None` where the view has none."""
    at = next((i for i, item in enumerate(items) if item.entry == entry), len(items))
    for item in items[at + 1 :]:
        if isinstance(item.message, Assistant) and item.message.stop != "toolUse":
            return item.message
    return None


def recorded_reply(key: str, answer: Assistant | None) -> Reply:
    """What the transcript says was answered: a redelivered id costs no second turn."""
    if answer is None:
        return Reply(key, "", "error", 0, Usage(), errors=(NO_ANSWER,))
    text = "".join(b.text for b in answer.content if isinstance(b, Text))
    return Reply(key, text, answer.stop, 0, Usage(), errors=(answer.error,) if answer.error else ())
