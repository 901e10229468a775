"""How a request is refused: the status, type and message a provider would send back."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

Json: TypeAlias = dict[str, Any]


class Refused(Exception):
    """A request breaks a rule of the API. The fields are those of the provider's error reply; not every
    provider sends a `code`.
    """

    def __init__(self, status: int, error_type: str, message: str, code: str = "") -> None:
        super().__init__(f"{status} {error_type}: {message}")
        self.status, self.error_type, self.message, self.code = status, error_type, message, code


def invalid(message: str) -> NoReturn:
    """Refuse with 400 `invalid_request_error`, as every structural rule does."""
    raise Refused(400, "invalid_request_error", message)
