"""Whether a session may begin a child, under which grant, and what the child is told first. Pure."""

from __future__ import annotations

import hashlib
from typing import Final, Literal, TypeAlias

from perdure.actors.prompting import agent_of
from perdure.actors.subagents.ending import framed
from perdure.context.text.characters import clean
from perdure.contracts import Letter, SpawnMode
from perdure.edges.session.kin import ChildGrant, Cleanup, Relatives
from perdure.edges.settings_hosting import SubagentSettings
from perdure.edges.spend import Amount
from perdure.errors import PerdureError
from perdure.records import Record, Text

MOST_TASK: Final = 100_000  # characters
BRIEF: Final = 200  # characters of a task that lists and records show

Why: TypeAlias = Literal[
    "depth", "children", "budget", "queue", "time", "agent", "arguments", "engine", "storage"
]


class Refused(PerdureError):
    """A child was not begun: `why` in a word, the text for the model. Nothing runs."""

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why: Why = why


class Wish(Record):
    """A child as the model asks for it; zero and empty: as configured. `tokens` and `usd` of its grant."""

    task: str
    label: str = ""
    agent: str = ""
    model: str = ""
    thinking: str = ""
    mode: SpawnMode = "isolated"
    seconds: float = 0.0
    cleanup: Cleanup = "keep"
    tokens: int = 0
    usd: float = 0.0
    context_tokens: int = 0


class Asker(Record):
    """Who asks: the session, the id of its file, what it knows of its children, what its grant has left.

    `left`, `cap` and `deadline` are of a session that is a child itself; else nothing limits it.
    """

    key: str
    session: str
    call: str
    relatives: Relatives
    cap: Amount = Amount()
    left: Amount = Amount()

    @property
    def depth(self) -> int:
        """0: a session that nobody spawned."""
        return self.relatives.own.grant.depth if self.relatives.own is not None else 0


def granted(wish: Wish, asker: Asker, settings: SubagentSettings, open_here: int, now: int) -> ChildGrant:
    """The grant of a new child. Raises `Refused`. `open_here`: children that are open in the host."""
    _may_begin(wish, asker, settings, open_here)
    own = asker.relatives.own
    seconds = min(wish.seconds or settings.timeout_seconds, settings.timeout_seconds)
    deadline = now + int(seconds * 1000)
    if own is not None:
        deadline = min(deadline, own.grant.deadline)
        if deadline <= now:
            raise Refused("time", "no time is left of this session's own grant")
    amount = _share(wish, asker, settings)
    run = run_id(asker)
    return ChildGrant(
        run=run,
        child=f"agent:{agent_of(asker.key)}:subagent:{run}",
        parent=asker.key,
        parent_session=asker.session,
        depth=asker.depth + 1,
        began=now,
        deadline=deadline,
        tokens=amount.tokens,
        usd=amount.usd,
        mode=wish.mode,
        cleanup=wish.cleanup,
        label=" ".join(clean(wish.label).split())[:BRIEF],
        task=" ".join(clean(wish.task).split())[:BRIEF],
    )


def _may_begin(wish: Wish, asker: Asker, settings: SubagentSettings, open_here: int) -> None:
    if not wish.task.strip():
        raise Refused("arguments", "the task is empty: say what the subagent is to do")
    if len(wish.task) > MOST_TASK:
        raise Refused("arguments", f"the task has more than {MOST_TASK:,} characters: put it into a file")
    own = agent_of(asker.key)
    if wish.agent and wish.agent != own:
        raise Refused("agent", f"agentId {wish.agent[:60]!r}: only subagents of {own!r} may be begun here")
    if asker.depth >= settings.max_depth:
        raise Refused(
            "depth", f"subagents at depth {asker.depth} may begin none (at most {settings.max_depth})"
        )
    if len(asker.relatives.open) >= settings.max_children:
        most = settings.max_children
        raise Refused("children", f"{most} subagents of this session run already: wait for one, or stop one")
    if open_here >= settings.max_total:
        raise Refused("queue", f"{open_here} subagents run in this host already: try again later")


def _share(wish: Wish, asker: Asker, settings: SubagentSettings) -> Amount:
    """What is asked for, else as configured, else half of what a limited parent has left."""
    cap, left = asker.cap, asker.left
    tokens = wish.tokens or settings.tokens
    usd = wish.usd or settings.usd
    if cap.tokens:
        tokens = min(tokens, left.tokens) if tokens and not wish.tokens else tokens or left.tokens // 2
        if tokens > left.tokens or tokens <= 0:
            raise Refused("budget", f"{tokens:,} tokens asked for, {left.tokens:,} are left of the own grant")
    if cap.usd:
        usd = min(usd, left.usd) if usd and not wish.usd else usd or left.usd / 2
        if usd > left.usd or usd <= 0:
            raise Refused("budget", f"{usd:.4f} USD asked for, {left.usd:.4f} are left of the own grant")
    return Amount(usd, tokens)


def run_id(asker: Asker) -> str:
    """As a UUID looks; the same for the same call of the same session file, and for no other."""
    told = f"{asker.session}/{asker.relatives.begun}/{asker.call}"
    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def first_letter(
    grant: ChildGrant, wish: Wish, settings: SubagentSettings, now: int, shown: str = ""
) -> Letter:
    """What the child is told. `shown`: the projected context. Its answer goes out by no channel."""
    context = (
        f"[Subagent Context] You are a subagent of {grant.parent} "
        f"(depth {grant.depth}/{settings.max_depth}). Do the task and nothing else. Your last message is "
        "your result: it is reported to your parent as it stands; nobody reads what you say before, and "
        "nobody answers questions."
    )
    parts = [context, *([shown] if shown else []), f"[Subagent Task]: {framed(wish.task.strip())}"]
    text = Text("\n\n".join(parts))
    return Letter(grant.child, grant.parent, grant.run, (text,), now, "inter_session", deliver=False)
