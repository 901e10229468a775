"""Posts answers to a URL, signed as the Standard Webhooks specification says.

    POST <url>
    content-type: application/json
    webhook-id: msg_…            the same for every attempt: the receiver de-duplicates by it
    webhook-timestamp: 1767600000          seconds; of the attempt
    webhook-signature: v1,<base64>         HMAC-SHA256 of "<id>.<timestamp>.<body>"; one a secret

    {"type": "session.reply", "timestamp": "2026-01-05T08:00:00.000Z",
     "data": {"session": KEY, "channel": NAME, "entry": ID, "text": TEXT, "stop": STOP, "error": TEXT}}

`type` is `session.` and the event: reply, scheduled, failed; the time is that of the answer.

The secret is `whsec_` and base64 of 24 to 64 bytes; several, parted by blanks, while one is changed for
another. Redirects are not followed, the answer's body is not read, proxies of the environment are not used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from perdure.contracts import Delivered, Delivery
from perdure.edges.channels.addresses import Refused, public_address
from perdure.edges.session.lines import iso
from perdure.errors import ConfigError, DeliveryFailed

if TYPE_CHECKING:
    import httpx2

PREFIX = "whsec_"
LATER = frozenset({408, 425, 429})  # of the 4xx, what may be different next time


class Webhook:
    """One endpoint. `wall_ms` tells the time; `timeout` in seconds, for each of connecting, sending, hearing.

    `secret_env` names where the secret stands, for the error that it is missing. Raises `ConfigError`.
    """

    def __init__(
        self,
        name: str,
        url: str,
        secret: str,
        *,
        wall_ms: Callable[[], int],
        secret_env: str = "",
        allow_private: bool = False,
        idempotent: bool = True,
        timeout: float = 20.0,
    ) -> None:
        self.name, self.idempotent = name, idempotent
        self._url, self._wall_ms, self._timeout = url, wall_ms, timeout
        self._allow_private = allow_private
        self._secrets = tuple(_key(each, name, secret_env) for each in secret.split()) or _missing(
            name, secret_env
        )
        self._tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Webhook({self.name!r})"  # no address, no secret

    async def send(self, delivery: Delivery) -> Delivered:
        """One attempt. Raises `DeliveryFailed`."""
        import httpx2

        body = encoded(delivery)
        try:
            response = await self._post(delivery.id, body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise DeliveryFailed("retryable", f"not reached ({type(error).__name__})") from None
        except httpx2.HTTPError as error:
            raise DeliveryFailed("ambiguous", f"no answer ({type(error).__name__})") from None
        except Refused as error:
            raise DeliveryFailed(error.kind, str(error)) from None
        return self._read(response.status_code, response.headers)

    async def _post(self, id: str, body: bytes) -> httpx2.Response:
        import httpx2

        url = httpx2.URL(self._url)
        address = await public_address(url.host, url.port or (443 if url.scheme == "https" else 80),
                                       allow_private=self._allow_private)  # fmt: skip
        if self._tls is None and url.scheme == "https":
            self._tls = ssl.create_default_context()
        headers = self._headers(id, body) | {"host": url.netloc.decode("ascii").rpartition("@")[2]}
        async with httpx2.AsyncClient(
            timeout=self._timeout, follow_redirects=False, trust_env=False, verify=self._tls or False
        ) as client:
            request = client.build_request(
                "POST",
                url.copy_with(host=address),  # what was looked at is what is connected to
                content=body,
                headers=headers,
                extensions={"sni_hostname": url.host, "timeout": httpx2.Timeout(self._timeout).as_dict()},
            )
            response = await client.send(request, stream=True)
            await response.aclose()
            return response

    def _headers(self, id: str, body: bytes) -> dict[str, str]:
        stamp = str(self._wall_ms() // 1000)
        signed = b".".join((id.encode(), stamp.encode(), body))
        marks = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in self._secrets]
        return {
            "content-type": "application/json",
            "user-agent": "perdure",
            "webhook-id": id,
            "webhook-timestamp": stamp,
            "webhook-signature": " ".join(f"v1,{mark}" for mark in marks),
        }

    def _read(self, status: int, headers: Mapping[str, str]) -> Delivered:
        if 200 <= status < 300:
            return Delivered()
        told = f"answered {status}"
        if status == 410:
            raise DeliveryFailed("gone", f"{told}: the endpoint is gone")
        if status >= 500 or status in LATER:
            raise DeliveryFailed("retryable", told, retry_after=self._retry_after(headers))
        raise DeliveryFailed("permanent", told)

    def _retry_after(self, headers: Mapping[str, str]) -> float | None:
        """Seconds, given as such or as a date."""
        told = headers.get("retry-after", "").strip()
        if told.isascii() and told.isdigit() and len(told) < 10:
            return float(told)
        try:
            return max(0.0, parsedate_to_datetime(told).timestamp() - self._wall_ms() / 1000)
        except (ValueError, OverflowError):
            return None


def encoded(delivery: Delivery) -> bytes:
    """The body: the same bytes for every attempt. Halves of surrogate pairs become replacement characters."""
    fields = {name: getattr(delivery, name) for name in ("channel", "entry", "text", "stop", "error")}
    data = {"session": delivery.key} | fields
    whole = {name: _whole(text) for name, text in data.items()}
    payload = {"type": f"session.{delivery.event}", "timestamp": iso(delivery.at), "data": whole}
    return msgspec.json.encode(payload)


def _whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _key(secret: str, name: str, secret_env: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        raise ConfigError(
            f"outbound.{name}.secret_env: {secret_env or 'the secret'} holds no secret of a webhook: "
            f"{PREFIX} and 24 to 64 bytes in base64"
        )
    return key


def _missing(name: str, secret_env: str) -> tuple[bytes, ...]:
    where = f"the environment variable {secret_env} is not set" if secret_env else "no variable is named"
    raise ConfigError(f"outbound.{name}.secret_env: {where}: name one that holds {PREFIX}…")
