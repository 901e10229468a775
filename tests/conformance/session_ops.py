"""Operations of the reference's session manager, done with the lines that ours writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from conformance.messages import decoded
from conformance.rules import Case
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint

NOW = 1_760_000_000_000


class _Session:
    """A file as text, and its leaf. Ids are those the reference gave, so that entries can be compared."""

    def __init__(self, text: str | None) -> None:
        self.text = text or lines.header_line("s1", NOW, "/w").decode()
        self.leaf: str | None = None
        self.known: set[str] = set()
        for row in self.text.split("\n"):
            self._know(row)

    def _know(self, row: str) -> None:
        try:
            entry = json.loads(row)
        except ValueError:
            return
        if isinstance(entry, dict) and entry.get("type") != "session" and isinstance(entry.get("id"), str):
            self.leaf = entry["id"]
            self.known.add(entry["id"])

    def append(self, made: bytes) -> None:
        """A line of its own: never glued to a torn one."""
        if not self.text.endswith("\n"):
            self.text += "\n"
        self.text += made.decode()
        self._know(made.decode())


def _message(session: _Session, id: str, message: Any) -> bytes:
    record = decoded(message)
    assert record is not None
    return lines.message_line(id, session.leaf, NOW, record)


def _compaction(session: _Session, id: str, summary: str, kept: str, tokens: int, *_more: Any) -> bytes:
    return lines.compaction_line(id, session.leaf, NOW, summary, kept, tokens, Checkpoint(), b"{}")


def _branch_summary(session: _Session, id: str, at: str | None, summary: str, *_more: Any) -> bytes:
    return lines.branch_summary_line(id, at, NOW, at or "root", summary)


def _custom(session: _Session, id: str, kind: str, data: Any = None) -> bytes:
    body = None if _absent(data) else json.dumps(data).encode()
    return lines.custom_line(id, session.leaf, NOW, kind, body)


def _label(session: _Session, id: str, target: str, label: Any = None) -> bytes:
    return lines.label_line(id, session.leaf, NOW, target, None if _absent(label) or not label else label)


def _absent(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and "$js" in value)


_WRITERS: dict[str, Callable[..., bytes]] = {
    "appendMessage": _message,
    "appendModelChange": lambda s, id, provider, model: lines.model_change_line(
        id, s.leaf, NOW, provider, model
    ),
    "appendThinkingLevelChange": lambda s, id, level: lines.thinking_line(id, s.leaf, NOW, level),
    "appendCompaction": _compaction,
    "appendSessionInfo": lambda s, id, name: lines.session_info_line(id, s.leaf, NOW, name.strip()),
    "appendLabelChange": _label,
    "appendCustomEntry": _custom,
    "branchWithSummary": _branch_summary,
}


def replayed(case: Case) -> tuple[str, list[int]]:
    """The text of the file after all operations, and how many lines it had after each."""
    session = _Session(case["input"]["file_text"])
    counts = []
    for (name, *arguments), returned in zip(case["input"]["ops"], case["expected"]["returned"], strict=True):
        _run(session, name, arguments, returned)
        counts.append(len([row for row in session.text.split("\n") if row.strip()]))
    return session.text, counts


def _run(session: _Session, name: str, arguments: list[Any], returned: Any) -> None:
    if name == "resetLeaf":
        session.leaf = None
    elif name == "branch":
        session.leaf = arguments[0] if arguments[0] in session.known else session.leaf
    elif name in _WRITERS and isinstance(returned, str):
        session.append(_WRITERS[name](session, returned, *arguments))
    elif isinstance(returned, str):
        session.append(_foreign(session, returned, name, arguments))


def _foreign(session: _Session, id: str, name: str, arguments: list[Any]) -> bytes:
    """Entries that only extensions of the reference write; ours reads them and carries them."""
    if name != "appendCustomMessageEntry":
        raise ValueError(f"no such operation here: {name}")
    keys = ("customType", "content", "display", "details")
    fields = {k: v for k, v in zip(keys, arguments, strict=False) if not _absent(v)}
    head = {"type": "custom_message", "id": id, "parentId": session.leaf, "timestamp": lines.iso(NOW)}
    return json.dumps(head | fields).encode() + b"\n"
