"""Sources of scripted answers: a fixed list, and a small persona for demos that acts by plain rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from perdure.context.text.plural import counted
from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, call, say
from perdure.edges.models.summaries import (
    extractive_summariser,
    is_flush_request,
    is_summary_request,
    last_text,
)
from perdure.errors import ModelError
from perdure.records import Text, ToolCall

OPENINGS = ("Sure.", "All right.", "Let me see.", "Good question.", "Happy to help.")
READ = re.compile(
    r"\b(?:read|open|show|look at)\s+(?:the\s+)?(?:file\s+)?[`\"']?([\w./-]+\.\w+)", re.IGNORECASE
)
GREP = re.compile(
    r"\b(?:grep|search)\s+(?:for\s+)?[`\"']?([^`\"'\n]{1,80}?)[`\"']?(?:\s+in\b|[.?!]?\s*$)", re.I
)
FIND = re.compile(r"\b(?:find|list)\b.{0,40}?\bfiles?\b(?:.{0,20}?([*\w.-]*\*[*\w.-]*))?", re.IGNORECASE)
NOTE = re.compile(r"\b(?:remember|note)\s+(?:that\s+)?(.{1,400})", re.IGNORECASE | re.DOTALL)
RUN = re.compile(r"\brun\s+`([^`\n]{1,200})`", re.IGNORECASE)


class Script:
    """A fixed list of answers: one list for all sessions (each has its own place in it), or one each.

    `after` answers when a list has ended; without it the request fails with a line that says so.
    """

    def __init__(
        self,
        replies: Sequence[ScriptedReply] | Mapping[str, Sequence[ScriptedReply]],
        after: ScriptedReply | None = None,
    ) -> None:
        self._replies, self._after = replies, after
        self._places: dict[str, int] = {}

    def __call__(self, body: dict[str, Any], request: Request) -> ScriptedReply:
        given = self._replies
        replies = given.get(request.session, ()) if isinstance(given, Mapping) else given
        place = self._places.get(request.session, 0)
        if place < len(replies):
            self._places[request.session] = place + 1
            return replies[place]
        if self._after is not None:
            return self._after
        raise ModelError(
            "invalid",
            f"the script of session {request.session!r} has no answer left ({len(replies)} were given)",
        )


def echo(body: dict[str, Any], request: Request) -> ScriptedReply:
    """Answers what was said."""
    return say(last_text(body) or "(nothing was said)")


def demo_source(body: dict[str, Any], request: Request) -> ScriptedReply:
    """A plausible assistant: uses a tool where the words name one, tells what came of it, else answers.

    The same request gets the same answer; summaries are extracted, nothing is noted when memory is flushed;
    a batch of calls is followed by words.
    """
    if is_summary_request(body):
        return extractive_summariser(body, request)
    if is_flush_request(request):
        return say("NO_REPLY")
    results = _results(body)
    if results:
        return say(_about(results))
    said = last_text(body).strip()
    found = _calls(said, {tool["name"] for tool in body.get("tools") or ()})
    if found:
        return ScriptedReply((Text(f"{_opening(said)} I'll look that up."), *found))
    return say(_answer(said, body))


def _results(body: dict[str, Any]) -> list[dict[str, Any]]:
    content = body["messages"][-1]["content"]
    return [b for b in content if b["type"] == "tool_result"] if isinstance(content, list) else []


def _calls(said: str, tools: set[str]) -> tuple[ToolCall, ...]:
    wanted: list[ToolCall] = []
    wanted += [call("read", path=path) for path in READ.findall(said)[:3] if "read" in tools]
    if "exec" in tools and (run := RUN.search(said)):
        wanted.append(call("exec", command=run[1]))
    if "find" in tools and (find := FIND.search(said)):
        wanted.append(call("find", pattern=find[1] or "*"))
    elif "grep" in tools and not wanted and (grep := GREP.search(said)):
        wanted.append(call("grep", pattern=grep[1].strip()))
    if "write" in tools and not wanted and (note := NOTE.search(said)):
        text = " ".join(note[1].split())
        name = blake2b(text.encode("utf-8", "replace"), digest_size=3).hexdigest()
        wanted.append(call("write", path=f"notes/{name}.md", content=f"- {text}\n"))
    return tuple(wanted)


def _about(results: list[dict[str, Any]]) -> str:
    lines = [_line(result) for result in results]
    if len(lines) == 1:
        return f"Done. {lines[0]}"
    return "Done:\n" + "\n".join(f"- {line}" for line in lines)


def _line(result: dict[str, Any]) -> str:
    content = result.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(block.get("text", "(an image)") for block in content)
    rows = [row.strip() for row in content.splitlines() if row.strip()]
    first = rows[0][:120] if rows else "nothing"
    if result.get("is_error"):
        return f"That didn't work: {first}"
    return (
        f"I found {len(rows)} line{'s' * (len(rows) != 1)}, beginning with: {first}"
        if rows
        else "It was empty."
    )


def _opening(said: str) -> str:
    digest = blake2b(said.encode("utf-8", "replace"), digest_size=1).digest()
    return OPENINGS[digest[0] % len(OPENINGS)]


def _answer(said: str, body: dict[str, Any]) -> str:
    turns = sum(1 for message in body["messages"] if message["role"] == "user")
    topic = " ".join(said.split())[:160] or "nothing yet"
    if said.endswith("?"):
        return f"{_opening(said)} You ask: {topic} I'm a scripted model, so I can only say that I read it."
    return f"{_opening(said)} I've noted it ({counted(turns, 'message')} so far): {topic}"
