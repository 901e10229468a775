"""The letters that subagents add: between a parent, its children, and the jobs that work for them."""

from __future__ import annotations

from perdure.actors.messages import Mail
from perdure.actors.subagents.spawning import Wish
from perdure.contracts import Letter, Receipt
from perdure.edges.session.kin import ChildGrant, ChildState, Ending, Relatives
from perdure.kernel.outcome import Outcome
from perdure.kernel.waiter import Waiter


class KinMail(Mail):
    """Base of what `part` handles."""


class WakingKinMail(KinMail):
    """What a sleeping session is woken for; reports of jobs are for who began them, and is awake."""


class Spawn(WakingKinMail):
    """To the parent, from its tool: begin a child; `done` gets its grant once it has begun."""

    call: str
    wish: Wish
    done: Waiter[ChildGrant]


class Spawned(KinMail):
    """To the parent: the job that was to begin the child `run` is over."""

    run: str
    outcome: Outcome


class Begin(WakingKinMail):
    """To a new child: its task, and what it runs with; `ack` gets the receipt."""

    letter: Letter
    model: str
    thinking: str
    ack: Waiter[Receipt]


class Ended(WakingKinMail):
    """To the parent: its child has ended. `done` gets `taken` once both lines are in the parent's file, or
    `other` where the file is not the one that began it.
    """

    grant: ChildGrant
    ending: Ending
    done: Waiter[str]


class Told(KinMail):
    """To a child that has ended: the attempt to tell its parent is over."""

    outcome: Outcome


class Halt(WakingKinMail):
    """To a session: stop. `tree`: its children, too (a child's always). `quiet`: nobody is to react to it.

    `run`: only where it runs under that grant. `done` gets whether anything was stopped.
    """

    why: str
    state: ChildState = "killed"
    tree: bool = False
    quiet: bool = False
    run: str = ""
    done: Waiter[bool] | None = None


class Look(WakingKinMail):
    """To a session: look after the children that are open, and at what it owes its own parent.

    `run`, `parent`: who asks takes it for its child under that grant; where it is not, the parent is told.
    """

    run: str = ""
    parent: str = ""


class Unknown(WakingKinMail):
    """To the parent: the session of that run is not its child (any more)."""

    run: str


class Kindred(WakingKinMail):
    """`done` gets what the session knows of its parent and children."""

    done: Waiter[Relatives]
