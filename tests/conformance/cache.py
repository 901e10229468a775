"""Prompt caching: capability ids, sections, the boundary, and what is observed from call to call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from conformance.rules import Case, Departure, Function, fails, has_error, holds, is_number, same
from helpers_messages import SONNET
from perdure.context.cache.contract import Break, Change, Observation, Snapshot, snapshot
from perdure.context.prompt import boundary

# --- texts ----------------------------------------------------------------------------------------


def _ids(case: Case) -> None:
    given = case["input"]["capabilities"]
    if has_error(case):
        fails(lambda: boundary.capability_ids(given))
        return
    same(list(boundary.capability_ids(given)), case["expected"])


def _beyond_latin(case: Case) -> bool:
    given = case["input"]["capabilities"]
    return not has_error(case) and any(
        ord(char) > 0x24F or 0x80 <= ord(char) < 0xC0 for each in given for char in each
    )


def _in_one_order(case: Case) -> None:
    given = case["input"]["capabilities"]
    ours = boundary.capability_ids(given)
    same(sorted(ours), sorted(case["expected"]), "ids")
    same(ours, boundary.capability_ids(reversed(given)), "order of the same ids given otherwise")


def _section(case: Case) -> None:
    text = case["input"]["text"]
    if has_error(case):
        fails(lambda: boundary.normalise(text))
        return
    same(boundary.normalise(text), case["expected"])


def _split(case: Case) -> None:
    if has_error(case):
        fails(lambda: boundary.split(case["input"]["text"]))
        return
    wanted = case["expected"]
    parts = None if "none" in wanted else (wanted["stablePrefix"], wanted["dynamicSuffix"])
    same(boundary.split(case["input"]["text"]), parts)


def _strip(case: Case) -> None:
    if has_error(case):
        fails(lambda: boundary.strip(case["input"]["text"]))
        return
    same(boundary.strip(case["input"]["text"]), case["expected"])


def _insert(case: Case) -> None:
    prompt, addition = case["input"]["systemPrompt"], case["input"].get("systemPromptAddition")
    if has_error(case):
        fails(lambda: boundary.insert_after_boundary(prompt, addition))
        return
    same(boundary.insert_after_boundary(prompt, addition or ""), case["expected"])


def _tool_names(case: Case) -> None:
    names = [tool.get("name") for tool in case["input"]["tools"] if isinstance(tool, dict)]
    same(list(boundary.tool_names(name for name in names if isinstance(name, str))), case["expected"])


# --- observations ---------------------------------------------------------------------------------


def _snapshot(given: dict[str, Any]) -> Snapshot:
    model = replace(
        SONNET, provider=given.get("provider"), id=given.get("modelId"), api=given.get("modelApi")
    )
    return snapshot(
        model,
        given["systemPrompt"],
        [name for name in given["toolNames"] if isinstance(name, str)],
        retention=given.get("cacheRetention"),
        strategy=given.get("streamStrategy"),
        transport=given.get("transport"),
    )


def _read(given: dict[str, Any]) -> Any:
    usage = given.get("usage")
    read = usage.get("cacheRead") if isinstance(usage, dict) else None
    return read if is_number(read) and not isinstance(read, dict) else None


def _key(given: dict[str, Any]) -> str:
    return (given.get("sessionKey") or "").strip() or (given.get("sessionId") or "").strip()


def _steps(case: Case) -> Iterator[tuple[str, Observation, Observation, Break | None, Any]]:
    """Each step that could be made: its session, the observation before and after, a break, the record."""
    known: dict[str, Observation] = {}
    for step, wanted in zip(case["input"]["steps"], case["expected"]["results"], strict=True):
        given = step["params"]
        if wanted is not None and "error" in wanted:
            fails(lambda given=given: _snapshot(given), "snapshot")
            continue
        before = known.get(_key(given), Observation())
        if step["op"] == "begin":
            after, broke = before.begin(_snapshot(given)), None
        else:
            after, broke = before.complete(_read(given))
        known[_key(given)] = after
        yield _key(given), before, after, broke, wanted


def _observed(case: Case) -> None:
    for _, _, after, broke, wanted in _steps(case):
        if broke is not None:
            same(list(broke.changes), _changes(wanted["changes"]), "what changed before the break")
        elif wanted is not None:
            same(list(after.pending), _changes(wanted["changes"]), "what changed")


def _digests_and_breaks(case: Case) -> None:
    for _, before, after, broke, wanted in _steps(case):
        if wanted is not None and "snapshot" in wanted:
            assert after.snapshot is not None
            same(after.snapshot.system_digest, wanted["snapshot"]["systemPromptDigest"], "system digest")
            same(after.snapshot.tool_digest, wanted["snapshot"]["toolDigest"], "tool digest")
            same(list(after.snapshot.tools), wanted["snapshot"]["toolNames"], "tools")
            same(before.read, wanted["previousCacheRead"], "last read")
        else:
            seen = broke and (broke.previous, broke.read)
            same(seen, wanted and (wanted["previousCacheRead"], wanted["cacheRead"]), "break")


def _changes(found: list[dict[str, str]] | None) -> list[Change]:
    return [Change(each["code"], each["detail"]) for each in found or []]


def _two_begins(case: Case) -> bool:
    """A call began while the one before, of the same session, had not completed."""
    ops = [(_key(step["params"]), step["op"]) for step in case["input"]["steps"]]
    by_session = sorted(ops, key=lambda op: op[0])
    return any(a == b and a[1] == "begin" for a, b in itertools.pairwise(by_session))


def _remembered(case: Case) -> None:
    """Codes of all changes since the last completed call, told from what the reference saw step by step."""
    since: dict[str, set[str]] = {}
    for key, _, after, broke, wanted in _steps(case):
        if wanted is not None and "snapshot" in wanted:
            since.setdefault(key, set()).update(change.code for change in _changes(wanted["changes"]))
            same({change.code for change in after.pending}, since[key], "changes remembered")
        else:
            if broke is not None:
                same({change.code for change in broke.changes}, since.get(key, set()), "changes at the break")
            since[key] = set()


def _evicted(case: Case) -> bool:
    """The reference keeps 512 sessions; the one that is asked about began before the last so many."""
    given = case["input"]
    asked = given["then_complete"]["sessionId"].removeprefix(given["sessionIdPattern"].split("<")[0])
    return int(asked) < given["sessions"] - 512


def _many(case: Case) -> Break | None:
    given = case["input"]
    one = Observation().begin(_snapshot(given["each"]["begin"])).complete(_read(given["each"]["complete"]))[0]
    every = {given["sessionIdPattern"].replace("<index>", str(n)): one for n in range(given["sessions"])}
    then = given["then_complete"]
    return every.get(_key(then), Observation()).complete(_read(then))[1]


def _kept(case: Case) -> None:
    broke, given = _many(case), case["input"]
    holds(broke is not None, "a session's observation is never evicted")
    assert broke is not None
    before, now = _read(given["each"]["complete"]), _read(given["then_complete"])
    same((broke.previous, broke.read), (before, now), "break")


def _tracked(case: Case) -> None:
    broke, wanted = _many(case), case["expected"]["result"]
    holds(broke is not None, "the drop is seen")
    assert broke is not None
    same((broke.previous, broke.read), (wanted["previousCacheRead"], wanted["cacheRead"]), "break")
    same(list(broke.changes), _changes(wanted["changes"]), "changes")


FUNCTIONS = {
    "normalizePromptCapabilityIds": Function(
        _ids,
        (
            Departure(
                "one order of capabilities on every machine",
                "the reference sorts by the locale of the process; ours needs none and may differ beyond "
                "Latin letters, but never by machine or by the order given",
                _beyond_latin,
                _in_one_order,
            ),
        ),
    ),
    "normalizeStructuredPromptSection": Function(_section),
    "splitSystemPromptCacheBoundary": Function(_split),
    "stripSystemPromptCacheBoundary": Function(_strip),
    "prependSystemPromptAdditionAfterCacheBoundary": Function(_insert),
    "collectPromptCacheToolNames": Function(_tool_names),
    "promptCacheObservation(sequence)": Function(
        _observed,
        (
            Departure(
                "changes of a call that never completed are remembered",
                "the reference forgets them, and reports the break that they caused without a reason",
                _two_begins,
                _remembered,
            ),
        ),
        always=_digests_and_breaks,
    ),
    "promptCacheTrackerEviction": Function(
        _tracked,
        (
            Departure(
                "a session's observation is never evicted",
                "it lives with its session, not in a table of 512 for all sessions",
                _evicted,
                _kept,
            ),
        ),
    ),
}
