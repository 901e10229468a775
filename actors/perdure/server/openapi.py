"""`/openapi.json`: OpenAPI 3.1, made from the route table and the records that handlers use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.server import frames
from perdure.server.bodies import EXAMPLES
from perdure.server.problems import Refusal

if TYPE_CHECKING:
    from perdure.server.routes import Endpoint

Json = dict[str, Any]
REFS = "#/components/schemas/{name}"
STREAM = "text/event-stream"
ERRORS = {
    "400": "The request makes no sense.",
    "401": "No token, or one that is not known.",
    "403": "For operators, or from an address or a page that may not call.",
    "404": "No such session, or another tenant's.",
    "409": "The session's state does not allow it.",
    "413": "Too large.",
    "415": "Of a type that is not taken.",
    "422": "JSON, and not as it should be.",
    "429": "Try again after `Retry-After` seconds; nothing was accepted.",
    "503": "The host is stopping or overloaded; nothing was accepted.",
    "507": "The disk is full or broken; nothing was accepted.",
}
HEAD = """Hosts LLM agent sessions that last for weeks. A token is a tenant: it sees the sessions of its
agents
(`agent:AGENT:…`) and no others. Percent-encode session keys in paths.

Event streams: `entry` tells of a message that is in the session's file, each exactly once, whatever
happens to the connection or the host, if the client sends the last id back. `text`, `thinking`, `tool.…` and
`turn.…` tell what happens now; after a `resync` those of the gap are gone."""


def document(endpoints: Iterable[Endpoint], version: str) -> Json:
    """The whole description."""
    listed = list(endpoints)
    records = [*_records(listed), Refusal, *frames.names().values()]
    _, schemas = msgspec.json.schema_components(list(dict.fromkeys(records)), ref_template=REFS)
    paths: dict[str, Json] = {}
    for endpoint in listed:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "perdure", "version": version, "description": HEAD},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {code: _error(told) for code, told in ERRORS.items()},
        },
    }


def _records(endpoints: list[Endpoint]) -> Iterator[type[Any]]:
    for endpoint in endpoints:
        told = (endpoint.takes, *(kind for _, kind in endpoint.gives))
        yield from (kind for kind in told if _is_record(kind))


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _operation(endpoint: Endpoint) -> Json:
    anyone = endpoint.who == "anyone"
    found: Json = {
        "operationId": f"{endpoint.method.lower()}{re.sub(r'[^a-z0-9]+', '_', endpoint.path)}".rstrip("_"),
        "summary": endpoint.told,
        "security": [] if anyone else [{"token": []}],
        "parameters": list(_parameters(endpoint)),
        "responses": {str(status): _answer(kind) for status, kind in endpoint.gives}
        | ({} if anyone else {code: {"$ref": f"#/components/responses/{code}"} for code in ERRORS}),
    }
    if endpoint.who == "operator":
        found["description"] = "For operators."
    if endpoint.takes is not None:
        found["requestBody"] = {"content": {"application/json": _body(endpoint.takes)}}
    return found


def _parameters(endpoint: Endpoint) -> Iterator[Json]:
    if "{key}" in endpoint.path:
        yield {
            "name": "key",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1, "maxLength": 512},
            "example": "agent:main:cli:dm:local",
        }
    for name in re.findall(r"{(id|number)}", endpoint.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for query in endpoint.query:
        yield {
            "name": query.name,
            "in": "query",
            "description": query.told,
            "schema": {"type": query.type},
        }
    if endpoint.header is not None:
        name, told = endpoint.header
        yield {"name": name, "in": "header", "description": told, "schema": {"type": "string"}}


def _answer(kind: Any) -> Json:
    if kind == STREAM:
        events = {name: _ref(record) for name, record in frames.names().items()}
        shape = {"type": "string", "description": "Server-sent events; `data` is JSON, by event type."}
        return {"description": "Events.", "content": {STREAM: {"schema": shape}}, "x-events": events}
    if isinstance(kind, str):
        return {"description": "As it stands.", "content": {kind: {"schema": {"type": "string"}}}}
    return {"description": (kind.__doc__ or "").split("\n")[0], "content": {"application/json": _body(kind)}}


def _body(kind: Any) -> Json:
    if not _is_record(kind):
        return {"schema": {"type": "object"}}
    found: Json = {"schema": _ref(kind)}
    if kind in EXAMPLES:
        found["example"] = msgspec.json.decode(msgspec.json.encode(EXAMPLES[kind]))
    return found


def _ref(kind: type[Any]) -> Json:
    return {"$ref": REFS.format(name=kind.__name__)}


def _error(told: str) -> Json:
    return {"description": told, "content": {"application/json": {"schema": _ref(Refusal)}}}
