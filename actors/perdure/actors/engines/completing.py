"""A plugin's own model call: the summarising model's queue, its tenant's budget, no second try."""

from __future__ import annotations

from perdure.actors.model_call import answer_of
from perdure.actors.services import Services
from perdure.context.policy import policy_for
from perdure.context.tokens.estimator import Estimator
from perdure.context.wire import render
from perdure.contracts import Request
from perdure.records import Item, Text, User


async def completed(services: Services, key: str, prompt: str, *, system: str, max_tokens: int) -> str:
    """The text of one answer for session `key`. Raises `ModelError`."""
    info = services.resolver.summariser(services.resolver.model_for(key, None))
    body = render(
        (Item("", User((Text(prompt),))),),
        system=system,
        tools=(),
        model=info,
        policy=policy_for(info),
        max_tokens=max_tokens,
        retention="none",
    )
    estimator, until = Estimator(), services.clock.now() + services.timing.summary
    tokens = estimator.text(system) + estimator.text(prompt)
    answer = await answer_of(services, Request(body, info, tokens, f"{key}#plugin"), until, output=max_tokens)
    return "".join(block.text for block in answer.message.content if isinstance(block, Text))
