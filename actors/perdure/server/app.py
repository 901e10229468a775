"""The API as one ASGI application."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp

from perdure.host import Host
from perdure.server.auth import Keys
from perdure.server.door import Door
from perdure.server.hub import Hub
from perdure.server.routes import ENDPOINTS, router
from perdure.server.state import Serving


def serving(host: Host, local: str, environ: Mapping[str, str]) -> Serving:
    """What the requests of a host share. `local`: the token of who can read the state folder.

    Raises `ConfigError` for a tenant without a usable token.
    """
    settings, grant = host.settings.server, host.placement.grant(0)
    assert grant is not None
    tenancy = host.services.gates.tenancy  # the host's own: a reload changes it
    return Serving(
        host=host,
        settings=settings,
        keys=Keys(host.settings, environ, local),
        tenancy=tenancy,
        hub=Hub(grant.token, lambda key: tenancy.of(key).name, settings.stream_kib << 10, settings.streams),
    )


def application(shared: Serving) -> ASGIApp:
    """For any ASGI server, on either loop."""
    return Door(router(shared, ENDPOINTS), shared.settings, shared.host.log, shared.answered)
