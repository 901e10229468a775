"""What waits, goes out or was put aside: schedules and the outbox of a session, and what operators do."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.responses import Response

from perdure.errors import ConfigError
from perdure.server.bodies import Moved, Nothing, Out, Plans, Wanted, Wards
from perdure.server.calls import Call
from perdure.server.problems import Refused, json


async def outbox(call: Call) -> Response:
    """Where the answers of a session stand that go out."""
    key = await call.known()
    return json(Out(key, await call.host.outbox(key)))


async def schedules(call: Call) -> Response:
    """What is scheduled for a session."""
    return await _plans(call, await call.known())


async def schedule(call: Call) -> Response:
    """Schedule a message; a new key begins a session."""
    key, asked = call.key(), await call.body(Wanted)
    made = await call.host.schedule(
        key,
        asked.message,
        every=asked.every,
        cron=asked.cron,
        at=asked.at,
        timezone=asked.timezone,
        model=asked.model,
        isolated=asked.isolated,
        catch_up=asked.catch_up,
        id=asked.id,
    )
    return json(Plans(made.key, (made.line(),)), 201)


async def unschedule(call: Call) -> Response:
    """Take a schedule away; what is left."""
    key, id = await call.known(), unquote(call.request.path_params["id"])
    if id not in {each.id for each in await call.host.schedules(key)}:
        raise Refused(404, "not_found", f"schedule {id[:40]!r}: there is none of that id")
    await call.host.unschedule(key, id)
    return await _plans(call, key)


async def _plans(call: Call, key: str) -> Response:
    return json(Plans(key, tuple(each.line() for each in await call.host.schedules(key))))


# --- for operators --------------------------------------------------------------------------------


async def parked(call: Call) -> Response:
    """What was put aside."""
    return json(Wards(tuple(call.host.parked()), tuple(call.host.parking.quarantined())))


async def retry(call: Call) -> Response:
    """Try a parked message again."""
    await call.body(Nothing)
    return _moved(call.host.retry(_number(call)))


async def drop(call: Call) -> Response:
    """Forget a parked message."""
    await call.body(Nothing)
    return _moved(call.host.drop(_number(call)))


async def reopen(call: Call) -> Response:
    """Try a session again that could not be opened."""
    await call.body(Nothing)
    return _moved(call.host.retry(call.key()))


async def reload(call: Call) -> Response:
    """Read the configuration again."""
    await call.body(Nothing)
    try:
        return json(await call.host.reload())
    except ConfigError as error:
        raise Refused(409, "config", f"not reloaded, nothing has changed: {error}") from None


def _number(call: Call) -> int:
    text = call.request.path_params["number"]
    if not (text.isdecimal() and len(text) < 12):
        raise Refused(400, "invalid", f"{text[:40]}: give the number of a parked message")
    return int(text)


def _moved(done: bool) -> Response:
    if not done:
        raise Refused(404, "not_found", "nothing such is parked or quarantined")
    return json(Moved(True))
