"""Anthropic's Messages API through the official SDK, which is imported when the first request is made.

The body goes out as the bytes it was encoded to. The SDK retries nothing: the turn decides that, in
one place. Every failure leaves as one classified `ModelError`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from perdure.contracts import ModelEvent, Request
from perdure.edges.models.classify import model_error
from perdure.edges.models.provider import Pace
from perdure.edges.models.wire import Reader
from perdure.errors import ModelError
from perdure.kernel.clock import RealClock
from perdure.records import ModelInfo

NO_KEY = "no API key: set ANTHROPIC_API_KEY, or choose the scripted model"
CREDENTIALS = (  # as the SDK looks for them, in `anthropic.lib.credentials`
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE", "ANTHROPIC_IDENTITY_TOKEN",
    "ANTHROPIC_IDENTITY_TOKEN_FILE", "ANTHROPIC_FEDERATION_RULE_ID",
)  # fmt: skip
JSON = {"content-type": "application/json"}


class AnthropicModel:
    """Implements `contracts.Model`. Without `api_key` the SDK looks in its usual places.

    `http_client` is the SDK's own kind of client (tests, proxies); `clock` dates answers.
    """

    def __init__(
        self,
        info: ModelInfo,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        http_client: Any = None,
        clock: Pace | None = None,
    ) -> None:
        self.info = info
        self.requests = 0
        self.errors: dict[str, int] = {}
        self._options = {"api_key": api_key, "base_url": base_url, "http_client": http_client}
        self._clock: Pace = clock or RealClock()
        self._client: Any = None

    def lacks(self) -> str:
        """As `contracts.Lacking`; never in doubt where the SDK may find credentials of its own."""
        given = self._options["api_key"] or self._options["http_client"] or self._client
        return "" if given or _found(os.environ) else NO_KEY

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """The events of one answer. Raises `ModelError`."""
        self.requests += 1
        sdk = await anyio.to_thread.run_sync(_load)
        reader = Reader(self.info)
        try:
            async with aclosing(self._events(sdk, request)) as events:
                async for event in events:
                    told = reader.feed(event)
                    if told is not None:
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

    async def _events(self, sdk: ModuleType, request: Request) -> AsyncGenerator[Any]:
        stream = await self._open(sdk).post(
            "/v1/messages",
            cast_to=sdk.types.Message,
            content=streaming(request.body),
            options={"headers": JSON, "max_retries": 0},
            stream=True,
            stream_cls=sdk.AsyncStream[sdk.types.RawMessageStreamEvent],
        )
        async with stream:
            async for event in stream:
                yield event

    def _open(self, sdk: ModuleType) -> Any:
        if self._client is None:
            client = sdk.AsyncAnthropic(**self._options, max_retries=0)
            if not (client.api_key or client.auth_token or client.credentials):
                raise ModelError("auth", NO_KEY)
            if not (client.api_key or "k").isprintable() or not (client.api_key or "k").isascii():
                raise ModelError("auth", "the API key holds a character that no key has: copy it again")
            self._client = client
        return self._client

    def _understood(self, sdk: ModuleType, error: Exception) -> ModelError | None:
        """The classified form of an error of the SDK or of what lies below it; None for a bug."""
        import httpx2

        if isinstance(error, sdk.APIStatusError):
            return self._status_error(error)
        if isinstance(error, sdk.APITimeoutError | httpx2.TimeoutException):
            return ModelError("timeout", "the provider did not answer in time")
        if isinstance(error, sdk.APIConnectionError):
            return ModelError("transport", f"no connection to the provider: {error.__cause__ or error}")
        if isinstance(error, httpx2.TransportError):
            return ModelError("cut", f"the answer broke off: {error}")
        if isinstance(error, sdk.CredentialsError):
            return ModelError("auth", NO_KEY)
        return ModelError("unknown", f"{error}") if isinstance(error, sdk.AnthropicError) else None

    def _status_error(self, error: Any) -> ModelError:
        status = error.status_code if error.status_code != 200 else None  # an event inside a stream
        text = f"{error.type}: {error.api_message}" if error.api_message else str(error)
        found = model_error(status, text, error.response.headers, self._clock.wall_ms() / 1000)
        if found.kind == "auth":
            return ModelError(
                "auth", f"the API key was refused ({found}): check ANTHROPIC_API_KEY", status=status
            )
        return found

    def _counted(self, error: ModelError) -> ModelError:
        self.errors[error.kind] = self.errors.get(error.kind, 0) + 1
        return error


class _Top(msgspec.Struct):
    stream: bool | None = None


def streaming(body: bytes) -> bytes:
    """The same body, asking for a stream: bytes are spliced in, never re-encoded, where it didn't say."""
    asked = msgspec.json.decode(body, type=_Top).stream
    if asked:
        return body
    if asked is None and body.rstrip().endswith(b"}") and len(body.strip()) > 2:
        return body.rstrip()[:-1] + b',"stream":true}'
    return msgspec.json.encode({**msgspec.json.decode(body), "stream": True})


def _found(environ: Mapping[str, str]) -> bool:
    """Whether the SDK may find credentials: a key or token, a workload's identity, a profile on the disk."""
    if any(environ.get(name) for name in CREDENTIALS):
        return True
    return Path(environ.get("ANTHROPIC_CONFIG_DIR") or Path.home() / ".config" / "anthropic").exists()


def _load() -> ModuleType:
    import anthropic

    return anthropic
