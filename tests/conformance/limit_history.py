"""History limits: the last turns of a channel, and which limit a session key has."""

from __future__ import annotations

from typing import Any

from conformance.messages import messages, source, view
from conformance.rules import Case, Departure, Function, fails, has_error, holds, is_number, number, same
from perdure.context.safety.limit import history_limit, limit
from perdure.records import Items, Summary, User


def _given(case: Case) -> Any:
    given = case["params"].get("limit")
    return number(given) if isinstance(given, dict) and is_number(given) else given


def _last_turns(items: Items, turns: int | None) -> list[Any]:
    """The right answer in the plainest words, a leading summary kept."""
    users = [at for at, item in enumerate(items) if isinstance(item.message, User)]
    if not turns or turns < 0 or len(users) <= turns:
        return messages(items)
    head = next((at for at, item in enumerate(items) if not isinstance(item.message, Summary)), 0)
    start = users[-turns]
    return messages(items[:head] + items[start:]) if head < start else messages(items)


def _limited(case: Case) -> None:
    done = limit(source(case), _given(case))
    same(messages(done.items), messages(view(case["expected"]["out"])))


def _rest_limited(case: Case) -> None:
    items = source(case)
    same(messages(limit(items, _given(case)).items), _last_turns(items, _given(case)))


def _no_whole_number(case: Case) -> bool:
    given = _given(case)
    return given is not None and type(given) is not int


def _unlimited(case: Case) -> None:
    given, items = _given(case), source(case)
    found = history_limit("telegram:dm:1", {"telegram": {"dmHistoryLimit": given}})
    same(found, None, "limit")
    holds(limit(items, found).items is items, "without a limit all is kept")


def _leading_summary(case: Case) -> bool:
    items = source(case)
    return bool(items) and isinstance(items[0].message, Summary)


def _summary_kept(case: Case) -> None:
    _rest_limited(case)
    done = limit(source(case), _given(case))
    same(done.items[0], source(case)[0], "the leading summary")


def _channels(case: Case) -> Any:
    config = case["input"].get("config")
    return config.get("channels") if isinstance(config, dict) else None


def _key_limit(case: Case) -> None:
    key = case["input"].get("sessionKey")
    if has_error(case):
        fails(lambda: history_limit(key, _channels(case)))
        return
    same(history_limit(key or "", _channels(case)), case["expected"]["limit"], "limit")


def _configured_oddly(case: Case) -> bool:
    wanted = None if has_error(case) else case["expected"]["limit"]
    return wanted is not None and type(wanted) is not int


def _none(case: Case) -> None:
    same(history_limit(case["input"]["sessionKey"], _channels(case)), None, "limit")


_BY_KEY = Function(
    _key_limit,
    (
        Departure(
            "a limit is a whole number",
            "the configuration holds no other; the reference hands through whatever stands there",
            _configured_oddly,
            _none,
        ),
    ),
)
FUNCTIONS = {
    "limitHistoryTurns": Function(
        _limited,
        (
            Departure(
                "a limit is a whole number",
                "the reference reads 0.5 as nothing at all and true as 1; ours has no such limits",
                _no_whole_number,
                _unlimited,
            ),
            Departure(
                "a leading summary is never dropped",
                "it stands for all that was covered; the reference loses it with the old turns",
                _leading_summary,
                _summary_kept,
            ),
            Departure(
                "what is no message gets into no view",
                "the reference throws; ours limits the messages that are there",
                has_error,
                _rest_limited,
            ),
        ),
    ),
    "getHistoryLimitFromSessionKey": _BY_KEY,
    "getDmHistoryLimitFromSessionKey": _BY_KEY,
}
