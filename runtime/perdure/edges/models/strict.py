"""The strict door of the scripted model: every rule of the Messages API we know, in its own order.

A request that passes here is one that the provider would not refuse for its structure. Rules come
from recordings, public issue threads and the official SDK; those known only by hearsay are `known`
and can be switched off.
"""

from __future__ import annotations

from perdure.edges.models.rules.content import check_content_rules
from perdure.edges.models.rules.images import check_images
from perdure.edges.models.rules.marks import check_marks
from perdure.edges.models.rules.pairing import check_pairing
from perdure.edges.models.rules.refusal import Json, Refused, invalid
from perdure.edges.models.rules.schema import Found, check_messages, check_system, check_top
from perdure.edges.models.rules.thinking import check_thinking
from perdure.edges.models.rules.tools import check_choice, check_tools
from perdure.records import ModelInfo

__all__ = ["Refused", "validate"]


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Raise `Refused` with the provider's status, type and message for the first rule `body` breaks.

    Order: schema → model (404) → meaning. The window is checked afterwards by who counts tokens.
    `known=False` leaves out the rules that no recording or source confirms; `model` adds the rules
    of one model; `counting` reads the body as `count_tokens` does (no `max_tokens` needed).
    """
    check_top(body, counting=counting)
    found = Found()
    check_tools(body.get("tools"), found, known=known)
    check_system(body.get("system"), found)
    check_messages(body["messages"], found)
    if model is not None and body["model"] != model.id:
        raise Refused(404, "not_found_error", f"model: {body['model']}")
    check_choice(body, known=known)
    _check_size(body, model, known)
    check_content_rules(body, model, known=known)
    check_pairing(body["messages"], known=known)
    check_thinking(body, model, found, known=known)
    check_marks(body, found)
    if "image" in found.kinds:
        check_images(body["messages"], known=known)


def _check_size(body: Json, model: ModelInfo | None, known: bool) -> None:
    wanted = body.get("max_tokens", 0)
    if known and model is not None and wanted > model.max_output:
        invalid(
            f"max_tokens: {wanted} > {model.max_output}, which is the maximum allowed number of output "
            f"tokens for {model.id}"
        )
