"""A summariser without a model: what was asked, what was said last, and every identifier, by extraction."""

from __future__ import annotations

import re
from typing import Any

from perdure.contracts import Request
from perdure.edges.models.reply import ScriptedReply, say

CONVERSATION = re.compile(r"<conversation>(.*)</conversation>", re.DOTALL)
PREVIOUS = re.compile(r"<previous-summary>(.*?)</previous-summary>", re.DOTALL)
IDENTIFIER = re.compile(
    r"https?://[^\s<>\"')\]]{4,200}|(?<![\w./-])(?:\.{0,2}/)?[\w.-]{1,60}(?:/[\w.-]{1,60}){1,8}|\b[0-9a-f]{8,64}\b"
    r"|\b[A-Z]{2,10}-\d{1,6}\b|\b\w{2,40}\.(?:py|md|txt|json|toml|ts|js|go|rs|yaml|yml|sh|sql|csv)\b"
)
ASKED = re.compile(r"^\[User\]:\s*(.+)", re.MULTILINE)
TOLD = re.compile(r"^\[Assistant\]:\s*(.+)", re.MULTILINE)
RULE = re.compile(r"^.*\b(?:must|never|always|do not|don't)\b.*$|^.*(?:必须|不要|禁止).*$", re.I | re.M)
DECIDED = re.compile(r"^.*\b(?:decided|chose|will use|agreed)\b.*$|^.*(?:决定|选择).*$", re.I | re.M)
TODO = re.compile(r"^.*\b(?:todo|to do|still open|later|next step)\b.*$|^.*(?:待办|下一步).*$", re.I | re.M)
SECTION = re.compile(r"^## (.+)\n((?:- .*\n?)*)", re.MULTILINE)
NAMES = "Exact identifiers"
HEADINGS = (
    "Goal",
    "State and progress",
    "Decisions",
    "Open questions and to-dos",
    "Constraints",
    "Last request",
    NAMES,
)
LINE, LINES, LISTED = 200, 8, 60  # characters of a line, lines of a section, identifiers listed
READ = 400_000  # newest characters that are searched for identifiers


def last_text(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = body["messages"][-1]["content"] if body.get("messages") else ""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def is_summary_request(body: dict[str, Any]) -> bool:
    """Whether the last message asks for a summary, as compaction words it."""
    return last_text(body).lstrip().startswith("<conversation>")


def is_flush_request(request: Request) -> bool:
    """Whether memory's flush asks what to note, as `noting` names its requests."""
    return request.session.endswith("#flush")


def extractive_summariser(body: dict[str, Any], request: Request) -> ScriptedReply:
    """A source: answers a summary request from the conversation in it, always the same way."""
    asked = last_text(body)
    found, previous = CONVERSATION.search(asked), PREVIOUS.search(asked)
    text = (found[1] if found else asked).strip()
    budget = min(int(body.get("max_tokens", 4096)) * 2, max(600, len(text) // 4))
    return say(summarise(text, previous[1] if previous else "", budget))


def summarise(text: str, previous: str, budget: int) -> str:
    """What earlier summaries held and what the conversation adds, in about `budget` characters.

    Earlier summaries are `previous` and the parts of a merge. What is newer stands last and stays longest.
    """
    known: dict[str, list[str]] = {name: [] for name in HEADINGS}
    for name, bullets in SECTION.findall(f"{previous}\n{text}"):
        known.setdefault(name.strip(), []).extend(
            line[2:] for line in bullets.splitlines() if line != "- none"
        )
    asks, told = ASKED.findall(text), TOLD.findall(text)
    known["Goal"] = (known["Goal"] + asks)[:2]
    known["State and progress"] += told[-3:] or [
        f"{len(text.splitlines())} lines of work without a word on it"
    ]
    known["Decisions"] += DECIDED.findall(text)
    known["Open questions and to-dos"] += TODO.findall(text) + [ask for ask in asks[:-1] if ask.endswith("?")]
    known["Constraints"] += RULE.findall(text)
    known["Last request"] = (asks or known["Last request"])[-1:]
    known[NAMES] += (name.rstrip(".,:") for name in IDENTIFIER.findall(text[-READ:]))
    share = max(60, budget // (len(HEADINGS) + 2))
    return "\n\n".join(f"## {name}\n{_fit(known[name], name, share)}" for name in HEADINGS)


def _fit(lines: list[str], name: str, share: int) -> str:
    """The newest lines that fit, oldest first; identifiers may take three shares, being short and exact."""
    most, room = (LISTED, share * 3) if name == NAMES else (LINES, share)
    out: list[str] = []
    for line in list(dict.fromkeys(" ".join(line.split())[:LINE] for line in lines))[::-1][:most]:
        room -= len(line) + 3
        if room < 0 and out:
            break
        out.append(f"- {line}")
    return "\n".join(reversed(out)) or "- none"
