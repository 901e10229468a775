"""What goes wrong, as HTTP says it: one status and one kind for each error a reader can act on."""

from __future__ import annotations

from math import ceil

import msgspec
from starlette.responses import Response

from perdure.errors import (
    Busy,
    Closed,
    ContextOverflow,
    Fenced,
    IdReused,
    Locked,
    MessageTooLarge,
    ModelError,
    ModelUnusable,
    Parked,
    PerdureError,
    Quarantined,
    SegmentGone,
    SessionNotFound,
    SpendCap,
    StorageFailed,
    UnreadableFile,
    UsageError,
)
from perdure.records import Record


class Problem(Record, omit_defaults=True):
    """`kind` is for programs, `message` one line for a person. `retry_after`: seconds. `id`: of the log."""

    kind: str
    message: str
    retry_after: float | None = None
    id: str | None = None


class Refusal(Record):
    """The body of every answer that is no success."""

    error: Problem


class Refused(Exception):
    """Ends a request with `status` and a `Problem`."""

    def __init__(self, status: int, kind: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.problem = status, Problem(kind, message, retry_after)


NOT_FOUND = "no such session, or not one of yours"
_KNOWN: tuple[tuple[type[PerdureError], int, str], ...] = (
    (SessionNotFound, 404, "not_found"),
    (MessageTooLarge, 413, "message_too_large"),
    (IdReused, 422, "id_reused"),
    (ModelUnusable, 503, "model_unusable"),
    (UsageError, 400, "invalid"),
    (SegmentGone, 409, "segment_gone"),
    (UnreadableFile, 409, "unreadable_file"),
    (Locked, 409, "locked"),
    (Parked, 409, "parked"),
    (Quarantined, 409, "quarantined"),
    (ContextOverflow, 409, "overflow"),
    (Busy, 429, "busy"),
    (Fenced, 503, "fenced"),
    (Closed, 503, "closed"),
    (SpendCap, 429, "spend_cap"),
    (ModelError, 503, "model"),
    (StorageFailed, 507, "storage_failed"),
)
NEXT_DAY = 3_600.0  # seconds after which a budget may be there again
WAIT = {429: 1.0, 503: 2.0, 507: 5.0}  # seconds after which a retry is worth it where nobody knows better


def refused(error: PerdureError) -> Refused:
    """The status and kind of an error of the host. Its text is one line already."""
    status, kind = next(((s, k) for known, s, k in _KNOWN if isinstance(error, known)), (500, "internal"))
    wait = getattr(error, "retry_after", None) or (NEXT_DAY if kind == "spend_cap" else WAIT.get(status))
    return Refused(status, kind, str(error), wait)


def answer(refusal: Refused) -> Response:
    """The answer of a refusal, with `Retry-After` where a retry is worth it."""
    problem, headers = refusal.problem, {}
    if problem.retry_after is not None:
        headers["retry-after"] = f"{max(1, ceil(problem.retry_after))}"
    if refusal.status == 401:
        headers["www-authenticate"] = 'Bearer realm="perdure"'
    return json(Refusal(problem), refusal.status, headers)


def json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Any record or builtin as a JSON answer; half a surrogate pair in a stored text does not break it."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    return Response(data, status, headers, "application/json")


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(part) for name, part in value.items()}
    return [_encodable(part) for part in value] if isinstance(value, list | tuple) else value
