"""The whole API in one table: what is served, who may ask, and what goes in and out.

The router and `/openapi.json` are both made of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

from starlette.requests import Request
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from perdure.hosting.reloading import Reloaded
from perdure.records import Record
from perdure.server import bodies as b
from perdure.server import changes, health, messages, operating, sessions, webchat
from perdure.server.calls import Call
from perdure.server.openapi import document
from perdure.server.problems import Refused, json
from perdure.server.state import Serving

Handler: TypeAlias = Callable[[Call], Awaitable[ASGIApp]]
Who: TypeAlias = Literal["anyone", "tenant", "operator"]


class Query(Record):
    """A query parameter: its type in JSON Schema, and what it means."""

    name: str
    type: str
    told: str


class Endpoint(Record):
    """One method of one path. `takes` and `gives`: records, or a media type where it is no JSON object.

    `header`: a request header it reads, and what that means.
    """

    method: str
    path: str
    handler: Any
    told: str
    takes: type[Any] | None = None
    gives: tuple[tuple[int, Any], ...] = ((200, None),)
    who: Who = "tenant"
    query: tuple[Query, ...] = ()
    header: tuple[str, str] | None = None


S = "/v1/sessions/{key}"
LIMIT = Query("limit", "integer", "how many at most, 1 to 1000 (100)")
AFTER = Query("after", "string", "`next` of the page before")
RESUME = Query("after", "string", "the id of the last event received, as the header Last-Event-ID")
RESUMES = ("Last-Event-ID", "resume behind this event: short gaps exactly, longer ones by a `resync`")
IDEMPOTENT = ("Idempotency-Key", "the message's id: sent again, it is answered from the record")


def _look(path: str, handler: Handler, told: str, gives: Any, *query: Query, who: Who = "tenant") -> Endpoint:
    return Endpoint("GET", path, handler, told, None, ((200, gives),), who, query)


def _follow(path: str, handler: Handler, told: str) -> Endpoint:
    return Endpoint(
        "GET", path, handler, told, None, ((200, "text/event-stream"),), query=(RESUME,), header=RESUMES
    )


def _change(
    name: str, handler: Handler, told: str, takes: type[Any] = b.Nothing, gives: type[Any] = b.Done
) -> Endpoint:
    status = 201 if gives is b.Forked else 200
    return Endpoint("POST", f"{S}/{name}", handler, told, takes, ((status, gives),))


def _operate(path: str, handler: Handler, told: str, gives: type[Any] = b.Moved) -> Endpoint:
    return Endpoint("POST", path, handler, told, b.Nothing, ((200, gives),), "operator")


async def described(call: Call) -> ASGIApp:
    """The API, as OpenAPI 3.1."""
    return json(document(ENDPOINTS, version("perdure")))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        f"{S}/messages",
        messages.post,
        "Send a message; a new key begins a session.",
        b.NewMessage,
        ((202, b.Accepted), (200, b.Answered)),
        query=(Query("wait", "number", "seconds to wait for the reply (200), up to 600; else 202"),),
        header=IDEMPOTENT,
    ),
    _follow(f"{S}/events", messages.follow, "Follow a session."),
    _follow("/v1/events", messages.follow_all, "Follow all your sessions."),
    _look(
        "/v1/sessions",
        sessions.listed,
        "List your sessions by key.",
        b.Page,
        LIMIT,
        AFTER,
        Query("agent", "string", "only this agent's"),
    ),
    _look(S, sessions.shown, "Show one session: state, sizes, cache.", dict),
    _look(
        f"{S}/entries",
        sessions.entries,
        "Read a session's messages.",
        b.Entries,
        LIMIT,
        AFTER,
        Query("scope", "string", "`view` (what the model sees) or `all` of the branch"),
    ),
    _look(
        f"{S}/context",
        sessions.context,
        "Show the request that the next message would make, and what became of every entry.",
        dict,
        Query("model", "string", "for this model (default: the host's)"),
        Query("window", "integer", "for a window of so many tokens"),
        Query("message", "string", "the next message (default: a stand-in)"),
    ),
    _look(f"{S}/export", sessions.export, "Export the session file.", "application/x-ndjson"),
    _change("compact", changes.compact, "Summarise the older part now.", b.Focus),
    _change("undo", changes.undo_compaction, "Take the latest compaction back."),
    _change("truncate", changes.truncate, "Move covered entries into a segment.", b.Truncation),
    _change("abort", changes.abort, "Stop the running turn.", gives=b.Stopped),
    _change("stop", changes.stop, "Stop a session, and with `tree` all below it.", b.Halting, b.Halted),
    _change("switch", changes.switch, "Go on behind another entry.", b.ToEntry),
    _change("label", changes.label, "Name an entry.", b.Labelled),
    _change("rename", changes.rename, "Name a session.", b.Named),
    _change("fork", changes.fork, "Make a session of a session's history.", b.Fork, b.Forked),
    _change("new", changes.begin_anew, "Begin anew; the old file is kept aside.", gives=b.Told),
    _change("model", changes.model, "Choose the model.", b.ModelRef, b.Told),
    _change("command", changes.command, "Run a slash command.", b.Line, b.Told),
    _look(f"{S}/approvals", changes.waiting, "List tool calls that wait for a person.", b.Waiting),
    _change("approvals", changes.approve, "Answer a tool call that waits.", b.Verdict, b.Waiting),
    Endpoint(
        "DELETE",
        S,
        changes.delete,
        "Delete a session for good, its subagents first.",
        None,
        ((200, b.Deleted),),
    ),
    _look(f"{S}/outbox", operating.outbox, "List a session's answers on their way out.", b.Out),
    _look(f"{S}/schedules", operating.schedules, "List what is scheduled.", b.Plans),
    Endpoint(
        "POST", f"{S}/schedules", operating.schedule, "Schedule a message.", b.Wanted, ((201, b.Plans),)
    ),
    Endpoint(
        "DELETE",
        f"{S}/schedules/{{id}}",
        operating.unschedule,
        "Take a schedule away.",
        None,
        ((200, b.Plans),),
    ),
    _look(
        "/v1/parked",
        operating.parked,
        "List parked messages and quarantined sessions.",
        b.Wards,
        who="operator",
    ),
    _operate("/v1/parked/{number}/retry", operating.retry, "Try a parked message again."),
    _operate("/v1/parked/{number}/drop", operating.drop, "Forget a parked message for good."),
    _operate("/v1/quarantined/{key}/retry", operating.reopen, "Try to open a session again."),
    _operate("/v1/reload", operating.reload, "Read the configuration again.", Reloaded),
    _look(
        "/v1/status",
        health.status,
        "Figures of the host.",
        dict,
        Query("deep", "boolean", "a line for every awake session"),
        who="operator",
    ),
    _look("/healthz", health.alive, "The process lives.", b.Health, who="anyone"),
    Endpoint(
        "GET",
        "/readyz",
        health.ready,
        "New messages are welcome.",
        None,
        ((200, b.Health), (503, b.Health)),
        "anyone",
    ),
    _look("/openapi.json", described, "This description.", dict, who="anyone"),
    _look("/metrics", health.metrics, "Metrics for Prometheus.", "text/plain", who="operator"),
)


def router(serving: Serving, endpoints: tuple[Endpoint, ...]) -> Router:
    """The routes; what none of them is, is refused as JSON by the door."""
    routes = [Route(e.path, _endpoint(serving, e), methods=[e.method]) for e in endpoints]
    return Router([webchat.route(), *routes], redirect_slashes=False)


def _endpoint(serving: Serving, endpoint: Endpoint) -> Callable[[Request], Awaitable[Any]]:
    async def run(request: Request) -> ASGIApp:
        tenant = None
        if endpoint.who != "anyone":
            tenant = serving.keys.tenant(request.headers.get("authorization"))
            if endpoint.who == "operator" and not tenant.operator:
                raise Refused(403, "forbidden", "this is for operators: see [tenants] operator")
        found: ASGIApp = await endpoint.handler(Call(serving, request, tenant))
        return found

    return run
