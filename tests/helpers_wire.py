"""Small oracles of their own for the bodies of Google's and Bedrock's APIs, apart from the strict model."""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from typing import Any

GOOGLE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$")
ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
SKIP = "skip_thought_signature_validator"


def google_complaints(raw: bytes) -> list[str]:
    """Everything wrong with a generateContent body; empty if Google would take it."""
    found: list[str] = []
    contents = json.loads(raw)["contents"]
    if contents[0]["role"] != "user" or contents[-1]["role"] != "user":
        found.append("the ends are not the user's")
    for one, two in pairwise([{"role": "", "parts": []}, *contents]):
        calls = [
            (p["functionCall"]["id"], p["functionCall"]["name"]) for p in one["parts"] if "functionCall" in p
        ]
        held = [p["functionResponse"] for p in two["parts"] if "functionResponse" in p]
        if calls != [(answer["id"], answer["name"]) for answer in held]:
            found.append(f"calls {calls} answered by {held}")
        if held and len(held) != len(two["parts"]):
            found.append("function responses among other parts")
        if one["role"] == two["role"] == "model":
            found.append("two turns of the model")
        found += [each for part in two["parts"] for each in _google_part(part)]
        found += [] if two["parts"] else ["no parts"]
    ids = [p["functionCall"]["id"] for c in contents for p in c["parts"] if "functionCall" in p]
    return found + (["ids repeat"] if len(set(ids)) < len(ids) else [])


def _google_part(part: dict[str, Any]) -> list[str]:
    if "text" in part:
        found = [] if part["text"].strip() else ["blank text"]
    elif "inlineData" in part:
        base64.b64decode(part["inlineData"]["data"], validate=True)
        found = ["a GIF"] if part["inlineData"]["mimeType"] == "image/gif" else []
    else:
        held = part.get("functionCall") or part["functionResponse"]
        found = [] if GOOGLE_NAME.match(held["name"]) else [f"name {held['name']}"]
        found += [] if isinstance(held.get("args", held.get("response")), dict) else ["no object"]
    signature = part.get("thoughtSignature", SKIP)
    if signature != SKIP:
        found += (
            [] if re.fullmatch(r"[A-Za-z0-9+/_-]+={0,2}", signature) else ["a signature that is no base64"]
        )
    return found


def bedrock_complaints(raw: bytes) -> list[str]:
    """Everything wrong with a Converse body; empty if Bedrock would take it."""
    body = json.loads(raw)
    messages = body["messages"]
    found = [] if messages[0]["role"] == messages[-1]["role"] == "user" else ["the ends are not the user's"]
    for one, two in pairwise(messages):
        if one["role"] == two["role"]:
            found.append("a role repeats")
        calls = [b["toolUse"]["toolUseId"] for b in one["content"] if "toolUse" in b]
        answers = [b["toolResult"]["toolUseId"] for b in two["content"] if "toolResult" in b]
        if calls != answers:
            found.append(f"calls {calls} answered by {answers}")
    blocks = [block for message in messages for block in message["content"]]
    ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
    found += ["ids repeat"] if len(set(ids)) < len(ids) else []
    found += [f"id {ident}" for ident in ids if not ID.match(ident)]
    nested = [inner for b in blocks if "toolResult" in b for inner in b["toolResult"]["content"]]
    found += ["blank text" for b in (*blocks, *nested) if "text" in b and not b["text"].strip()]
    found += ["too many images"] if sum("image" in b for b in (*blocks, *nested)) > 20 else []
    found += ["no tools"] if ids and not body.get("toolConfig") else []
    found += ["too many points"] if sum("cachePoint" in b for b in (*blocks, *body["system"])) > 4 else []
    for message in messages:
        kinds = ["reasoningContent" in block for block in message["content"] if "cachePoint" not in block]
        if any(kinds) and (not kinds[0] or kinds[-1]):
            found.append("reasoning out of its place")
    return found
