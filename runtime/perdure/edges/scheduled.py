"""What is wrong with heartbeats and schedules of a configuration, beyond the type of each setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.edges import schedule as times
from perdure.edges.settings import Settings
from perdure.edges.settings_timers import Heartbeat, ScheduleSettings
from perdure.errors import ConfigError


def of_time(settings: Settings) -> Iterator[tuple[str, str]]:
    """Keys, and what is wrong with each."""
    yield from _heartbeat("heartbeat", settings.heartbeat)
    for agent in settings.agents:
        yield from _heartbeat(
            f"agents.{agent.name}.heartbeat",
            agent.heartbeat.over(settings.heartbeat),
            own=agent.heartbeat.every,
        )
    for schedule in settings.schedules:
        yield from _schedule(f"schedules.{schedule.name}", schedule)


def _wrong(key: str, look: Callable[[], object]) -> Iterator[tuple[str, str]]:
    try:
        look()
    except ConfigError as error:
        yield key, str(error)


def _heartbeat(at: str, told: Heartbeat, own: str | None = None) -> Iterator[tuple[str, str]]:
    if not told.every or told.every == "off":
        return
    yield from _wrong(f"{at}.every", lambda: times.schedule(every=told.every))
    yield from _wrong(f"{at}.active_hours", lambda: times.hours(told.active_hours, told.timezone))
    if own is None and not told.sessions:
        yield f"{at}.sessions", "missing: name the sessions that are to have heartbeats"


def _schedule(at: str, told: ScheduleSettings) -> Iterator[tuple[str, str]]:
    for name in ("session", "message"):
        if not getattr(told, name).strip():
            yield f"{at}.{name}", "missing: a schedule needs a session and a message"
    if told.model and not told.isolated:
        yield f"{at}.model", "only with isolated = true: a session of its own may have its own model"
    yield from _wrong(
        at,
        lambda: times.schedule(every=told.every, cron=told.cron, at=told.at, timezone=told.timezone),
    )
