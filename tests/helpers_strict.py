"""A small oracle of its own for request bodies: what the Messages API refuses for structure.

Written from the provider's rules alone, apart from the strict scripted model, so that the two check
each other. It reads messages both as they stand and merged by role, and complains of either.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from typing import Any

ID = re.compile(r"^[a-zA-Z0-9_-]+$")
NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")
THINKING = ("thinking", "redacted_thinking")


def complaints(raw: bytes) -> list[str]:
    """Everything wrong with a body; empty if the provider would take it."""
    body = json.loads(raw.decode("utf-8", "strict"))
    if b"\\ud8" in raw or "\x00" in json.dumps(body, ensure_ascii=False):
        found = ["a lone surrogate or a NUL"]
    else:
        found = []
    messages = body["messages"]
    found += _turns(messages)
    for n, message in enumerate(messages):
        found += [f"messages.{n}: {each}" for each in _contents(message)]
    found += _pairing(messages) + _thinking(messages, body) + _marks(body) + _tools(body)
    return found


def _turns(messages: list[dict[str, Any]]) -> list[str]:
    found = []
    if not messages:
        return ["no messages"]
    if messages[0]["role"] != "user":
        found.append("the first message is not the user's")
    if messages[-1]["role"] != "user":
        found.append("the last message is a prefill")
    for n, (one, two) in enumerate(pairwise(messages)):
        if one["role"] == two["role"]:
            found.append(f"messages.{n + 1} repeats the role")
    return found


def _contents(message: dict[str, Any]) -> list[str]:
    found = []
    blocks = message["content"]
    if not blocks:
        found.append("empty content")
    seen_other = False
    for block in blocks:
        kind = block["type"]
        allowed = {"text", "tool_use", *THINKING} if message["role"] == "assistant" else USER_KINDS
        if kind not in allowed:
            found.append(f"{kind} in {message['role']}")
        if kind == "tool_result":
            found += ["tool_result behind other blocks"] if seen_other else []
            found += _inside(block)
        else:
            seen_other = True
            found += _one(block)
    return found


USER_KINDS = {"text", "image", "tool_result"}


def _inside(result: dict[str, Any]) -> list[str]:
    found = []
    for block in result.get("content", []):
        found += _one(block)
        if block["type"] not in ("text", "image"):
            found.append(f"{block['type']} in a tool_result")
        if result.get("is_error") and block["type"] != "text":
            found.append("an error result with an image")
    return found


def _one(block: dict[str, Any]) -> list[str]:
    kind = block["type"]
    if kind == "text" and not block["text"].strip():
        return ["blank text"]
    if kind == "tool_use":
        good = ID.match(block["id"]) and NAME.match(block["name"]) and isinstance(block["input"], dict)
        return [] if good else [f"bad call {block}"]
    if kind == "image":
        source = block["source"]
        raw = base64.b64decode(source["data"], validate=True)
        heads = {
            "image/png": b"\x89PNG",
            "image/jpeg": b"\xff\xd8",
            "image/gif": b"GIF8",
            "image/webp": b"RIFF",
        }
        good = raw and raw.startswith(heads[source["media_type"]]) and len(raw) <= 5 * 2**20
        return [] if good else ["bad image"]
    if kind == "thinking" and not block["signature"]:
        return ["thinking without signature"]
    if kind == "redacted_thinking" and not block["data"]:
        return ["redacted thinking without data"]
    return []


def _pairing(messages: list[dict[str, Any]]) -> list[str]:
    found = []
    ids = [b["id"] for m in messages for b in m["content"] if b["type"] == "tool_use"]
    if len(set(ids)) != len(ids):
        found.append("tool_use ids repeat")
    for n, message in enumerate(messages):
        after = messages[n + 1]["content"] if n + 1 < len(messages) else []
        before = messages[n - 1]["content"] if n else []
        calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        answers = [b["tool_use_id"] for b in after if b["type"] == "tool_result"]
        if calls and sorted(calls) != sorted(answers):
            found.append(f"messages.{n}: calls {calls} answered by {answers}")
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        if results and not all(r in [b.get("id") for b in before] for r in results):
            found.append(f"messages.{n}: results without calls")
    return found


def _thinking(messages: list[dict[str, Any]], body: dict[str, Any]) -> list[str]:
    found = []
    kind = body.get("thinking", {}).get("type")
    for n, message in enumerate(messages):
        kinds = [b["type"] in THINKING for b in message["content"]]
        if any(kinds) and not kinds[0]:
            found.append(f"messages.{n}: thinking is not first")
        if kinds and kinds[-1]:
            found.append(f"messages.{n}: thinking is last")
    if kind == "enabled":
        budget = body["thinking"]["budget_tokens"]
        found += [] if 1024 <= budget < body["max_tokens"] else ["bad budget"]
        if not _loop_begins_with_thinking(messages):
            found.append("the open loop doesn't begin with thinking")
    return found


def _loop_begins_with_thinking(messages: list[dict[str, Any]]) -> bool:
    last = len(messages) - 2
    if last < 0 or not any(b["type"] == "tool_use" for b in messages[last]["content"]):
        return True
    first = last
    while first >= 2 and all(b["type"] == "tool_result" for b in messages[first - 1]["content"]):
        first -= 2
    return all(messages[n]["content"][0]["type"] in THINKING for n in (first, last))


def _marks(body: dict[str, Any]) -> list[str]:
    blocks = [*body.get("tools", []), *body.get("system", [])]
    blocks += [b for m in body["messages"] for b in m["content"]]
    marked = [b for b in blocks if "cache_control" in b]
    found = ["more than four marks"] if len(marked) > 4 else []
    found += [f"mark on {b['type']}" for b in marked if b.get("type") in THINKING]
    lives = [b["cache_control"].get("ttl", "5m") for b in marked]
    return found + (["1h after 5m"] if "1h" in lives[lives.index("5m") :] else []) if "5m" in lives else found


def _tools(body: dict[str, Any]) -> list[str]:
    names = [tool["name"] for tool in body.get("tools", [])]
    found = ["tool names repeat"] if len(set(names)) != len(names) else []
    found += [f"tool name {name}" for name in names if not NAME.match(name)]
    called = any(b["type"] == "tool_use" for m in body["messages"] for b in m["content"])
    return found + (["calls but no tools"] if called and not names else [])
