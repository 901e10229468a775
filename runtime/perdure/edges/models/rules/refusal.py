"""How a request is refused: the status, type and message a provider would send back."""

from __future__ import annotations

import re
from typing import Any, NoReturn, TypeAlias

from perdure.records import ModelInfo

Json: TypeAlias = dict[str, Any]


class Refused(Exception):
    """A request breaks a rule of the API. The three fields are those of the provider's error reply."""

    def __init__(self, status: int, error_type: str, message: str) -> None:
        super().__init__(f"{status} {error_type}: {message}")
        self.status, self.error_type, self.message = status, error_type, message

    def body(self, request_id: str = "req_scripted") -> Json:
        """The JSON body of the provider's reply."""
        error = {"type": self.error_type, "message": self.message}
        return {"type": "error", "error": error, "request_id": request_id}


def invalid(message: str) -> NoReturn:
    """Refuse with 400 `invalid_request_error`, as every structural rule does."""
    raise Refused(400, "invalid_request_error", message)


OLDER = re.compile(r"claude-3|claude-(opus|sonnet)-4(-0|-1|-\d{8}|-1-\d{8})?\Z")


def check_room(tokens: int, wanted: int, model: ModelInfo) -> None:
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
