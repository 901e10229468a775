"""A summariser without a model: what was asked, what was said last, and every identifier, by extraction."""

from __future__ import annotations

import re
from typing import Any

from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say

CONVERSATION = re.compile(r"<conversation>(.*?)</conversation>", re.DOTALL)
PREVIOUS = re.compile(r"<previous-summary>(.*?)</previous-summary>", re.DOTALL)
IDENTIFIER = re.compile(
    r"https?://[^\s<>\"')\]]{4,200}|(?<![\w/])(?:\.{0,2}/)?[\w.-]{1,60}(?:/[\w.-]{1,60}){1,8}|\b[0-9a-f]{8,64}\b"
    r"|\b[A-Z]{2,10}-\d{1,6}\b|\b\w{2,40}\.(?:py|md|txt|json|toml|ts|js|go|rs|yaml|yml|sh|sql|csv)\b"
)
ASKED = re.compile(r"^\[?(?:user|human)\]?:\s*(.+)", re.IGNORECASE | re.MULTILINE)
RULE = re.compile(
    r"^.*\b(?:must|never|always|do not|don't|必须|不要|禁止)\b.*$", re.IGNORECASE | re.MULTILINE
)
DECIDED = re.compile(r"^.*\b(?:decided|chose|will use|agreed|决定|选择)\b.*$", re.IGNORECASE | re.MULTILINE)
LINE, LINES, NAMES = 200, 8, 40  # characters of a line, lines of a section, identifiers listed


def last_text(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = body["messages"][-1]["content"] if body.get("messages") else ""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def is_summary_request(body: dict[str, Any]) -> bool:
    """Whether the last message asks for a summary, as compaction words it."""
    return "<conversation>" in last_text(body)


def extractive_summariser(body: dict[str, Any], request: Request) -> ScriptedReply:
    """A source: answers a summary request from the conversation in it, always the same way."""
    asked = last_text(body)
    found = CONVERSATION.search(asked)
    previous = PREVIOUS.search(asked)
    text = (found[1] if found else asked).strip()
    budget = min(int(body.get("max_tokens", 4096)) * 2, max(600, len(text) // 4))
    return say(summarise(text, previous[1] if previous else "", budget))


def summarise(text: str, previous: str, budget: int) -> str:
    """The five sections a summary must have, in at most about `budget` characters."""
    asks = [line.strip() for line in ASKED.findall(text)]
    names = list(dict.fromkeys(name.rstrip(".,:") for name in IDENTIFIER.findall(previous + "\n" + text)))
    sections = (
        ("## Decisions", _some(DECIDED.findall(text))),
        ("## Open TODOs", _some(asks[-2:-1])),
        ("## Constraints/Rules", _some(RULE.findall(text))),
        ("## Pending user asks", _some(asks[-1:])),
        ("## Exact identifiers", [f"- {name}" for name in names[-NAMES:]]),
    )
    told = ["## Earlier", *_some(previous.strip().splitlines())] if previous.strip() else []
    told += ["## Asked so far", *_some(asks[:-1])] if len(asks) > 1 else []
    share = max(60, budget // (len(sections) + 2))  # identifiers, last of all, get two
    lines = ["\n".join(told)[:share]] if told else []
    lines += [
        f"{head}\n{_fit(found, share * (1 + head.endswith('identifiers')))}" for head, found in sections
    ]
    return "\n\n".join(lines)


def _some(lines: list[str]) -> list[str]:
    kept = dict.fromkeys(" ".join(line.split())[:LINE] for line in lines if line.strip())
    return [f"- {line}" for line in list(kept)[-LINES:]]


def _fit(lines: list[str], room: int) -> str:
    out: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0 and out:
            break
        out.append(line)
    return "\n".join(out) or "- none"
