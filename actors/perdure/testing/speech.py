"""How a scripted provider speaks its API over HTTP: where, to whom, and what an answer looks like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.edges.models.provider import Decided
from perdure.edges.models.reply import ScriptedReply
from perdure.edges.models.rules.refusal import Refused
from perdure.records import Record
from perdure.testing import sse, sse_chat, sse_responses

Json = dict[str, Any]


class Speech(Record, gc=True):
    """One API. `base` is what a client's base URL ends with, `path` where it posts to.

    `admit(headers, key)` raises `Refused` for who may not ask; `whole(decided, body)` is an answer in one
    piece, `events` the same as encoded server-sent events, `last` what ends them, `midway` the event of a
    failure among them.
    """

    base: str
    path: str
    admit: Callable[[dict[str, str], str], None]
    whole: Callable[[Decided, Json], Json]
    events: Callable[[Json, ScriptedReply, Json], list[bytes]]
    midway: bytes
    last: bytes = b""
    counts: str = ""


def _anthropic(headers: dict[str, str], key: str) -> None:
    given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
    if given != key:
        raise Refused(401, "authentication_error", "invalid x-api-key")
    if "anthropic-version" not in headers:
        raise Refused(400, "invalid_request_error", "anthropic-version: header is required")


def _openai(headers: dict[str, str], key: str) -> None:
    if headers.get("authorization") != f"Bearer {key}":
        raise Refused(401, "invalid_request_error", "Incorrect API key provided.", "invalid_api_key")


SPEECHES: dict[str, Speech] = {
    "anthropic-messages": Speech(
        "", "/v1/messages", _anthropic, sse.message, sse.stream, sse.MIDWAY,
        counts="/v1/messages/count_tokens",
    ),
    "openai-completions": Speech(
        "/v1", "/v1/chat/completions", _openai, sse_chat.completion, sse_chat.stream, sse_chat.MIDWAY,
        last=sse_chat.DONE,
    ),
    "openai-responses": Speech(
        "/v1", "/v1/responses", _openai, sse_responses.response, sse_responses.stream, sse_responses.MIDWAY
    ),
}  # fmt: skip
