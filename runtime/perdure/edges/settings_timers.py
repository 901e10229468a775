"""What can be configured of time: heartbeats, schedules, how fast what is due goes out."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from perdure.edges.settings_hosting import Count, Positive, Seconds
from perdure.records import Record

Context: TypeAlias = Literal["light", "full"]


class TimerSettings(Record):
    """`[timers]`: `per_second` sessions are rung at most; `per_session` timers stand in one file."""

    per_second: Annotated[int, Meta(ge=1, le=10_000)] = 50
    per_session: Positive = 32


class Heartbeat(Record):
    """What a heartbeat is, for all or for one agent. `every` empty: there is none.

    `context` light: a small prompt, HEARTBEAT.md and the newest `history` messages; full: as a turn has it.
    An answer of HEARTBEAT_OK with at most `ack_chars` beside it says nothing.
    """

    prompt: str = ""
    every: str = ""
    sessions: tuple[str, ...] = ()
    active_hours: str = ""
    timezone: str = ""
    model: str = ""
    context: Context = "light"
    history: Count = 6
    ack_chars: Count = 300
    timeout_seconds: Seconds = 300.0


class HeartbeatSettings(Heartbeat):
    """`[heartbeat]`: what holds for all; `section`: prompts say what a heartbeat is.

    Pairs that said nothing are left out of requests.
    """

    section: bool = True


class AgentHeartbeat(Record):
    """`[agents.<name>.heartbeat]`: what one agent has of its own; `every = "off"`: none."""

    prompt: str = ""
    every: str = ""
    sessions: tuple[str, ...] = ()
    active_hours: str = ""
    timezone: str = ""
    model: str = ""
    context: Context | None = None

    def over(self, general: Heartbeat) -> Heartbeat:
        """The agent's own, else the general setting."""
        return Heartbeat(
            prompt=self.prompt or general.prompt,
            every=self.every or general.every,
            sessions=self.sessions or general.sessions,
            active_hours=self.active_hours or general.active_hours,
            timezone=self.timezone or general.timezone,
            model=self.model or general.model,
            context=self.context or general.context,
            history=general.history,
            ack_chars=general.ack_chars,
            timeout_seconds=general.timeout_seconds,
        )


class ScheduleSettings(Record):
    """`[schedules.<name>]`: a `message` that the session gets `every` so often, by `cron`, or once, `at`.

    `catch_up`: whether one that was missed is made up for, once. `isolated`: the message goes to a session
    of its own, `agent:<agent>:cron:<name>`, which may have its own `model`.
    """

    name: str
    session: str = ""
    message: str = ""
    every: str = ""
    cron: str = ""
    at: str = ""
    timezone: str = ""
    model: str = ""
    isolated: bool = False
    catch_up: Literal["once", "skip"] = "once"
    enabled: bool = True
