"""Who asks: a bearer token names a tenant. Only SHA-256 of tokens is kept in memory."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping

from perdure.edges.settings import Settings
from perdure.edges.settings_hosting import TenantSettings
from perdure.errors import ConfigError
from perdure.server.problems import Refused

LOCAL = TenantSettings("", operator=True)
LEAST = 16  # characters of a token


class Keys:
    """Tenants by token. `local` is the token of whoever can read the state folder: an operator."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], local: str) -> None:
        self._environ, self._local = environ, _digest(local)
        self._by_digest = self._digests(settings)

    def prepared(self, settings: Settings) -> Callable[[], None]:
        """Puts the tenants of other settings in force when called. Raises `ConfigError`."""
        found = self._digests(settings)

        def commit() -> None:
            self._by_digest = found

        return commit

    def _digests(self, settings: Settings) -> dict[bytes, tuple[bytes, TenantSettings]]:
        found = {self._local: (self._local, LOCAL)}
        for tenant in settings.tenants:
            digest = _token_digest(tenant, self._environ)
            if digest in found:
                raise ConfigError(f"tenants.{tenant.name}: has the token of another tenant: give it its own")
            found[digest] = digest, tenant
        return found

    def tenant(self, authorization: str | None) -> TenantSettings:
        """Of an `Authorization` header. What is compared is a digest: its timing tells nothing of a token."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refused(401, "unauthorized", "send `Authorization: Bearer TOKEN`")
        digest = _digest(token.strip())
        known, tenant = self._by_digest.get(digest, (b"", LOCAL))
        if not hmac.compare_digest(known, digest):
            raise Refused(401, "unauthorized", "this token is not known here")
        return tenant


def _token_digest(tenant: TenantSettings, environ: Mapping[str, str]) -> bytes:
    where = f"tenants.{tenant.name}"
    if not tenant.name:
        raise ConfigError("tenants: one has no name: give it one")
    if bool(tenant.token_env) == bool(tenant.token_sha256):
        raise ConfigError(f"{where}: neither or both of token_env and token_sha256: set one of them")
    if tenant.token_sha256:
        return _hex(where, tenant.token_sha256)
    token = environ.get(tenant.token_env, "")
    if len(token) < LEAST:
        raise ConfigError(
            f"{where}.token_env: {tenant.token_env} is not set, or shorter than {LEAST} characters: "
            "export a long random token there"
        )
    return _digest(token)


def _hex(where: str, text: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != 32:
        raise ConfigError(
            f"{where}.token_sha256: not 64 hex digits: `printf %s TOKEN | sha256sum` makes them"
        )
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
