"""What a session file knows of subagents: the grant that it runs under, and the children that it began.

Written as off-chain `perdure.child` entries: in the parent's file before a child begins and when its result
is there, in the child's own when it is made, when it ends, and when its parent has the result. They belong
to the file and its header's session id, as the inbox does. Pure.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec.structs import replace

from perdure.contracts import SpawnMode
from perdure.edges.spend import Amount
from perdure.records import Record

ChildState: TypeAlias = Literal[
    "completed", "failed", "timeout", "budget", "rejected", "killed", "lost", "swept"
]
"""How a child has ended. Whatever has none of these is not done."""

Cleanup: TypeAlias = Literal["keep", "delete"]
LISTED: Final = 32  # children that have ended and are still listed; of older ones their sum is kept


class ChildGrant(Record):
    """What a child is, and what it may use: `tokens` and `usd` (0: no limit of its own) until `deadline`.

    `parent_session` is the id of the parent's file; times in wall ms; `task` is its beginning.
    """

    run: str
    child: str
    parent: str
    parent_session: str
    depth: int
    began: int
    deadline: int
    tokens: int = 0
    usd: float = 0.0
    mode: SpawnMode = "isolated"
    cleanup: Cleanup = "keep"
    label: str = ""
    task: str = ""

    @property
    def amount(self) -> Amount:
        """What is set aside for it."""
        return Amount(self.usd, self.tokens)


class Ending(Record):
    """How a child ended, and what it and its own children used. `text`: its frozen result, in its own file.

    `quiet`: it was stopped with the tree above it, and no turn is to begin for that.
    """

    state: ChildState
    at: int
    spent: Amount = Amount()
    why: str = ""
    text: str = ""
    quiet: bool = False


class Kin(Record):
    """One child, as its parent's file or its own has it. `told` (its own): the parent has the result.

    `spent` (its own): by its own calls so far.
    """

    grant: ChildGrant
    ending: Ending | None = None
    told: bool = False
    spent: Amount = Amount()


class Fact(Record):
    """One `perdure.child` entry: a grant, an ending, or that the parent has it. `own`: of the file itself."""

    run: str
    own: bool = False
    grant: ChildGrant | None = None
    ending: Ending | None = None
    told: bool = False


class Relatives(Record):
    """All of a file: `own` where it is a child; its children, oldest first; the sum of those let go.

    All open children are listed, and the latest that have ended.
    """

    own: Kin | None = None
    children: tuple[Kin, ...] = ()
    past: int = 0
    past_spent: Amount = Amount()

    @property
    def open(self) -> tuple[Kin, ...]:
        """Children without a terminal record."""
        return tuple(each for each in self.children if each.ending is None)

    @property
    def begun(self) -> int:
        """Children in all."""
        return self.past + len(self.children)

    @property
    def owes(self) -> bool:
        """Something is left to do about it without being asked."""
        own = self.own is not None and (self.own.ending is None or not self.own.told)
        return own or bool(self.open)

    @property
    def ended_spent(self) -> Amount:
        """What children that have ended used."""
        return sum((k.ending.spent for k in self.children if k.ending is not None), self.past_spent)

    def child(self, run: str) -> Kin | None:
        """The child of a run."""
        return next((each for each in self.children if each.grant.run == run), None)


ALONE: Final = Relatives()


def taken(known: Relatives, fact: Fact) -> Relatives:
    """What is known after one more entry. An ending, once there, stays as it is."""
    if fact.own:
        return replace(known, own=_after(known.own, fact))
    before = known.child(fact.run)
    after = _after(before, fact)
    if after is None:
        return known
    if before is None:
        children = (*known.children, after)
    else:
        children = tuple(after if each is before else each for each in known.children)
    return _let_go(replace(known, children=children))


def used(known: Relatives, spent: Amount) -> Relatives:
    """The session's own calls have used so much by now."""
    return known if known.own is None else replace(known, own=replace(known.own, spent=spent))


def of_key(known: Relatives, key: str) -> Relatives:
    """What of it is that session's: a file that was copied to another key is nobody's child or parent."""
    own = known.own if known.own is None or known.own.grant.child == key else None
    children = tuple(each for each in known.children if each.grant.parent == key)
    same = own is known.own and len(children) == len(known.children)
    return known if same else replace(known, own=own, children=children)


def closings(known: Relatives, now_ms: int, why: str) -> tuple[Fact, ...]:
    """What ends all that is open, without telling anybody: for a copy that must not act."""
    facts = [Fact(kin.grant.run, ending=Ending("lost", now_ms, kin.grant.amount, why)) for kin in known.open]
    own = known.own
    if own is not None and (own.ending is None or not own.told):
        ending = Ending("lost", now_ms, own.spent, why) if own.ending is None else None
        facts.append(Fact(own.grant.run, own=True, ending=ending, told=True))
    return tuple(facts)


def line_of(kin: Kin) -> dict[str, Any]:
    """One child, as tools and lists show it. Without a terminal record it is `running`, never done."""
    grant, ending = kin.grant, kin.ending
    told: dict[str, Any] = {
        "childSessionKey": grant.child,
        "runId": grant.run,
        "label": grant.label,
        "task": grant.task,
        "state": "running" if ending is None else ending.state,
    }
    if ending is None:
        return told
    told |= {"why": ending.why} if ending.why else {}
    return told | {"tokens": ending.spent.tokens, "seconds": max(0, ending.at - grant.began) / 1000}


def _after(kin: Kin | None, fact: Fact) -> Kin | None:
    if kin is None or (fact.grant is not None and fact.grant.run != kin.grant.run):
        return None if fact.grant is None else Kin(fact.grant, fact.ending)
    if kin.grant.run != fact.run:
        return kin
    ending = kin.ending or fact.ending
    if fact.told and ending is not None:  # the text is the parent's now
        ending = replace(ending, text="")
    return replace(kin, ending=ending, told=kin.told or fact.told)


def _let_go(known: Relatives) -> Relatives:
    ended = [each for each in known.children if each.ending is not None]
    gone = ended[: max(0, len(ended) - LISTED)]
    if not gone:
        return known
    spent = sum((each.ending.spent for each in gone if each.ending is not None), known.past_spent)
    kept = tuple(each for each in known.children if each not in gone)
    return replace(known, children=kept, past=known.past + len(gone), past_spent=spent)
