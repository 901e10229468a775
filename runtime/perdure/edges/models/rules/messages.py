"""Anthropic's Messages API: every rule of it we know, in its own order, and how it words a refusal."""

from __future__ import annotations

import re

from perdure.edges.models.rules.content import check_content_rules
from perdure.edges.models.rules.family import Family
from perdure.edges.models.rules.images import check_images
from perdure.edges.models.rules.marks import check_marks
from perdure.edges.models.rules.pairing import check_pairing
from perdure.edges.models.rules.refusal import Json, Refused, invalid
from perdure.edges.models.rules.schema import Found, check_messages, check_system, check_top
from perdure.edges.models.rules.thinking import check_thinking
from perdure.edges.models.rules.tools import check_choice, check_tools
from perdure.records import ModelInfo

# fault → (status, error type, message) of the reply a provider would send before any token
REFUSALS: dict[str, tuple[int, str, str]] = {
    "rate_limit": (
        429,
        "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.",
    ),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "server": (500, "api_error", "Internal server error"),
    "auth": (401, "authentication_error", "invalid x-api-key"),
    "billing": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
}
OLDER = re.compile(r"claude-3|claude-(opus|sonnet)-4(-0|-1|-\d{8}|-1-\d{8})?\Z")


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Order: schema → model (404) → meaning. The window is checked afterwards by who counts tokens."""
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


def _check_room(tokens: int, wanted: int, model: ModelInfo) -> None:
    """Refuse a prompt over the window, in the recorded wording; for older models, its answer counts too.

    Newer ones (Claude 4.5 on) take any `max_tokens` and stop where the window ends.
    """
    if tokens > model.window:
        invalid(f"prompt is too long: {tokens} tokens > {model.window} maximum")
    if model.provider == "anthropic" and OLDER.match(model.id) and tokens + wanted > model.window:
        invalid(
            f"input length and `max_tokens` exceed context limit: {tokens} + {wanted} > {model.window}, "
            "decrease input length or `max_tokens` and try again"
        )


def _refusal(fault: str, tokens: int, model: ModelInfo) -> Refused | None:
    if fault == "overflow":  # of a request of any size: no number is told that would be false
        return Refused(400, "invalid_request_error", "prompt is too long")
    return Refused(*REFUSALS[fault]) if fault in REFUSALS else None


def _error_body(refused: Refused) -> Json:
    error = {"type": refused.error_type, "message": refused.message}
    return {"type": "error", "error": error, "request_id": "req_scripted"}


FAMILY = Family(
    validate=validate,
    read=lambda body: body,
    room=_check_room,
    refusal=_refusal,
    error_body=_error_body,
    call_id=lambda mark: f"toolu_{mark}",
    signature=lambda mark, _: f"sig_{mark}",
    unaltered=True,
)
