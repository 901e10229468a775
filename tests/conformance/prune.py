"""Pruning of old results: settings, which tools, and what becomes of each message."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from conformance.messages import source, units, unreadable
from conformance.rules import Case, Departure, Function, holds, is_number, number, same
from helpers_messages import SONNET
from perdure.actors.resolver import pruning
from perdure.context.cache.contract import LIFE
from perdure.context.policy import policy_for
from perdure.context.results.parts import images_of, render, text_of
from perdure.context.results.prune import PruneSettings, prune
from perdure.context.safety.sanitize import old_images
from perdure.context.tokens.estimator import measure
from perdure.edges.config import contradictions
from perdure.edges.schema import build
from perdure.edges.settings import Settings
from perdure.records import Assistant, Decision, Image, Items, ToolResult, User

COLD = 3_600.0

# --- settings -------------------------------------------------------------------------------------

_KEYS = {
    "keepLastAssistants": "keep_last_assistants",
    "softTrimRatio": "soft_trim_ratio",
    "hardClearRatio": "hard_clear_ratio",
    "minPrunableToolChars": "min_chars",
    "softTrim.maxChars": "soft_chars",
    "softTrim.headChars": "head_chars",
    "softTrim.tailChars": "tail_chars",
    "hardClear.enabled": "hard_clear",
    "tools.allow": "allow_tools",
    "tools.deny": "deny_tools",
}
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "": 60, "h": 3_600, "d": 86_400}


def _raw(case: Case) -> dict[str, Any]:
    raw = case["input"]["raw"]
    return raw if isinstance(raw, dict) else {}


def _not_configured(case: Case) -> bool:
    return _raw(case).get("mode") != "cache-ttl"


def _on_where_it_pays(case: Case) -> None:
    same(pruning(Settings(), SONNET), PruneSettings(), "settings for a model with a cache")
    same(pruning(Settings(), replace(SONNET, caching=False)), None, "settings for one without")


def _flat(raw: dict[str, Any]) -> dict[str, Any]:
    """The keys of a foreign configuration in our names; what isn't written stays at its default."""
    found = {key: value for key, value in raw.items() if key in _KEYS}
    for name in ("softTrim", "hardClear", "tools"):
        part = raw.get(name)
        if isinstance(part, dict):
            found |= {f"{name}.{key}": value for key, value in part.items() if f"{name}.{key}" in _KEYS}
    table = {_KEYS[key]: value for key, value in found.items()}
    if "ttl" in raw:
        table["ttl_seconds"] = _seconds(raw["ttl"])
    return {"mode": "on"} | table


def _seconds(ttl: Any) -> Any:
    parts = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", ttl) if isinstance(ttl, str) else None
    if parts is None or parts[2] not in _UNITS:
        return "no duration"
    return float(parts[1]) * _UNITS[parts[2]]


_WHOLE = re.compile(r"keep|chars")


def _wrong(case: Case) -> bool:
    """A value that a checked configuration refuses: another type, out of range, or against another."""
    table = {key: value for key, value in _flat(_raw(case)).items() if key != "mode"}
    return any(not _fits(key, value) for key, value in table.items()) or _crossed(table)


def _crossed(table: dict[str, Any]) -> bool:
    soft, hard = table.get("soft_trim_ratio", 0.3), table.get("hard_clear_ratio", 0.5)
    return isinstance(soft, float | int) and isinstance(hard, float | int) and soft > hard


def _fits(key: str, value: Any) -> bool:
    if key in ("allow_tools", "deny_tools"):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if key == "hard_clear":
        return isinstance(value, bool)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if _WHOLE.search(key):
        return isinstance(value, int) and value >= (1 if key == "soft_chars" else 0)
    return 0 < value <= (86_400 if key == "ttl_seconds" else 1)


def _configured(case: Case) -> tuple[Settings, list[Any]]:
    settings, findings = build(Settings, [({"pruning": _flat(_raw(case))}, "perdure.toml")])
    return settings, findings or contradictions(settings, "perdure.toml")


def _refused_by_name(case: Case) -> None:
    _, findings = _configured(case)
    holds(findings and all("pruning." in str(each) for each in findings), "the wrong key is named")


def _settings(case: Case) -> None:
    settings, findings = _configured(case)
    same(findings, [], "findings")
    wanted = case["expected"]
    ours = pruning(settings, SONNET)
    assert ours is not None
    same(ours, replace(settings_of(wanted), ttl=wanted["ttlMs"] / 1_000), "settings")


def _within_the_caches_life(case: Case) -> bool:
    return not _wrong(case) and _flat(_raw(case)).get("ttl_seconds", LIFE["short"]) < LIFE["short"]


def _not_while_warm(case: Case) -> None:
    settings, _ = _configured(case)
    ours = pruning(settings, SONNET)
    wanted = replace(settings_of(case["expected"]), ttl=LIFE["short"])
    same(ours, wanted, "settings that wait for the cache to be cold")


def settings_of(found: dict[str, Any]) -> PruneSettings:
    """Resolved settings of the reference as ours."""
    trim, clear, tools = found["softTrim"], found["hardClear"], found.get("tools") or {}
    return PruneSettings(
        ttl=1.0,
        keep_last=int(number(found["keepLastAssistants"])),
        soft_ratio=found["softTrimRatio"],
        hard_ratio=found["hardClearRatio"],
        soft_max=trim["maxChars"],
        head=trim["headChars"],
        tail=trim["tailChars"],
        hard_clear=clear["enabled"],
        least=found["minPrunableToolChars"],
        allow=tuple(tools.get("allow") or ()),
        deny=tuple(tools.get("deny") or ()),
    )


def _predicate(case: Case) -> None:
    match = case["params"]["match"]
    settings = PruneSettings(allow=tuple(match.get("allow") or ()), deny=tuple(match.get("deny") or ()))
    same([settings.prunable(name) for name in case["input"]["names"]], case["expected"])


# --- what becomes of each message -----------------------------------------------------------------

Fates = list[str]
Weigh = Callable[[int, str], int]


def _window(case: Case) -> int:
    """The window in tokens; 0 where none is told."""
    params = case["params"]
    for name in ("contextWindowTokensOverride", "contextWindowTokens"):
        found = params.get(name)
        if is_number(found) and math.isfinite(number(found)) and number(found) > 0:
            return int(number(found))
    return 0


def _pruned(case: Case) -> tuple[Items, Fates]:
    items, settings = source(case), settings_of(case["params"]["settings"])
    changed = prune(items, settings, window=_window(case), cache_age=COLD)
    forms = {d.key: "trimmed" if d.head else "cleared" for d in changed.decisions}
    return items, [forms.get(item.entry, "in") for item in items]


def _plainly(case: Case, items: Items, weigh: Weigh, length: Callable[[str], int] = len) -> Fates:
    """The rule in the plainest words, on any weights."""
    settings = settings_of(case["params"]["settings"])
    room = _window(case) * 4
    fates = ["in"] * len(items)
    if not room:
        return fates
    old = _old(items, settings)

    def total() -> int:
        return sum(weigh(at, fate) for at, fate in enumerate(fates))

    if not old or total() / room < settings.soft_ratio:
        return fates
    for at in old:
        fates[at] = _soft(items[at].message, settings, length)
    if total() / room < settings.hard_ratio or not settings.hard_clear:
        return fates
    if sum(weigh(at, fates[at]) for at in old) < settings.least:
        return fates
    for at in old:
        if total() / room < settings.hard_ratio:
            break
        fates[at] = "cleared"
    return fates


def _old(items: Items, settings: PruneSettings) -> list[int]:
    users = [at for at, item in enumerate(items) if isinstance(item.message, User)]
    assistants = [at for at, item in enumerate(items) if isinstance(item.message, Assistant)]
    if not users or len(assistants) < settings.keep_last:
        return []
    end = assistants[-settings.keep_last] if settings.keep_last else len(items)
    return [
        at
        for at in range(users[0], end)
        if isinstance(m := items[at].message, ToolResult) and settings.prunable(m.tool)
    ]


def _soft(message: Any, settings: PruneSettings, length: Callable[[str], int]) -> str:
    text = text_of(message)
    long = length(text) > settings.soft_max and settings.head + settings.tail < length(text)
    if not (long or images_of(message)):
        return "in"
    return "trimmed" if text and (settings.head or not long) else "cleared"


def _our_weights(case: Case, items: Items) -> Weigh:
    settings = settings_of(case["params"]["settings"])

    def weigh(at: int, fate: str) -> int:
        item = items[at]
        if fate == "in" or not isinstance(item.message, ToolResult):
            return measure(item.message).raw
        text = text_of(item.message)
        head, tail = len(text), 0
        if len(text) > settings.soft_max and settings.head + settings.tail < len(text):
            head, tail = settings.head, settings.tail
        none = "no images" if images_of(item.message) else ""
        decision = Decision(item.entry, "pruned", *((0, 0) if fate == "cleared" else (head, tail)), none)
        return measure(render(item.message, decision)).raw

    return weigh


def _by_the_rule(case: Case) -> None:
    """The plain rule on our weights decides; only sizes are taken from the code that is tried."""
    items, ours = _pruned(case)
    same(ours, _plainly(case, items, _our_weights(case, items)), "by the plain rule")


def _fates(case: Case) -> Fates:
    cleared = case["params"]["settings"]["hardClear"]["placeholder"]
    pairs = zip(case["input"]["messages"], case["expected"]["messages"], strict=True)
    return [
        "in" if one == two else "cleared" if cleared in json.dumps(two, ensure_ascii=False) else "trimmed"
        for one, two in pairs
    ]


def _their_weights(case: Case, items: Items) -> Weigh:
    """The weights of the reference, as far as its page tells them; names, ids and notices differ."""
    settings, given = settings_of(case["params"]["settings"]), case["input"]["messages"]

    def weigh(at: int, fate: str) -> int:
        message = items[at].message
        if fate == "cleared":
            return len(case["params"]["settings"]["hardClear"]["placeholder"])
        if fate == "trimmed" and isinstance(message, ToolResult):
            return _trimmed_size(given[at], settings)
        return _their_size(given[at])

    return weigh


def _segments(found: dict[str, Any]) -> list[str]:
    content = found.get("content")
    blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
    shown = {"image": "[image removed during context pruning]"}
    return [
        str(b.get("text") or "") if b["type"] == "text" else shown[b["type"]]
        for b in blocks
        if b["type"] in (*shown, "text")
    ]


def _trimmed_size(found: dict[str, Any], settings: PruneSettings) -> int:
    segments = _segments(found)
    text = "\n".join(segments)
    if units(text) <= settings.soft_max or settings.head + settings.tail >= units(text):
        return sum(map(_wide, segments))
    kept = text[: settings.head] + (text[-settings.tail :] if settings.tail else "")
    told = "\n...\n\n\n[Tool result trimmed: kept first "
    told += f"{settings.head} chars and last {settings.tail} chars of "
    return _wide(kept) + len(told) + len(f"{units(text)} chars.]")


_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0002fa1f]")


def _wide(text: Any) -> int:
    return 0 if not isinstance(text, str) else units(text) + 3 * len(_CJK.findall(text))


def _their_size(found: dict[str, Any]) -> int:
    content, role = found.get("content"), found.get("role")
    if role not in ("user", "assistant", "toolResult"):
        return 256
    if isinstance(content, str):
        return _wide(content)
    blocks = content if isinstance(content, list) else []
    return sum(_their_block(block) for block in blocks if isinstance(block, dict))


def _their_block(block: dict[str, Any]) -> int:
    kind = block.get("type")
    if kind == "text":
        return _wide(block.get("text"))
    if kind == "thinking":
        return _wide(block.get("thinking")) + units(block.get("thinkingSignature"))
    if kind == "toolCall":
        return units(json.dumps(block.get("arguments") or {}, separators=(",", ":"), ensure_ascii=False))
    return 8_000 if kind == "image" else 0


def _other_weights(case: Case) -> bool:
    """Names, ids, notices and signatures are of other lengths, so that another result crosses the line."""
    items = source(case)
    theirs = _plainly(case, items, _their_weights(case, items), units)
    return theirs != _plainly(case, items, _our_weights(case, items))


def _agrees(case: Case) -> None:
    items, ours = _pruned(case)
    same(ours, _fates(case))
    settings = settings_of(case["params"]["settings"])
    changed = prune(items, settings, window=_window(case), cache_age=COLD)
    for decision in changed.decisions:
        text = next(text_of(i.message) for i in items if i.entry == decision.key)
        if decision.tail and not _joined(text):
            same((decision.head, decision.tail), (settings.head, settings.tail), "characters kept")


def _joined(text: str) -> bool:
    """Characters that belong together stand in it, which no cut parts."""
    return any(char > "\uffff" or unicodedata.category(char)[0] in "MC" for char in text.replace("\n", ""))


def _nothing_kept(case: Case) -> bool:
    """Neither head nor tail of a result's text would stay, or it holds no text at all."""
    settings = settings_of(case["params"]["settings"])
    results = [item.message for item in source(case) if isinstance(item.message, ToolResult)]
    return settings.head == settings.tail == 0 or any(not text_of(m) for m in results)


def _beyond_the_bmp(case: Case) -> bool:
    """Characters that the reference counts twice change what happens."""
    results = [item.message for item in source(case) if isinstance(item.message, ToolResult)]
    return any(max(text_of(m), default="") > "\uffff" for m in results) and _other_weights(case)


# --- images that the model has seen ---------------------------------------------------------------


def _few_images_stay(case: Case) -> None:
    """Below the limits of a request no image leaves; pruning drops those of old results, with a notice."""
    items, policy = source(case), policy_for(SONNET)
    count = sum(isinstance(b, Image) for i in items for b in getattr(i.message, "content", ()))
    if count <= policy.images.many:
        same(old_images(items, policy, {}).items, items, "images below the limits")
    same(
        prune(items, PruneSettings(), window=200_000, cache_age=None).items, items, "while the cache is warm"
    )
    everything = PruneSettings(soft_ratio=0.0, hard_clear=False, keep_last=0)
    cold = prune(items, everything, window=10_000_000, cache_age=COLD).items
    for before, after in zip(items, cold, strict=True):
        if not isinstance(before.message, ToolResult):
            same(after, before, "what is no result")
        elif images_of(before.message) and not images_of(after.message):
            holds("left out" in text_of(after.message), "images never leave without a notice")


def _has_images(case: Case) -> bool:
    return any(isinstance(b, Image) for i in source(case) for b in getattr(i.message, "content", ()))


def _nothing_to_remove(case: Case) -> None:
    same(case["expected"]["changed"], False, "changed")
    _few_images_stay(case)


FUNCTIONS = {
    "computeEffectiveSettings": Function(
        _settings,
        (
            Departure(
                "pruning is on for models with prompt caching",
                "the reference leaves it off unless it is configured; ours is off by `pruning.mode` alone",
                _not_configured,
                _on_where_it_pays,
            ),
            Departure(
                "a wrong setting is refused by its name",
                "the reference rounds, clamps or ignores it, so that nobody learns of the mistake",
                _wrong,
                _refused_by_name,
            ),
            Departure(
                "nothing is pruned while the provider's cache may be warm",
                "whatever the setting says: a changed prefix is paid for again",
                _within_the_caches_life,
                _not_while_warm,
            ),
        ),
    ),
    "makeToolPrunablePredicate": Function(_predicate),
    "pruneContextMessages": Function(
        _agrees,
        (
            Departure(
                "what is no message gets into no view",
                "the reference throws; ours prunes the messages that are there",
                unreadable,
                _by_the_rule,
            ),
            Departure(
                "where nothing is kept the result is cleared",
                "a trimmed result that shows nothing is no better than the placeholder, and says less",
                _nothing_kept,
                _by_the_rule,
            ),
            Departure(
                "a character counts once",
                "the reference counts UTF-16 units",
                _beyond_the_bmp,
                _by_the_rule,
            ),
            Departure(
                "names, ids and notices have their weight",
                "other sizes let another result cross the line; the rule is the same",
                _other_weights,
                _by_the_rule,
            ),
        ),
        always=_by_the_rule,
    ),
    "pruneProcessedHistoryImages": Function(
        _nothing_to_remove,
        (
            Departure(
                "images stay until a limit or a cold cache takes them",
                "the reference drops every image of an answered turn, which changes the cached prefix",
                _has_images,
                _few_images_stay,
            ),
        ),
    ),
}
