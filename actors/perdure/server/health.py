"""What operators and their machines ask of the process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from starlette.responses import Response

from perdure.server.bodies import Health
from perdure.server.calls import Call
from perdure.server.metrics import text
from perdure.server.problems import json

LEAST_DISK = 32 * 1024 * 1024  # bytes free below which no new message is welcome


async def alive(call: Call) -> Response:
    """The process lives and its loop answers."""
    return json(Health(True))


async def ready(call: Call) -> Response:
    """Whether new messages are welcome: not draining, room on the disk, room in the house."""
    problems = tuple(_problems(call, await call.host.io.run(_free, str(call.host.folder.path))))
    return json(Health(not problems, problems), 503 if problems else 200)


def _problems(call: Call, free: int) -> Iterator[str]:
    if call.serving.draining or call.host.closing:
        yield "draining"
    if free < LEAST_DISK:
        yield "disk"
    yield from call.host.health() if call.host.running and not call.host.closing else ()


def _free(path: str) -> int:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return 0


async def status(call: Call) -> Response:
    """As `perdure status --json`, of the running host."""
    return json(call.host.status(deep=call.flag("deep")))


async def metrics(call: Call) -> Response:
    """In Prometheus' text format."""
    files = await call.host.io.run(call.host.files.count)
    return Response(text(call.serving, files), 200, None, "text/plain; version=0.0.4; charset=utf-8")
