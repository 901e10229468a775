"""The three tools of the engine: search what was said, read one thing by its id, open a summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from perdure.contracts import Tool, ToolContext, ToolOutput
from perdure.plugins.engines.lossless.access import OF, Reader, Refused, answer, fitting, reader, refusal
from perdure.plugins.engines.lossless.describe import described
from perdure.plugins.engines.lossless.expand import expanded
from perdure.plugins.engines.lossless.grep import SECONDS, Found, Query, by_pattern, by_words
from perdure.plugins.engines.lossless.patterns import BadPattern, Pattern
from perdure.plugins.engines.lossless.sessions import Sessions
from perdure.plugins.engines.lossless.settings import Settings
from perdure.records import ToolSpec

LIMIT, MOST = 20, 100
WORDS = 12


def tools_of(sessions: Sessions, settings: Settings) -> tuple[Tool, ...]:
    """The tools over one engine's sessions."""
    return (
        HistoryTool(_GREP, partial(_grep, now=sessions.lent.wall_ms), sessions, settings),
        HistoryTool(_DESCRIBE, _describe, sessions, settings),
        HistoryTool(_EXPAND, _expand, sessions, settings),
    )


class HistoryTool:
    """One of them. `work(reader, arguments)` blocks, and raises `Refused`."""

    def __init__(
        self,
        spec: ToolSpec,
        work: Callable[[Reader, Mapping[str, Any]], str],
        sessions: Sessions,
        settings: Settings,
    ) -> None:
        self.spec, self._work, self._sessions, self._settings = spec, work, sessions, settings

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            found = await reader(self._sessions, self._settings, arguments, context)
            text = await context.run_blocking(partial(self._work, found, arguments))
            return await answer(found, text, context)
        except Refused as error:
            return refusal(error)


def _grep(reader: Reader, arguments: Mapping[str, Any], now: Callable[[], int]) -> str:
    given = str(arguments.get("pattern", "")).strip().replace("\x00", "")
    if not given:
        raise Refused("give a pattern")
    words = tuple(dict.fromkeys(given.split()))[:WORDS]
    limit = min(MOST, int(arguments.get("limit", LIMIT)))
    scope, sort = arguments.get("scope", "both"), arguments.get("sort", "recency")
    query = Query(words, scope, sort, limit, now() + SECONDS * 1000)
    if arguments.get("mode", "full_text") != "regex":
        return _listed(reader, by_words(reader, query), given)
    try:
        pattern = Pattern(given, ignore_case=bool(arguments.get("ignore_case")))
    except BadPattern as error:
        raise Refused(f"the pattern can't be used ({error}); full_text takes plain words") from None
    return _listed(reader, by_pattern(reader, query, pattern, now), given)


def _listed(reader: Reader, found: Found, given: str) -> str:
    lines = [f"[{hit.id}] {hit.head}: {hit.line}" for hit in found.hits]
    if not lines:
        lines = [f"Nothing in this conversation matches {given[:200]!r}."]
    if found.cut:
        lines.append(f"[the search ended {found.cut}: older text was not looked at]")
    text = "\n".join(lines)
    shown = fitting(text, reader.tokens - 20)
    return text if shown == text else f"{shown}\n[cut: narrow the search]"


def _describe(reader: Reader, arguments: Mapping[str, Any]) -> str:
    tokens = int(arguments.get("tokens", reader.tokens))
    return described(reader, str(arguments.get("id", "")).strip(), int(arguments.get("start", 0)), tokens)


def _expand(reader: Reader, arguments: Mapping[str, Any]) -> str:
    tokens, depth = int(arguments.get("tokens", reader.tokens)), int(arguments.get("depth", 1))
    id, after = str(arguments.get("id", "")).strip(), str(arguments.get("after", "")).strip()
    return expanded(reader, id, depth, after, tokens)


def _spec(name: str, description: str, summary: str, required: str, **properties: Any) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {**properties, "of": OF},
        "required": [required],
        "additionalProperties": False,
    }
    return ToolSpec(name, description, msgspec.json.encode(schema), summary)


def _choice(description: str, *values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "description": description}


def _number(description: str, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most}


_TOKENS = _number("Most tokens of the answer", 100, 16_000)
_GREP = _spec(
    "history_grep",
    "Search everything said in this conversation, also what is only shown as summaries. full_text finds "
    "texts that hold all the words, in any language; regex finds lines. Answers ids for history_describe "
    "and history_expand.",
    "Search the whole conversation",
    "pattern",
    pattern={"type": "string", "minLength": 1, "maxLength": 1_000, "description": "Words, or an expression"},
    mode=_choice("Default full_text", "full_text", "regex"),
    scope=_choice("Default both", "messages", "summaries", "both"),
    sort=_choice("Newest first (default) or best first", "recency", "relevance"),
    limit=_number(f"Most hits (default {LIMIT})", 1, MOST),
    ignore_case={"type": "boolean", "description": "For regex; full_text always does"},
)
_DESCRIBE = _spec(
    "history_describe",
    "Read one thing of this conversation by its id: a message, a summary with its facts, or a large payload. "
    "Long ones come in pages.",
    "Read a message, summary or payload by id",
    "id",
    id={
        "type": "string",
        "maxLength": 200,
        "description": "Id of a message, summary, or payload (its sha256)",
    },
    start=_number("First character to read", 0, 1_000_000_000),
    tokens=_TOKENS,
)
_EXPAND = _spec(
    "history_expand",
    "Open a summary: the messages and summaries it was written from, in order.",
    "Read what a summary stands for",
    "id",
    id={"type": "string", "maxLength": 200, "description": "The summary's id"},
    depth=_number("How far down to go (default 1: its direct sources)", 1, 32),
    after={"type": "string", "maxLength": 200, "description": "Go on behind this id"},
    tokens=_TOKENS,
)
