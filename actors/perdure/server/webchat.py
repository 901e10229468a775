"""The web chat: one page without a build step, that speaks to this API and to nothing else.

Its policy lets it load nothing, run only its own script and connect only here; a text of a model or a user
that found a way into the page as HTML could still do nothing. The page holds no secret: whoever opens it
is asked for a token.
"""

from __future__ import annotations

import secrets
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_NONCE = "@NONCE@"


@cache
def page() -> str:
    """The page as it is shipped, with a mark where a request's nonce goes."""
    return (files("perdure.server") / "page" / "chat.html").read_text(encoding="utf-8")


def headers(nonce: str) -> dict[str, str]:
    """What goes with the page."""
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }


async def webchat(_request: Request) -> Response:
    """`GET /`."""
    nonce = secrets.token_urlsafe(18)
    html = page().replace(_NONCE, nonce)
    return Response(html, media_type="text/html; charset=utf-8", headers=headers(nonce))


def route(path: str = "/") -> Route:
    """The route that a server mounts. It asks for no token."""
    return Route(path, webchat, methods=["GET"], name="webchat")
