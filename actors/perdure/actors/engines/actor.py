"""One engine of a host: its instance, its sessions' attachments, how it fares, and its restarts.

Sessions that sleep hold nothing here. What fails harms the session it was called for; what fails several
sessions in a row, or says that its store is damaged, is disposed and made anew; what fails then rests for
all, and `legacy` answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.actors.calling import PluginFailed, call
from perdure.actors.engines import health
from perdure.actors.engines.health import WELL, Condition
from perdure.actors.services import Services
from perdure.context.text.secrets import redact
from perdure.contracts import ContextEngine, EngineContext, EngineInfo, Tool
from perdure.errors import DamagedStore
from perdure.events import Notice
from perdure.records import Items

DISPOSE = 10.0  # seconds


class Attachment:
    """What an engine and one awake session have agreed: `cursor`, the last entry that was delivered."""

    __slots__ = ("behind", "bootstrapped", "cursor", "fresh", "known", "session_id")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.bootstrapped = False
        self.cursor = ""
        self.behind = False  # the last delivery did not come to its end
        self.fresh: Items = ()  # delivered since the last report of a turn
        self.known: set[str] = set()  # entries that are not in view, and were looked up as this session's


class EngineActor:
    """`make` is asked for an instance at the start and for each restart.

    `passes_through`: it is the core's own, and nothing is called.
    """

    def __init__(
        self,
        id: str,
        make: Callable[[], ContextEngine],
        services: Callable[[], Services],
        *,
        passes_through: bool = False,
    ) -> None:
        self.id, self._make, self._services, self.passes_through = id, make, services, passes_through
        self.engine = make()
        self.info: EngineInfo = self.engine.info
        self.calls = self.failures = 0
        self.restarts: tuple[float, ...] = ()
        self.whole = WELL  # how it fares as a whole
        self._conditions: dict[tuple[str, str], Condition] = {}  # of a session and a method, while it fails
        self._failing: set[tuple[str, str]] = set()  # since the method's last success
        self._attached: dict[str, Attachment] = {}
        self._closing = 0  # instances that are not disposed yet

    def has(self, method: str) -> bool:
        """Whether the engine has an optional method."""
        return callable(getattr(self.engine, method, None))

    def tools(self) -> tuple[Tool, ...]:
        """What its sessions are offered beside the host's tools."""
        return tuple(self.engine.tools()) if self.has("tools") else ()  # type: ignore[attr-defined]

    def tool(self, name: str) -> Tool | None:
        """One of its tools."""
        return next((tool for tool in self.tools() if tool.spec.name == name), None)

    # --- sessions -----------------------------------------------------------------------------------

    def attachment(self, key: str, session_id: str) -> Attachment:
        """The session's, begun anew where its file is another one now (`/new`)."""
        found = self._attached.get(key)
        if found is None or found.session_id != session_id:
            found = self._attached[key] = Attachment(session_id)
        return found

    def left(self, key: str) -> None:
        """The session sleeps or closes."""
        self._attached.pop(key, None)

    def resting(self, key: str) -> bool:
        """Whether it is not asked for this session now. While the instance before it closes its files, nobody
        opens them anew.
        """
        now = self._services().clock.now()
        return bool(self._closing) or self.whole.resting(now) or key in self._quarantined(now)

    def _quarantined(self, now: float) -> set[str]:
        return {key for (key, _), each in self._conditions.items() if each.resting(now)}

    # --- calls --------------------------------------------------------------------------------------

    async def call(
        self,
        context: EngineContext,
        method: str,
        *arguments: Any,
        returns: type | tuple[type, ...] | None = None,
        seconds: float | None = None,
        **named: Any,
    ) -> Any:
        """One call, counted. Raises `PluginFailed`, which was told already."""
        services, key, instance = self._services(), context.session_key, self.engine
        self.calls += 1
        try:
            answer = await call(
                services,
                key,
                self.id,
                getattr(instance, method),
                context,
                *arguments,
                seconds=services.timing.engine if seconds is None else seconds,
                returns=returns,
                **named,
            )
        except PluginFailed as error:
            self.failed(key, error, instance)
            raise
        self._worked(key, method)
        return answer

    def _worked(self, key: str, method: str) -> None:
        if self._failing or self._conditions:
            self._conditions.pop((key, method), None)
            self._failing = {each for each in self._failing if each[1] != method}
        self.whole = WELL

    def failed(self, key: str, error: PluginFailed, instance: ContextEngine | None = None) -> None:
        """Tell it at once, and decide what becomes of the engine. `instance`: the one that failed, should
        another have taken its place meanwhile.
        """
        services, now = self._services(), self._services().clock.now()
        self.failures += 1
        was = self._conditions.get((key, error.method), WELL)
        condition = self._conditions[key, error.method] = health.failed(was, now, hung=error.hung)
        self._failing.add((key, error.method))
        services.log.error(
            "engine.failed",
            session=key,
            engine=self.id,
            method=error.method,
            error=error.why,
            trace=error.trace,
        )
        instead = "" if services.engines.strict else ", legacy answers"
        told = f"{self.id} failed{instead}: {error.method}: {redact(error.why)}"
        if condition.resting(now):
            rest = condition.rests - now
            services.log.error("engine.quarantined", session=key, engine=self.id, seconds=rest)
            told += f"; it is asked again in {rest:.0f} s"
        services.events.publish(Notice(key, "engine", told))
        many = len({key for key, _ in self._failing}) >= health.MANY
        damaged = isinstance(error.__cause__, DamagedStore)
        if (damaged or many) and instance in (None, self.engine):
            self._begin_anew(now)

    # --- its own life -------------------------------------------------------------------------------

    def _begin_anew(self, now: float) -> None:
        services = self._services()
        self._failing.clear()
        if not health.restarts_left(self.restarts, now):
            self.whole = health.rested(self.whole, now)
            services.log.error("engine.quarantined", engine=self.id, seconds=self.whole.rests - now)
            return
        self.restarts = (*self.restarts[-9:], now)
        old = self.engine
        try:
            self.engine = self._make()
        except Exception as error:  # the old one goes on: there is no other
            services.log.error("engine.not_restarted", engine=self.id, error=repr(error))
            return
        self._closing += 1
        services.kernel.start(f"dispose {self.id}", self._replaced, old)
        self._attached.clear()
        self._conditions.clear()
        services.log.warning("engine.restarted", engine=self.id, restarts=len(self.restarts))

    async def _replaced(self, old: ContextEngine) -> None:
        try:
            await self.dispose(old)
        finally:
            self._closing -= 1

    async def dispose(self, engine: ContextEngine | None = None) -> None:
        """Let it close what it has, within ten seconds."""
        services, gone = self._services(), engine or self.engine
        if not callable(getattr(gone, "dispose", None)):
            return
        try:
            await call(services, "", self.id, gone.dispose, seconds=DISPOSE)  # type: ignore[attr-defined]
        except PluginFailed as error:
            services.log.error("engine.not_disposed", engine=self.id, error=error.why, trace=error.trace)

    def line(self) -> dict[str, Any]:
        """For `status`."""
        now = self._services().clock.now()
        return {
            "id": self.id,
            "name": self.info.name,
            "version": self.info.version,
            "state": "quarantined" if self.whole.resting(now) else "failing" if self._conditions else "well",
            "sessions": len(self._attached),
            "behind": sorted(key for key, each in self._attached.items() if each.behind),
            "calls": self.calls,
            "failures": self.failures,
            "restarts": len(self.restarts),
            "quarantined": sorted(self._quarantined(now)),
        }
