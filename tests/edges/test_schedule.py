"""When timers come: by the clock on the wall, whatever is done to it. Source of the rules: cron of Debian."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.edges import schedule as times
from perdure.edges.schedule import DAY, MINUTE, Schedule, Timer, came, due_of, hours, next_beat, next_due
from perdure.errors import ConfigError

NOW = 1_767_600_000_000
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia")


def after(cron: str, zone: str, start: str, count: int) -> list[str]:
    now, found = int(datetime.fromisoformat(start).timestamp() * 1000), []
    for _ in range(count):
        due = next_due(Schedule(cron=cron, zone=zone), now)
        assert due is not None
        now = due
        found.append(datetime.fromtimestamp(now / 1000, times.zone(zone)).isoformat())
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["29T03:00:00+02:00", "30T02:30:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", ["25T02:30:00+02:00", "26T02:30:00+01:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T06:10Z", ["02T01:30:00-05:00"]),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00Z", ["08T03:00:00-04:00", "09T02:30:00-04:00"]),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00Z",
            ["04T02:30:00+11:00", "05T02:15:00+11:00"],
        ),
        ("15 2 * * *", "Pacific/Apia", "2011-12-29T15:00Z", ["31T00:00:00+14:00", "31T02:15:00+14:00"]),
    ],
)
def test_a_time_that_is_skipped_runs_once_right_after_and_one_that_comes_twice_runs_once(
    cron: str, zone: str, start: str, expected: list[str]
) -> None:
    assert [row[8:] for row in after(cron, zone, start, len(expected))] == expected


SCHEDULES = st.one_of(
    st.builds(Schedule, every=st.integers(MINUTE, 90 * DAY), anchor=st.integers(0, NOW)),
    st.builds(
        Schedule,
        cron=st.builds(
            "{} {} {} * {}".format,
            st.sampled_from(["0", "*/7", "30", "5,55"]),
            st.sampled_from(["*", "2", "1-3", "*/6"]),
            st.sampled_from(["*", "1", "28"]),
            st.sampled_from(["*", "1-5", "SUN"]),
        ),
        zone=st.sampled_from(ZONES),
    ),
)


@given(SCHEDULES, st.integers(NOW - 400 * DAY, NOW + 400 * DAY), st.integers(-2 * DAY, 2 * DAY))
def test_the_next_instant_is_always_in_the_future_and_never_one_that_was_acted_on(
    schedule: Schedule, now: int, back: int
) -> None:
    due = next_due(schedule, now)
    assert due is not None
    assert due > now
    again = next_due(schedule, due + back, due)  # the clock was moved after it had come
    assert again is not None
    assert again > due + back
    assert again > due or back < -DAY


@given(SCHEDULES, st.lists(st.tuples(st.integers(0, 3 * DAY), st.integers(-DAY // 2, 2 * DAY)), max_size=12))
def test_each_instant_is_acted_on_once_and_a_long_stop_costs_one(
    schedule: Schedule, moves: list[tuple[int, int]]
) -> None:
    """Random waits and jumps of the clock: ring whenever it is due, as a session does."""
    now, first = NOW, next_due(schedule, NOW)
    assert first is not None
    timer, seen = Timer("t", schedule, first), set()
    for wait, jump in moves:
        now += wait
        due = due_of(timer, now)
        assert due is not None
        if due <= now:
            assert due not in seen
            seen.add(due)
            timer = came(timer, due, now)
            following = due_of(timer, now)
            assert following is not None
            assert following > now  # one catch-up, however many were missed
        now += jump


@given(
    st.text(max_size=20),
    st.integers(MINUTE, DAY),
    st.one_of(st.none(), st.tuples(st.integers(0, 1439), st.integers(1, 1439), st.sampled_from(ZONES))),
    st.integers(NOW, NOW + 400 * DAY),
)
def test_a_heartbeat_is_ahead_and_within_its_hours(
    key: str, every: int, window: tuple[int, int, str] | None, now: int
) -> None:
    active = window and times.Hours(window[0], (window[0] + window[1]) % 1440, window[2])
    beat = next_beat(key, every, active or None, now)
    assert beat > now
    if active:
        assert beat - now < 3 * DAY
        local = datetime.fromtimestamp(beat / 1000, times.zone(active.zone))
        assert (
            local.hour * 60 + local.minute - active.start
        ) % 1440 <= active.minutes + 60  # a gap in the day


def test_heartbeats_of_many_sessions_are_spread_over_the_interval() -> None:
    beats = [next_beat(f"agent:main:cli:dm:{n}", 30 * MINUTE, None, NOW) - NOW for n in range(3000)]
    counts = [sum(1 for beat in beats if beat // MINUTE == minute) for minute in range(30)]
    assert max(counts) < 2 * 100


@pytest.mark.parametrize(
    ("text", "ms"), [("30m", 30 * MINUTE), ("1h30m", 90 * MINUTE), ("2 d", 2 * DAY), ("90s", 90_000)]
)
def test_durations_are_written_as_people_do(text: str, ms: int) -> None:
    assert times.duration(text) == ms


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"every": "soon"}, {"every": "10s"}, {"cron": "* * * *"}, {"cron": "* * * * * *"},
        {"cron": "0 0 30 2 *"}, {"cron": "0 0 * * *", "timezone": "Nowhere/Land"}, {"at": "tomorrow"},
        {"every": "1h", "cron": "0 0 * * *"},
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_refused_in_one_line(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        times.schedule(**wrong)
    assert "\n" not in str(refused.value)


def test_a_machine_without_time_zones_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(times, "_zone", missing)
    with pytest.raises(ConfigError, match="install the package tzdata"):
        times.zone("Europe/Berlin")
    assert times.zone("UTC") is UTC


@pytest.mark.parametrize("wrong", ["8-22", "08:00", "25:00-26:00", "08:00-08:00", "08:61-09:00"])
def test_wrong_hours_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="hours of a day"):
        hours(wrong)
