"""How a request is refused: the status, type and message a provider would send back."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

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


def too_long(tokens: int, window: int) -> NoReturn:
    """Refuse a prompt over the window, in the wording recorded from the provider."""
    invalid(f"prompt is too long: {tokens} tokens > {window} maximum")
