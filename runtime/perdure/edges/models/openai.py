"""Chat Completions and Responses through OpenAI's official SDK, which is imported on first use.

One edge for OpenAI and for every server that speaks like it: the body goes out as the bytes it was
encoded to, the model's `api` says where and how the answer is read. The SDK retries nothing: the turn
decides that, in one place. Every failure leaves as one classified `ModelError`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Protocol

import anyio.to_thread

from perdure.contracts import Answer, ModelEvent, Request
from perdure.edges.models.chat_reader import ChatReader
from perdure.edges.models.classify import classify, model_error
from perdure.edges.models.events import Json, events
from perdure.edges.models.provider import Pace
from perdure.edges.models.responses_reader import ResponsesReader
from perdure.edges.models.vendors import RESPONSES
from perdure.errors import ModelError
from perdure.kernel.clock import RealClock
from perdure.records import ModelInfo

STREAM = {"content-type": "application/json", "accept": "text/event-stream"}
MISSING = "the `openai` package is not installed: pip install 'perdure[openai]'"


class Reader(Protocol):
    """One answer in the making: `feed` it the events in order, then ask for the `answer`."""

    def feed(self, event: Json) -> list[ModelEvent]: ...
    def answer(self, now_ms: int) -> Answer: ...


class OpenAIModel:
    """Implements `contracts.Model`. `key_env` is the variable that errors name as the key's place.

    `http_client` is the SDK's own kind of client (tests, proxies); `clock` dates answers.
    """

    def __init__(
        self,
        info: ModelInfo,
        *,
        api_key: str,
        base_url: str = "",
        key_env: str = "OPENAI_API_KEY",
        http_client: Any = None,
        clock: Pace | None = None,
    ) -> None:
        self.info = info
        self.requests = 0
        self.errors: dict[str, int] = {}
        self._key, self._key_env = api_key, key_env
        self._options = {"base_url": base_url or None, "http_client": http_client}
        self._clock: Pace = clock or RealClock()
        self._client: Any = None

    def lacks(self) -> str:
        """As `contracts.Lacking`."""
        if find_spec("openai") is None:
            return MISSING
        return "" if self._key else f"no API key: set {self._key_env}, or choose another model"

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """The events of one answer. Raises `ModelError`."""
        self.requests += 1
        try:
            sdk = await anyio.to_thread.run_sync(_load)
        except ImportError:
            raise self._counted(ModelError("invalid", MISSING)) from None
        reader: Reader = (ResponsesReader if self.info.api == RESPONSES else ChatReader)(self.info)
        try:
            async with aclosing(self._events(sdk, request)) as found:
                async for event in found:
                    for told in reader.feed(event):
                        yield told
            yield reader.answer(self._clock.wall_ms())
        except ModelError as error:
            raise self._counted(error) from None
        except Exception as error:
            known = self._understood(sdk, error)
            if known is None:
                raise
            raise self._counted(known) from error

    async def aclose(self) -> None:
        """Close the connections; the model may be used again afterwards."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _events(self, sdk: ModuleType, request: Request) -> AsyncGenerator[Json]:
        import httpx2

        response = await self._open(sdk).post(
            "/responses" if self.info.api == RESPONSES else "/chat/completions",
            cast_to=httpx2.Response,  # the response itself, its body unread
            content=request.body,
            options={"headers": STREAM, "max_retries": 0},
            stream=True,
        )
        async with aclosing(events(response)) as found:
            async for event in found:
                yield event

    def _open(self, sdk: ModuleType) -> Any:
        if self._client is None:
            if not self._key:
                raise ModelError("auth", self.lacks())
            if not self._key.isprintable() or not self._key.isascii():
                raise ModelError("auth", f"{self._key_env} holds a character that no key has: copy it again")
            self._client = sdk.AsyncOpenAI(api_key=self._key, max_retries=0, **self._options)
        return self._client

    def _understood(self, sdk: ModuleType, error: Exception) -> ModelError | None:
        """The classified form of an error of the SDK or of what lies below it; None for a bug."""
        import httpx2

        if isinstance(error, sdk.APIStatusError):
            return self._status_error(error)
        if isinstance(error, sdk.APITimeoutError | httpx2.TimeoutException):
            return ModelError("timeout", "the provider did not answer in time")
        if isinstance(error, sdk.APIConnectionError):
            return self._unconnected(error)
        if isinstance(error, httpx2.TransportError):
            return ModelError("cut", f"the answer broke off: {error}")
        return ModelError("unknown", f"{error}") if isinstance(error, sdk.OpenAIError) else None

    def _status_error(self, error: Any) -> ModelError:
        now = self._clock.wall_ms() / 1000
        return self._named(model_error(error.status_code, _text(error), error.response.headers, now))

    def _unconnected(self, error: Any) -> ModelError:
        """No answer came; where a kept connection was closed by the other side meanwhile, it broke off."""
        cause = error.__cause__ or error
        if classify(None, str(cause)) == "cut":
            return ModelError("cut", f"the answer broke off: {cause}")
        where = self._options["base_url"] or "the provider"
        return ModelError("transport", f"no connection to {where}: {cause}")

    def _named(self, error: ModelError) -> ModelError:
        if error.kind != "auth":
            return error
        told = f"the API key was refused ({error}): check {self._key_env}"
        return ModelError("auth", told, status=error.status)

    def _counted(self, error: ModelError) -> ModelError:
        self.errors[error.kind] = self.errors.get(error.kind, 0) + 1
        return error


def _text(error: Any) -> str:
    """Code, type and message, so that the one classification sees them all."""
    message = str(error.message or error)
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("message")
    if isinstance(inner, str) and inner:
        message = inner
    elif isinstance(body.get("detail"), str):
        message = body["detail"]
    words = [word for word in (error.type, error.code) if isinstance(word, str) and word not in message]
    return ": ".join([*dict.fromkeys(words), message])


def _load() -> ModuleType:
    import openai

    return openai
