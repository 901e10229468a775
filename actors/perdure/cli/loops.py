"""The event loop a command was asked to run on."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from perdure.errors import UsageError
from perdure.kernel.run import Backend, backend_options


def loop_of(backend: Backend) -> tuple[str, dict[str, Any]]:
    """What `anyio.run` wants for it. Raises `UsageError` where it isn't installed."""
    if backend == "uvloop" and find_spec("uvloop") is None:
        raise UsageError("uvloop is not installed: pip install 'perdure[uvloop]', or choose another loop")
    return backend_options(backend)
