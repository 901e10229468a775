"""Tool calls that wait for a person: who is asked, who answered, and what the model reads where nobody did.

A call waits in its own job, before its tool's deadline begins, so neighbours in the batch run on. The list
of what waits is the truth; events are news of it. An answer holds for one call, or for the session's file:
then for this tool, and for `exec` for exactly this command line. Nothing is remembered across a restart,
nor is a question: the turn that was cut off asks again by calling again. Silence is no refusal: the model
is told that nobody answered and that it may ask again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from perdure.context.text.characters import clean
from perdure.context.text.secrets import redact
from perdure.contracts import Tool
from perdure.errors import UsageError
from perdure.events import ApprovalAnswered, ApprovalAsked, Event
from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.jobs import Job
from perdure.kernel.kernel import Kernel
from perdure.kernel.outcome import Outcome, Returned
from perdure.kernel.waiter import Waiter
from perdure.records import Record

MOST_WAITING = 1_024  # questions of one host
MOST_GRANTED = 256  # sessions' standing answers, each a set of as many
SHOWN = 2_000  # characters of the arguments in a question, and of a note to the model

Remember: TypeAlias = Literal["once", "session"]
Approver: TypeAlias = Callable[[ApprovalAsked], Awaitable["bool | Verdict"]]
"""Asked with each question; its answer counts unless `Host.answer` was quicker. What it raises refuses."""


class Verdict(Record):
    """An answer. `note`: words for the model, such as what to do instead."""

    allow: bool
    remember: Remember = "once"
    note: str = ""


class _Waiting:
    __slots__ = ("answer", "asked")

    def __init__(self, asked: ApprovalAsked, answer: Waiter[Verdict]) -> None:
        self.asked, self.answer = asked, answer


class Approvals:
    """Of one host. `approver` "events": whoever listens answers by `answer`; None: nobody is there."""

    def __init__(
        self,
        kernel: Kernel,
        publish: Callable[[Event], None],
        approver: Approver | Literal["events"] | None,
        *,
        tools: tuple[str, ...],
        seconds: float,
        epoch: int = 0,
    ) -> None:
        self._kernel, self._publish, self._approver = kernel, publish, approver
        self.tools, self.seconds = tools, seconds  # globs of names, and how long a question waits
        self._epoch, self._count = epoch, 0
        self._waiting: dict[str, _Waiting] = {}
        self._standing: OrderedDict[str, set[str]] = OrderedDict()  # by session file's id
        self._granted: Counter[tuple[str, str]] = Counter()  # commands that `exec` may run now, once

    # --- what others see ------------------------------------------------------------------------------

    def waiting(self, key: str | None = None) -> tuple[ApprovalAsked, ...]:
        """Questions without an answer, the oldest first."""
        return tuple(w.asked for w in self._waiting.values() if key in (None, w.asked.key))

    def answer(self, id: str, verdict: Verdict, key: str | None = None) -> ApprovalAsked:
        """Settle a question. `key`: only where it is that session's. Raises `UsageError`."""
        waiting = self._waiting.get(id)
        if waiting is None or key not in (None, waiting.asked.key):
            raise UsageError(f"approval {id[:40]!r}: nothing waits under that id (any more)")
        del self._waiting[id]
        waiting.answer.set(verdict)
        return waiting.asked

    async def granted(self, session: str, shown: str) -> bool:
        """For `exec`: whether this command line was allowed a moment ago. Uses the permission up."""
        found = self._granted[(session, shown)] > 0
        if found:
            self._granted -= Counter({(session, shown): 1})
        return found

    # --- asking ---------------------------------------------------------------------------------------

    async def refusal(
        self, key: str, file: str, call: str, tool: Tool, arguments: Mapping[str, Any]
    ) -> str | None:
        """Why a call is not run, for the model to read; None: it may run, asked about or not.

        `file`: the id of the session's file, which standing answers belong to; `call`: the call's id.
        """
        name = tool.spec.name
        command = _command(tool, arguments)
        if not command and not any(fnmatchcase(name, glob) for glob in self.tools):
            return None
        subject = f"{name} {command}" if command else name
        if subject not in self._standing.get(file, ()):
            refusal = await self._asked(key, file, call, name, subject, arguments)
            if refusal:
                return refusal
        if command:
            self._granted[(key, command)] += 1
        return None

    async def _asked(
        self, key: str, file: str, call: str, name: str, subject: str, arguments: Mapping[str, Any]
    ) -> str:
        if self._approver is None:
            return f"{name} needs approval and nobody is there to ask; it was not run."
        if len(self._waiting) >= MOST_WAITING:
            return f"{name} needs approval and too many questions wait already; it was not run. Try later."
        self._count += 1
        id = f"{self._epoch:x}-{self._count}"
        shown = _shown(_json(arguments))
        asked = ApprovalAsked(key, id, name, call, _shown(subject), shown, self.seconds)
        waiting = self._waiting[id] = _Waiting(asked, self._kernel.waiter(f"an approval of {key}"))
        ended = "cancelled"
        job = self._ask_hook(asked)
        try:
            self._publish(asked)
            verdict = await self._kernel.wait(waiting.answer, self.seconds)
            ended = "allowed" if verdict.allow else "denied"
        except DeadlineExceeded:
            ended = "expired"
            return (
                f"{name} needs approval and nobody answered within {self.seconds:g} seconds; it was not run. "
                "This is no refusal: say what you want to do, and call it again when the user is there."
            )
        finally:
            self._waiting.pop(id, None)
            if job is not None:
                job.cancel()
            self._publish(ApprovalAnswered(key, id, name, call, ended))
        if verdict.allow and verdict.remember == "session":
            self._stand(file, subject)
        return "" if verdict.allow else _denied(name, verdict.note)

    def _ask_hook(self, asked: ApprovalAsked) -> Job | None:
        if self._approver is None or self._approver == "events":
            return None

        def answered(_job: Job, outcome: Outcome) -> None:
            value = outcome.value if isinstance(outcome, Returned) else None
            if asked.id not in self._waiting:
                return
            if not isinstance(value, bool | Verdict):
                value = Verdict(False, note="the program that is asked failed to answer")
            self.answer(asked.id, value if isinstance(value, Verdict) else Verdict(value))

        return self._kernel.start(f"{asked.key}#approve", partial(self._approver, asked), on_end=answered)

    def _stand(self, file: str, subject: str) -> None:
        standing = self._standing.setdefault(file, set())
        self._standing.move_to_end(file)
        if len(standing) < MOST_GRANTED:
            standing.add(subject)
        if len(self._standing) > MOST_GRANTED:
            self._standing.popitem(last=False)


def approver(given: object) -> Approver | Literal["events"] | None:
    """What `Host(approve=…)` may be. Raises `UsageError`."""
    if given is None or given == "events" or callable(given):
        return given
    raise UsageError(f'approve={given!r}: give an async function, or "events" where listeners answer')


def verdict(allow: object, remember: object = "once", note: object = "") -> Verdict:
    """An answer as it was given. Raises `UsageError`."""
    if not isinstance(allow, bool) or remember not in ("once", "session") or not isinstance(note, str):
        raise UsageError('an answer is allow=True or False, remember="once" or "session", and a text as note')
    return Verdict(allow, remember, note[:SHOWN])


def _command(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """What a tool that asks for itself would run; empty where it needs no approval of its own."""
    asks = getattr(tool, "asks", None)
    return str(asks(arguments)) if callable(asks) else ""


def _denied(name: str, note: str) -> str:
    said = f" They say: {clean(note)[:SHOWN]}" if note.strip() else ""
    return f"The user did not allow this call of {name}; it was not run.{said}"


def _json(arguments: Mapping[str, Any]) -> str:
    return msgspec.json.encode(arguments).decode()


def _shown(text: str) -> str:
    """Redacted, and cut with its true length beside it: nobody should allow unknowing what is not shown."""
    text = redact(text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters in all)"


__all__ = ["Approvals", "Approver", "Remember", "Verdict", "approver", "verdict"]
