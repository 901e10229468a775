"""How one summary is made: normal → aggressive → a digest without a model. Each must shrink its sources.

The ladder is pure: it asks, is told, and ends in a summary or none. Identifiers and facts that a text lost
stand beside it, as in any compaction of the runtime; secrets never enter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from msgspec.structs import replace

from perdure.context.compaction.digest import clip, digest
from perdure.context.compaction.facts import Facts
from perdure.context.compaction.facts import collect as collect_facts
from perdure.context.compaction.identifiers import Found, collect
from perdure.context.compaction.judge import is_skeleton, judge
from perdure.context.compaction.language import spoken
from perdure.context.compaction.proof import compose
from perdure.context.compaction.redact import redact
from perdure.context.tokens.estimator import Estimator
from perdure.plugins.engines.lossless import prompts
from perdure.plugins.engines.lossless.pieces import Node, Raw, Rung, View, item_of, lowest, name_of
from perdure.plugins.engines.lossless.plan import Choice
from perdure.plugins.engines.lossless.settings import Settings
from perdure.records import Items, Record

Weigh: TypeAlias = Callable[[Items], int]
DIGEST_TOKENS, DIGEST_LEAST = 512, 48
LEAST_CARRIED = 200  # tokens for identifiers, and as many for facts, where the sources are not small
_ESTIMATOR = Estimator()


class Asked(Record):
    """A request for the summariser. The answer is its text, or `None` where none could be used."""

    prompt: str
    max_tokens: int


class Source(Record):
    """What one summary is made of. `tokens`: of the pieces, as they stand in the view."""

    session: str
    choice: Choice
    items: Items
    tokens: int
    before: str = ""
    focus: str = ""
    now: int = 0
    model: str = ""
    replaces: str = ""


Ladder: TypeAlias = Generator[Asked, "str | None", "Node | None"]


def ladder(source: Source, settings: Settings, weigh: Weigh, *, models: bool) -> Ladder:
    """The rungs. `models` false: the digest alone. `None`: nothing is smaller than the sources."""
    target = settings.condensed_target if source.choice.depth else settings.leaf_target
    if models:
        normal = max(64, min(target, int(source.tokens * 0.35)))
        short = max(48, min(int(target * 0.55), int(source.tokens * 0.2)))
        rungs: tuple[tuple[Rung, int], ...] = (("normal", normal), ("aggressive", short))
        for rung, tokens in rungs:
            text = yield from _asked(source, tokens, short=rung == "aggressive")
            if text and (node := _made(source, text, rung, tokens, weigh)):
                return node
    return _digested(source, weigh)


def _asked(source: Source, tokens: int, *, short: bool) -> Generator[Asked, str | None, str | None]:
    """An answer that is a summary; what is too long by far counts as none."""
    view, items = source.choice.pieces, source.items
    text = prompts.prompt(
        view, items, source.before, source.focus, tokens, depth=source.choice.depth, short=short
    )
    answer = yield Asked(text, tokens * 2)
    if answer is None:
        return None
    material = f"{source.before}\n{prompts.material(view, items)}"
    flaw = judge(answer, material=material, heard=spoken(items))
    return None if flaw or _ESTIMATOR.text(answer) > 3 * tokens else answer.strip()


def _digested(source: Source, weigh: Weigh) -> Node | None:
    room = min(DIGEST_TOKENS, source.tokens // 3)
    while room >= DIGEST_LEAST // 2:
        text = _extract(source, room)
        if text and (node := _made(source, text, "digest", room, weigh)):
            return node
        room //= 2
    return _made(source, _counted(source), "digest", 0, weigh)


def _extract(source: Source, tokens: int) -> str:
    """Messages by the runtime's own digest; earlier summaries by their beginnings, in equal shares."""
    told = [piece for piece in source.choice.pieces if isinstance(piece, Node)]
    messages = tuple(i for p, i in zip(source.choice.pieces, source.items, strict=True) if isinstance(p, Raw))
    if not told:
        return digest(messages, previous="", tokens=tokens, estimator=_ESTIMATOR)
    chars = max(40, tokens * 3 // len(told))
    lines = [f"- {clip(redact(node.text), chars)}" for node in told]
    rest = digest(messages, previous="", tokens=tokens // 4, estimator=_ESTIMATOR) if messages else ""
    return "\n".join(filter(None, [_counted(source), *lines, rest]))


def _counted(source: Source) -> str:
    count = sum(piece.messages if isinstance(piece, Node) else 1 for piece in source.choice.pieces)
    return f"{count} earlier messages, not summarised by a model; `history_expand` reads them."


def _made(source: Source, text: str, rung: Rung, tokens: int, weigh: Weigh) -> Node | None:
    """The whole summary, if it is smaller than its sources and says something."""
    body = redact(text).strip()
    if not body or is_skeleton(body):
        return None
    found, facts = _carried(source, min(max(LEAST_CARRIED, tokens // 4), source.tokens // 6))
    most = source.tokens
    for kept in ((found, facts), (found, Facts()), (Found(()), Facts())):
        node = _node(source, compose(body, (), *kept), rung)
        if weigh((item_of(node),)) < most:
            return node
    return None


def _carried(source: Source, budget: int) -> tuple[Found, Facts]:
    messages = tuple(i for p, i in zip(source.choice.pieces, source.items, strict=True) if isinstance(p, Raw))
    told = "\n\n".join(piece.text for piece in source.choice.pieces if isinstance(piece, Node))
    found = collect(messages, told, budget=budget, estimator=_ESTIMATOR)
    return found, collect_facts(messages, (), told, budget=budget, estimator=_ESTIMATOR)


def _node(source: Source, text: str, rung: Rung) -> Node:
    view = source.choice.pieces
    sources = source.choice.keys
    ats = [at for piece in view for at in _times(piece) if at]
    node = Node(
        id=name_of(source.session, sources, text),
        depth=source.choice.depth,
        sources=sources,
        text=text,
        tokens=0,
        messages=sum(piece.messages if isinstance(piece, Node) else 1 for piece in view),
        source_tokens=sum(p.source_tokens if isinstance(p, Node) else p.tokens for p in view),
        first=_ends(view)[0],
        last=_ends(view)[1],
        earliest=min(ats, default=0),
        latest=max(ats, default=0),
        rung=rung,
        trust=lowest(piece.trust for piece in view),
        model="" if rung == "digest" else source.model,
        made=source.now,
        replaces=source.replaces,
    )
    return replace(node, tokens=_ESTIMATOR.item(item_of(node)))


def _times(piece: Node | Raw) -> tuple[int, ...]:
    return (piece.earliest, piece.latest) if isinstance(piece, Node) else (piece.at,)


def _ends(view: View) -> tuple[str, str]:
    first, last = view[0], view[-1]
    return (
        first.first if isinstance(first, Node) else first.entry,
        last.last if isinstance(last, Node) else last.entry,
    )
