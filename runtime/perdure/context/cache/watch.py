"""One session's prompt cache, watched: predicted before each call, held against real usage after it.

Before a call the request is compared with the last one, and a difference gets its cause. After it the
seed's test (below 95 %, by 1,000 tokens or more) tells whether tokens were really lost. Only then is
there a `Broke`. A provider is blamed only where our bytes went on unchanged within the cache's life.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.context.cache.blame import Blame, Made, blame
from perdure.context.cache.contract import (
    LIFE,
    READ_PRICE,
    WRITE_PRICE,
    Change,
    Observation,
    Retention,
    Snapshot,
    snapshot,
)
from perdure.context.cache.prefix import Parting, Prefix, Rendered
from perdure.context.environment import Environment
from perdure.records import Assistant, Items, ModelInfo, Record, Usage


class Broke(Record):
    """Tokens that should have been read from the cache and were not, why, and what that cost.

    `previous` should have been there, `read` was. `age`: seconds since the cache was last used, None
    where nobody knows. `cost_usd` is what the lost tokens cost above reading them.
    """

    cause: str
    rule: str
    declared: bool
    previous: int
    read: int
    cost_usd: float
    age: float | None = None
    parting: Parting | None = None
    changes: tuple[Change, ...] = ()

    @property
    def lost(self) -> int:
        """Tokens paid for again."""
        return self.previous - self.read


class Watch:
    """What one session knows of its cache. `waking` gives it what its file tells of the call before."""

    def __init__(self) -> None:
        self.prefix = Prefix()
        self.read = self.prompt = self.calls = self.lost = 0
        self.cost = 0.0
        self.breaks: dict[str, int] = {}
        self.last: Broke | None = None
        self.used = 0  # wall ms when the cache was last read or written; 0: not known
        self._observed = Observation()
        self._made: Made | None = None
        self._blame: Blame | None = None
        self._fingerprint = ""
        self._woken = self._pictures = self._gone = False
        self._snapshot: tuple[Environment | None, str, Snapshot | None] = (None, "", None)

    def waking(self, items: Items, sent: tuple[str, str]) -> None:
        """Take up from the file: the last answer's usage and time, and its request's fingerprint.

        `sent`: the entry that carries one. If a later answer stands in the file, another program asked.
        """
        for n in range(len(items) - 1, -1, -1):
            message = items[n].message
            if isinstance(message, Assistant) and message.usage is not None:
                usage = message.usage
                model = Snapshot(message.provider, message.model, message.api)
                self._observed = Observation(model, usage.cache_read + usage.cache_write)
                self.used = items[n - 1].message.timestamp if n else message.timestamp
                self._fingerprint = sent[1] if sent[0] == items[n].entry else ""
                self._woken = True
                return

    def forgotten(self) -> None:
        """The provider itself began anew: what it had cached went with its process."""
        self._gone = self._woken

    @property
    def sent(self) -> str:
        """The last request's fingerprint, sent here or before the session woke; empty where none is known."""
        return self._fingerprint if self._woken or not self.prefix.known else self.prefix.fingerprint

    # --- before a call ----------------------------------------------------------------------------

    def begin(self, rendered: Rendered, body: bytes, made: Made, env: Environment) -> Blame | None:
        """Compare a request with the last; the cause of a difference that no finished call has paid yet."""
        if (
            made.refreshed and self._snapshot[0] is env
        ):  # an earlier call had the prompt as it was read anew then
            made = replace(made, refreshed="")
        self._observe(env, made)
        pictured = self.prefix.pictured
        parting = self.prefix.follow(rendered, body)
        self._pictures = self._pictures or (
            self.prefix.known and not self._woken and pictured != self.prefix.pictured
        )
        if self._woken and self._made is None:
            parting = self.prefix.against(self._fingerprint)
        if parting is not None and not self._pays_more(parting):
            self._blame = self._blame_of(parting, made)
        self._made = made
        return self._blame

    def _observe(self, env: Environment, made: Made) -> None:
        known, addition, shot = self._snapshot
        if shot is None or known is not env or addition != made.addition:
            names = (tool.name for tool in env.tools)
            shot = snapshot(env.model, made.system + made.addition, names, retention=env.retention)
            self._snapshot = (env, made.addition, shot)
        if self._woken and (before := self._observed.snapshot) is not None:
            # Of the call before the sleep only the model is known by name.
            same = (before.provider, before.model) == (shot.provider, shot.model)
            self._observed = Observation(shot if same else before, self._observed.read)
        self._observed = self._observed.begin(shot)

    def _pays_more(self, parting: Parting) -> bool:
        """Whether a call that never finished had parted earlier: what was changed then is still unpaid."""
        before = self._blame.parting if self._blame is not None else None
        return before is not None and before.byte < parting.byte

    def _blame_of(self, parting: Parting, made: Made) -> Blame:
        if self._made is not None:
            return blame(parting, self._made, made)
        fresh = [line for line in made.lines if line.rule.startswith(("prune.", "guard.", "limit"))]
        new = next((line.rule for line in fresh if not line.rule.endswith("replayed")), "")
        blank = Made((), (), "", "", made.thinking)
        if parting.part == "messages":
            known = {"prune": "pruning", "guard": "guard", "limit": "limit"}
            cause: Any = known.get(new.partition(".")[0].partition(":")[0], "edited")
            return Blame(cause, new or "the file's messages are others than were sent before", parting)
        found = blame(parting, blank, made)
        return Blame(found.cause, f"{parting.part}, since the session was last awake", parting)

    # --- after a call -----------------------------------------------------------------------------

    def complete(
        self, usage: Usage | None, model: ModelInfo, retention: Retention, asked: int
    ) -> Broke | None:
        """The call that began last has ended. `asked`: wall ms when its request was sent."""
        age = (asked - self.used) / 1000 if 0 < self.used <= asked else None
        changes = self._observed.pending
        read = usage.cache_read if usage is not None else None
        self._observed, dropped = self._observed.complete(read, usage.cache_write if usage else 0)
        found = self._blame
        woken, pictures = self._woken, self._pictures
        self._woken = self._pictures = False
        self._blame, self.used = None, asked
        if usage is None:
            return None
        self.calls += 1
        self.read += usage.cache_read
        self.prompt += usage.prompt
        if dropped is None:
            return None
        named = self._named(found, changes, age, LIFE[retention], woken=woken, pictures=pictures)
        cost = _cost(dropped.previous - dropped.read, usage, model, retention)
        changes = _with_parting(changes, found or named)
        broke = Broke(
            named.cause, named.rule, named.declared, dropped.previous, dropped.read, cost, age,
            named.parting, changes,
        )  # fmt: skip
        self._count(broke)
        return broke

    def _named(
        self,
        found: Blame | None,
        changes: tuple[Change, ...],
        age: float | None,
        life: float,
        *,
        woken: bool,
        pictures: bool,
    ) -> Blame:
        """The cause. What loses everything names itself; then the clock, which would have lost it too."""
        codes = {change.code: change.detail for change in changes}
        parting = found.parting if found is not None else None
        if "model" in codes:
            return Blame("model", f"model: {codes['model']}", parting)
        if age is not None and age >= life:
            return Blame("expired", f"unused for {age:.0f} s, and it lives {life:.0f} s", parting)
        if "cacheRetention" in codes:
            return Blame("retention", f"retention: {codes['cacheRetention']}", parting)
        if found is not None:
            return found
        if pictures:
            shown = "the first image came" if self.prefix.pictured else "the last image left"
            return Blame("images", f"images: {shown}")
        if woken and self._gone:
            return Blame("restart", "the provider began anew, and its cache with it", parting)
        if woken and (not self._fingerprint or age is None):
            return Blame("restart", "what was sent before, or when, is not known", parting)
        return Blame("provider", "our bytes went on unchanged within the cache's life")

    def _count(self, broke: Broke) -> None:
        self.breaks[broke.cause] = self.breaks.get(broke.cause, 0) + 1
        self.lost += broke.lost
        self.cost += broke.cost_usd
        self.last = broke

    @property
    def left(self) -> int:
        """Tokens that the next call should find in the cache."""
        return self._observed.read or 0

    def line(self) -> dict[str, Any]:
        """As `status --deep` shows it."""
        return {
            "calls": self.calls,
            "read": self.read,
            "prompt": self.prompt,
            "share": round(self.read / self.prompt, 4) if self.prompt else None,
            "breaks": dict(sorted(self.breaks.items())),
            "lost_tokens": self.lost,
            "lost_usd": round(self.cost, 6),
            "last_break": None if self.last is None else told(self.last),
        }


def told(broke: Broke) -> dict[str, Any]:
    """A break as the log and the status tell it."""
    at = broke.parting or Parting(-1, "")
    return {
        "cause": broke.cause,
        "rule": broke.rule,
        "declared": broke.declared,
        "previous": broke.previous,
        "read": broke.read,
        "lost": broke.lost,
        "cost_usd": broke.cost_usd,
        "age": broke.age,
        "part": at.part,
        "byte": at.byte,
        "message": at.index if at.part == "messages" else -1,
        "block": at.block,
        "entry": at.entries[-1] if at.entries else "",
        "changes": [{"code": change.code, "detail": change.detail} for change in broke.changes],
    }


_CODES = {"model": "model", "system": "systemPrompt", "tools": "tools"}


def _with_parting(changes: tuple[Change, ...], named: Blame) -> tuple[Change, ...]:
    """What the snapshots can't see: definitions of tools, settings and messages that were changed."""
    if named.parting is None:
        return changes
    code = _CODES.get(named.parting.part, named.parting.part)
    known = any(change.code == code for change in changes)
    return changes if known else (*changes, Change(code, named.rule))


def _cost(lost: int, usage: Usage, model: ModelInfo, retention: Retention) -> float:
    """USD that the lost tokens cost above reading them: written again as far as the call wrote."""
    written = min(lost, usage.cache_write)
    weighed = written * WRITE_PRICE[retention] + (lost - written) - lost * READ_PRICE
    return round(weighed * model.price_input / 1e6, 8)
