"""Makes every message fit for the wire, one pure step after the other.

| what the seed lists | where |
|---|---|
| messages of other sessions marked | `provenance.annotate` |
| pictures checked, counted (scaled before they are stored: `edges.images`) | `contents`, `image_floor` |
| thinking and reasoning by the model's rules | `thinking.settle`, `gemini.fit` |
| names, arguments and ids of calls | `contents`, `ids.normalise` |
| every call answered once | `repair.repair` |
| redundant fields of results | `strip.strip`, before this |
| turn order | `validate.validate`, after this; `seal.ends` |

Two steps need no code here. Usage from before a compaction misleads nobody: no stored usage is read
again, only that of the answer just given. A snapshot of the model is on every answer (provider, API,
model), so a switch is seen message by message, by whatever program it was made.

Stored text never changes; what is sent differs from it only by a named rule. Running it on its own
outcome changes nothing, so the seal may run it again on whatever an engine or hook returned.
"""

from __future__ import annotations

from collections.abc import Container

from perdure.context.changed import NOTHING_DECIDED, Changed, Decisions
from perdure.context.policy import TranscriptPolicy
from perdure.context.safety.contents import contents
from perdure.context.safety.gemini import fit
from perdure.context.safety.ids import IdsInUse, normalise
from perdure.context.safety.image_floor import old_images
from perdure.context.safety.provenance import annotate
from perdure.context.safety.repair import repair
from perdure.context.safety.thinking import asked, same_model, settle
from perdure.records import Items, Message, ModelInfo


class Before:
    """What the part of a history that comes before some items leaves them to know.

    `clean`: messages by entry that were found to be as they may be sent, so that a long tool loop is not
    read again at each step.
    """

    __slots__ = ("clean", "ids", "since")

    def __init__(
        self, ids: IdsInUse | None = None, since: int = -1, clean: dict[str, Message] | None = None
    ) -> None:
        self.ids = ids if ids is not None else IdsInUse()
        self.since = since
        self.clean = {} if clean is None else clean

    def fork(self) -> Before:
        return Before(self.ids.fork(), self.since, self.clean)


def sanitize(
    items: Items,
    policy: TranscriptPolicy,
    model: ModelInfo,
    *,
    thinking: bool | str = True,
    decided: Decisions = NOTHING_DECIDED,
    covered: Container[str] | None = None,
    unseen: Container[str] | None = None,
    before: Before | None = None,
) -> Changed:
    """All sanitising steps in their order; see the module.

    `thinking`: whether the request asks for it, or its level. Where it doesn't, none is sent; where
    `.thinking` of the outcome is false, it must not ask. `covered`, `unseen`: see `repair`.
    `before`: what `items` go on from, where they are the tail of a history (see `settled`).
    """
    on, before = asked(model, thinking), before or Before()
    done = contents(items, policy, model, before.clean).then(annotate)
    done = done.then(lambda now: old_images(now, policy, decided))
    if policy.pairing:
        done = done.then(lambda now: repair(now, decided=decided, covered=covered, unseen=unseen))
    if policy.base64_signatures:
        done = done.then(lambda now: fit(now, lambda answer: same_model(answer, model)))
    done = done.then(lambda now: settle(now, model, policy, on=on, since=before.since, used=before.ids.used))
    return done.then(lambda now: normalise(now, policy, decided, before.ids))
