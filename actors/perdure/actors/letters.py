"""The session's inbox: acknowledge, answer redeliveries from the record, let letters into the turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.actors.messages import Deliver
from perdure.context.tokens import measure
from perdure.contracts import Letter, Receipt, Reply
from perdure.errors import MessageTooLarge, PerdureError
from perdure.kernel.waiter import Waiter
from perdure.records import Assistant, Item, Text, Usage, User

if TYPE_CHECKING:
    from perdure.actors.session import Session

Who = tuple[str, str]


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
        if earlier is not None:
            mail.ack.set(earlier)
            self._answer_again(letter, earlier, mail.reply)
            return
        try:
            self._fits(letter)
            busy = session.state in ("running", "settling")
            receipt = transcript.hold(letter) if busy else transcript.receive(letter)
        except PerdureError as error:
            mail.ack.fail(error)
            if mail.reply is not None:
                mail.reply.fail(error)
            return
        mail.ack.set(receipt)
        if mail.reply is not None:
            self._wait(letter, mail.reply, held=busy)
        if not busy:
            session.start_turn()

    def enter(self) -> list[Item]:
        """Between batches, waiting letters enter the transcript; who sent them waits for this turn now."""
        who = list(self.session.transcript.pending)
        items = self.session.transcript.take()
        for one in who:
            self.asked += self.held.pop(one, [])
        return items

    def answer(self, reply: Reply) -> None:
        """Tell everybody who waits for the turn that has ended."""
        asked, self.asked = self.asked, []
        for waiter in asked:
            waiter.set(reply)

    def refuse(self, error: BaseException) -> None:
        """Nobody will be answered any more."""
        for waiter in [*self.asked, *(w for waiters in self.held.values() for w in waiters)]:
            waiter.fail(error)

    def _wait(self, letter: Letter, waiter: Waiter[Reply], *, held: bool) -> None:
        if held:
            self.held.setdefault((letter.sender, letter.mid), []).append(waiter)
        else:
            self.asked.append(waiter)

    def _fits(self, letter: Letter) -> None:
        """A message that can't fit the window by itself is refused before it is acknowledged."""
        env = self.session.environment
        tokens = self.session.compacting.estimator.tokens(measure(User(letter.content)))
        room = env.limits.overflow - env.fixed_tokens
        if tokens > room:
            raise MessageTooLarge(tokens, max(0, room))

    def _answer_again(self, letter: Letter, receipt: Receipt, waiter: Waiter[Reply] | None) -> None:
        if waiter is None:
            return
        if self.session.state in ("running", "settling"):
            self._wait(letter, waiter, held=(letter.sender, letter.mid) in self.session.transcript.pending)
            return
        waiter.set(recorded_reply(letter.key, self.session.transcript.items, receipt.entry))


def recorded_reply(key: str, items: list[Item], entry: str) -> Reply:
    """What the transcript says was answered to `entry`: a redelivered id costs no second turn."""
    at = next((i for i, item in enumerate(items) if item.entry == entry), len(items))
    last: Assistant | None = None
    for item in items[at + 1 :]:
        if isinstance(item.message, User):
            break
        if isinstance(item.message, Assistant):
            last = item.message
    if last is None:
        return Reply(key, "", "stop", 0, Usage())
    text = "".join(b.text for b in last.content if isinstance(b, Text))
    return Reply(key, text, last.stop, 0, Usage(), errors=(last.error,) if last.error else ())
