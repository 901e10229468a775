"""A conversation on the terminal: lines are read while the agent answers.

A typed line is sent at once: the host holds it until the running batch has ended, and `/abort` stops the
turn. Lines of a pipe or a file wait for the answer to the one before, so that a script means the same
however long the answers take; `/abort` alone does not wait.
"""

from __future__ import annotations

import sys

import anyio
from anyio.abc import TaskGroup

from perdure.cli.exits import INTERRUPTED
from perdure.cli.output import one_line, safe, say, warn
from perdure.cli.signals import Signals
from perdure.cli.talk import Said as SaidHere
from perdure.cli.talk import Talk
from perdure.cli.typed import Lines
from perdure.errors import PerdureError
from perdure.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Notice,
    Reply,
    Said,
    SubagentEnded,
    SubagentStarted,
    ToolEnded,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from perdure.records import Block

ANSWERS = {"y": "/approve {}", "yes": "/approve {}", "a": "/approve {} session"}
ANSWERS |= dict.fromkeys(("", "n", "no"), "/deny {}")
HELP = (
    "/help, /status, /compact [focus], /undo, /pin [TEXT], /pins, /unpin N|all, /model [ref], "
    "/think [level], /name TEXT, /approve, /deny [WHY], /new, /abort; "
    "Ctrl-C stops an answer; /quit or Ctrl-D ends."
)
UNSENT = "what was attached was not sent"


class Screen:
    """Two streams on one terminal: notes begin on a line of their own."""

    def __init__(self, *, prompts: bool) -> None:
        self._prompts = prompts
        self._within = False  # the cursor stands behind text
        self._prompted = False

    def text(self, text: str) -> None:
        """A piece of an answer."""
        if self._prompted:  # the answer to nothing that was typed here: a turn that was taken up
            self.fresh()
        sys.stdout.write(safe(text))
        sys.stdout.flush()
        self._within = not text.endswith("\n") if text else self._within

    def line(self, text: str) -> None:
        """A line for a person."""
        self.fresh()
        say(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """A line beside the conversation."""
        self.fresh()
        warn(text)

    def fresh(self) -> None:
        """Go to the beginning of a line."""
        if self._within or self._prompted:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._within = self._prompted = False

    def prompt(self) -> None:
        """Invite a line."""
        if self._prompts and not self._prompted:
            self.fresh()
            sys.stdout.write("> ")
            sys.stdout.flush()
            self._prompted = True

    def entered(self) -> None:
        """The person has ended a line: the cursor stands at the beginning of the next."""
        if self._prompts:
            self._within = self._prompted = False

    def interrupted(self) -> None:
        """The terminal has shown `^C`."""
        self._within = self._within or self._prompts


class Conversation:
    """Of one session, until the end of input or `/quit`. `attached` goes with the first message."""

    def __init__(self, talk: Talk, key: str, attached: tuple[Block, ...], signals: Signals) -> None:
        self._talk, self._key, self._attached, self._signals = talk, key, attached, signals
        self._lines = Lines.of_stdin()
        self._typed = self._lines.typed
        self._screen = Screen(prompts=self._typed and sys.stdout.isatty())
        self._letters = self._commands = self._compacts = 0  # not answered yet
        self._answer = ""  # of the latest command
        self._running = False  # a turn
        self._rested = anyio.Event()
        signals.busy = lambda: self._answering or self._commands > 0

    async def run(self) -> int:
        """Talk; the exit code. Where it is cancelled, the terminal is left at the beginning of a line."""
        self._screen.line(f"{self._key}. {HELP}")
        try:
            async with self._talk.following(self._happened), anyio.create_task_group() as group:
                await self._converse(group)
                await self._rest()
        finally:
            if self._signals.code == INTERRUPTED:
                self._screen.interrupted()
            self._screen.fresh()
        if self._attached:
            warn(f"{UNSENT}: it goes with a message, and none came")
        return 0

    async def _converse(self, group: TaskGroup) -> None:
        self._screen.prompt()
        while (line := await self._lines.next()) is not None:
            self._screen.entered()
            name = command(line := line.strip())
            if not self._typed and name not in ("abort", "stop"):
                await self._rest()
            if name in ("quit", "exit"):
                return
            await self._act(name, line, group)
            self._settle()

    async def _act(self, name: str, line: str, group: TaskGroup) -> None:
        if self._typed and not name and (line := self._as_answer(line)).startswith("/"):
            name = command(line)
        if name == "help":
            self._screen.line(HELP)
        elif name in ("compact", "undo"):  # takes as long as a model does: the next line is read meanwhile
            self._commands += 1
            group.start_soon(self._command, line)
        elif name:
            self._commands += 1
            await self._command(line)
        elif line or self._attached:
            await self._send(line, group)

    def _as_answer(self, line: str) -> str:
        """`y`, `n`, `a` or nothing, where a question stands, as its command; all else means itself."""
        waiting = self._talk.approvals()
        form = ANSWERS.get(line.lower()) if waiting else None
        return line if form is None else form.format(waiting[0].id)

    def _question(self) -> None:
        for asked in self._talk.approvals()[:1]:
            self._screen.note(f"  [allow {one_line(asked.subject, 2000)}? y/N/a  {asked.arguments}]")
            self._screen.prompt()

    # --- what is said, and answered ---------------------------------------------------------------

    async def _command(self, line: str) -> None:
        self._compacts += command(line) == "compact"
        try:
            self._answer = await self._talk.command(line)
            self._screen.line(self._answer)
        except PerdureError as error:
            self._screen.note(str(error))
        self._commands -= 1
        self._compacts -= command(line) == "compact"
        self._signals.aborting = self._signals.aborting and self._answering
        self._settle()

    async def _send(self, line: str, group: TaskGroup) -> None:
        attached, self._attached = self._attached, ()
        self._letters += 1
        try:
            sent = await self._talk.send(line, attached)
        except PerdureError as error:
            self._letters -= 1
            self._screen.note(f"{error} ({UNSENT})" if attached else str(error))
        else:
            group.start_soon(self._answered, sent)

    async def _answered(self, sent: SaidHere) -> None:
        try:
            await sent.reply()
        except PerdureError as error:  # no turn will answer it
            self._running = False
            self._screen.note(str(error))
        self._letters -= 1
        self._settle()

    @property
    def _answering(self) -> bool:
        return self._running or self._letters > 0

    def _settle(self) -> None:
        if not self._answering and not self._commands:
            self._rested.set()
            self._screen.prompt()

    async def _rest(self) -> None:
        while self._answering or self._commands:
            self._rested = anyio.Event()
            await self._rested.wait()

    # --- what happens in the session --------------------------------------------------------------

    def _happened(self, event: Event) -> None:
        if event.key != self._key:
            return
        match event:
            case TurnStarted():
                self._running = True
            case Said(_, text):
                self._screen.text(text)
            case ToolStarted(_, _, name):
                self._screen.note(f"  [{name} …]")
            case ToolEnded(_, _, name, True):
                self._screen.note(f"  [{name} failed]")
            case ApprovalAsked() if self._talk.approvals()[:1] == (event,):
                self._question()
            case ApprovalAnswered(_, _, tool, _, outcome):
                self._screen.note(f"  [{tool}: {outcome}]")
                self._question()  # the next of the batch
            case Notice(_, kind, text) if not self._is_answer(kind, text):
                self._screen.note(f"  [{kind}: {text}]")
            case SubagentStarted(_, child, _, label):
                self._screen.note(f"  [subagent {label or child} …]")
            case SubagentEnded(_, child, _, state):
                self._screen.note(f"  [subagent {child}: {state}]")
            case TurnFinished(_, reply):
                self._finished(reply)
            case _:
                pass

    def _is_answer(self, kind: str, text: str) -> bool:
        """Whether this is what a `/compact` that was typed here answers with, too."""
        return kind == "compaction" and (self._compacts > 0 or text == self._answer)

    def _finished(self, reply: Reply) -> None:
        if self._signals.aborting:
            self._screen.interrupted()
        self._running = self._signals.aborting = False
        self._screen.fresh()
        if reply.stop not in ("stop", "length"):
            self._screen.note(f"[{reply.stop}] {reply.errors[-1] if reply.errors else ''}".rstrip())
        self._settle()


def command(line: str) -> str:
    """The name of the command in a line, empty for a message."""
    return line[1:].partition(" ")[0] or "/" if line.startswith("/") else ""
