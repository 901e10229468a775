"""One call of a plugin: a job behind the bulkhead, with a deadline, its blocking code in a thread.

At the deadline the caller goes on at once; what doesn't obey its cancellation is left behind and reported.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from perdure.kernel.errors import DeadlineExceeded
from perdure.kernel.jobs import Job
from perdure.kernel.outcome import Failed, Outcome, Returned, describe, trace_of
from perdure.kernel.waiter import Waiter

if TYPE_CHECKING:
    from perdure.actors.services import Services


class PluginFailed(Exception):
    """A plugin raised, hung or answered what its contract doesn't say. `trace` is for the log."""

    def __init__(self, plugin: str, method: str, why: str, trace: str = "", *, hung: bool = False) -> None:
        super().__init__(f"{plugin}.{method}: {why}")
        self.plugin, self.method, self.why, self.trace, self.hung = plugin, method, why, trace, hung


async def call(
    services: Services,
    key: str,
    plugin: str,
    method: Callable[..., Any],
    *arguments: Any,
    seconds: float,
    returns: type | tuple[type, ...] | None = None,
    over: Callable[[], None] | None = None,
    **named: Any,
) -> Any:
    """What `method(*arguments, **named)` returns within `seconds`. Raises `PluginFailed`, or `Closed`.

    `returns`: what it must be an instance of. `over`: called when it has ended, its thread too, which may be
    long after the deadline. `async def` runs on the loop, `def` in a thread.
    """
    clock, name = services.clock, getattr(method, "__name__", "call")
    ended: Waiter[Outcome] = clock.waiter(f"{key}: {plugin}.{name}")
    handed = False  # to a thread, which tells itself when it is over

    async def run() -> Any:
        nonlocal handed
        try:
            if iscoroutinefunction(method):
                return await method(*arguments, **named)
            handed = not services.io.virtual
            found = await _in_thread(services, lambda: method(*arguments, **named), over)
            return await found if isawaitable(found) else found
        except SystemExit as error:  # the program's end is not a plugin's to decide
            raise RuntimeError(f"it asked for the program's end: {error!r}") from error

    def tell(_job: Job, outcome: Outcome) -> None:
        if over is not None and not handed:
            over()
        ended.set(outcome)

    try:
        job = services.kernel.start(f"{plugin}.{name}:{key}", run, on_end=tell)
    except BaseException:
        if over is not None:
            over()
        raise
    try:
        outcome = await clock.wait(ended, seconds)
    except DeadlineExceeded:  # it may take its time to obey: nobody waits for that
        job.cancel()
        raise PluginFailed(plugin, name, f"no answer within {seconds:g} s", hung=True) from None
    except BaseException:  # we are stopped ourselves: what comes next must not meet it
        with clock.shield():
            job.cancel()
            await clock.wait(ended)  # or until the kernel gives it up
        raise
    if not isinstance(outcome, Returned):
        cause = outcome.error if isinstance(outcome, Failed) else None
        raise PluginFailed(plugin, name, describe(outcome), trace_of(outcome)) from cause
    if returns is not None and not isinstance(outcome.value, returns):
        wanted = getattr(returns, "__name__", str(returns))
        raise PluginFailed(plugin, name, f"answered {type(outcome.value).__name__}, not {wanted}")
    return outcome.value


async def _in_thread(services: Services, fn: Callable[[], Any], over: Callable[[], None] | None) -> Any:
    if services.io.virtual:
        return fn()
    return await services.daemons.run(fn, over)
