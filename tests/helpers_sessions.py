"""Session files for tests: lines as other programs write them, and files made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perdure.context.tokens.estimator import Estimator
from perdure.edges.session import lines
from perdure.edges.session.facts import Checkpoint
from perdure.edges.session.load import load

STAMP = "2026-01-05T08:00:00.000Z"
HEADER = {"type": "session", "version": 3, "id": "s1", "timestamp": STAMP, "cwd": "/w"}


def line(entry: Mapping[str, Any]) -> bytes:
    """One entry, compact, without its newline."""
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def user(id: str, parent: str | None, text: str = "hi", **more: Any) -> dict[str, Any]:
    """A user message entry."""
    message = {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": STAMP, "message": message, **more}


def assistant(id: str, parent: str | None, text: str = "yes", **more: Any) -> dict[str, Any]:
    """An assistant message entry."""
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop"}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": STAMP, "message": message | more}


def calls(id: str, parent: str | None, *names: str) -> dict[str, Any]:
    """An assistant entry that asks for tools; a call's id is its name."""
    content = [{"type": "toolCall", "id": name, "name": "read", "arguments": {}} for name in names]
    message = {"role": "assistant", "content": content, "stopReason": "toolUse"}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": STAMP, "message": message}


def result(id: str, parent: str | None, call: str) -> dict[str, Any]:
    """A tool result entry."""
    content = [{"type": "text", "text": "out"}]
    message = {"role": "toolResult", "toolCallId": call, "toolName": "read", "content": content}
    return {"type": "message", "id": id, "parentId": parent, "timestamp": STAMP, "message": message}


def compaction(id: str, parent: str | None, kept: str, **more: Any) -> dict[str, Any]:
    """A compaction entry that keeps from `kept` on."""
    entry = {"type": "compaction", "id": id, "parentId": parent, "timestamp": STAMP, "summary": "S"}
    return entry | {"firstKeptEntryId": kept, "tokensBefore": 9, **more}


def off_chain(kind: str, id: str, leaf: str | None, **data: Any) -> dict[str, Any]:
    """An entry of ours beside the chain."""
    entry = {
        "type": "custom",
        "id": id,
        "parentId": leaf,
        "timestamp": STAMP,
        "customType": f"perdure.{kind}",
    }
    return entry | {"data": {"v": 1, "e": 1} | data}


def write(path: Path, entries: Iterable[Mapping[str, Any] | bytes], *, header: Any = HEADER) -> Path:
    """A file of a header and entries; bytes are written as they are, each on a line of its own."""
    rows = [*([] if header is None else [header]), *entries]
    path.write_bytes(b"".join((row if isinstance(row, bytes) else line(row)) + b"\n" for row in rows))
    return path


# --- random files ---------------------------------------------------------------------------------


class Scribe:
    """Interprets small numbers as a hostile history: the same numbers write the same file.

    Side branches, holes, parents later in the file, repeated ids, damaged lines, our own lines with
    truthful checkpoints, and lines of an owner that had lost the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.epoch = path, 1
        self.rows: list[bytes] = [line(HEADER)]
        self.ids: list[str] = []
        self.leaf: str | None = None

    def play(self, steps: Iterable[tuple[int, int, int]]) -> Path:
        """Write the file of these steps."""
        for number, (kind, pick, luck) in enumerate(steps):
            self._step(number, kind, pick, luck)
        return self.save()

    def save(self, end: bytes = b"\n") -> Path:
        """Write what there is so far."""
        self.path.write_bytes(b"\n".join(self.rows) + end)
        return self.path

    def _step(self, number: int, kind: int, pick: int, luck: int) -> None:
        id, parent = f"e{number}", self.leaf
        some = self.ids[pick % len(self.ids)] if self.ids else None
        match luck:
            case 1 | 2:
                parent = some
            case 3:
                parent = "nowhere"
            case 4:
                parent = f"e{number + 1 + pick % 4}"
            case 5 if some is not None and _KINDS[kind % len(_KINDS)] not in _OURS:
                id = some
            case 6:
                parent = id
            case _:
                pass
        self._entry(_KINDS[kind % len(_KINDS)], id, parent, some, pick)

    def _entry(self, kind: str, id: str, parent: str | None, some: str | None, pick: int) -> None:
        match kind:
            case "user":
                self._chain(id, user(id, parent, f"text {pick}"))
            case "said":
                self._chain(id, assistant(id, parent, provider="p", model=f"m{pick % 3}"))
            case "ours":
                facts = {
                    "v": 1,
                    "e": self.epoch,
                    "inbox": {"sender": "a", "mid": f"m{pick % 6}", "arrived": 1},
                }
                facts["decided"] = [{"key": some or id, "form": "pruned", "head": pick}]
                self._chain(id, user(id, parent, perdure=facts))
            case "compaction":
                kept = ("gone", id, some or id)[pick % 3]
                self._chain(id, compaction(id, parent, kept))
            case "thinking":
                self._chain(
                    id, entry("thinking_level_change", id, parent, thinkingLevel=("low", "high")[pick % 2])
                )
            case "model":
                self._chain(id, entry("model_change", id, parent, provider="q", modelId=f"n{pick % 3}"))
            case "name":
                self._chain(id, entry("session_info", id, parent, name=("", "one", "two")[pick % 3]))
            case "custom":
                self._chain(id, entry("custom", id, parent, customType="x.y", data={"type": "compaction"}))
            case "inbox":
                session = "s1" if pick % 4 else "other"
                data = {
                    "session": session,
                    "sender": "a",
                    "mid": f"m{pick % 6}",
                    "arrived": 2,
                    "content": "hi",
                }
                self.rows.append(line(off_chain("inbox", id, parent, **data, e=self.epoch)))
            case "branch":
                self.rows.append(line(off_chain("branch", id, some, e=self.epoch)))
                self.leaf = some
            case "resume":
                self.rows.append(
                    line(off_chain("resume", id, parent, entry=some or "", epoch=self.epoch, e=self.epoch))
                )
            case "torn":
                self.rows.append(line(user(id, parent))[: 5 + pick % 60])
            case "header":
                self.rows.append(line(HEADER))
            case "stale":  # its id is its own: a writer of ours never repeats one
                self.rows.append(line(user(f"stale{len(self.rows)}", parent, perdure={"v": 1, "e": 0})))
            case "owner":
                self.epoch += 1
                self.rows.append(line(off_chain("owner", id, parent, e=self.epoch, epoch=self.epoch)))
            case _:
                self.checkpoint(kind, id)

    def _chain(self, id: str, made: dict[str, Any]) -> None:
        self.rows.append(line(made))
        self.ids.append(id)
        self.leaf = id

    def checkpoint(self, kind: str, id: str) -> None:
        """What a truthful host would write here, by its own encoders."""
        opened = load(self.save()).opened()
        covered = opened.entries[0].id if opened.entries else None
        kept = covered if opened.compaction is not None and covered != opened.compaction else None
        record = Checkpoint(
            epoch=opened.epoch,
            leaf=opened.leaf,
            settings=opened.settings,
            name=opened.name,
            pending=opened.pending,
            recent=opened.recent,
            decisions=opened.decisions,
            learned=(Estimator("p/m", 3, prompt=700),),
            compactions=opened.compactions,
            prev=opened.compaction,
            kept=kept,
            ranges=merged((e.start, e.end) for e in opened.entries),
            gaps=opened.gaps,
            covered_bytes=7,
            session=opened.session_id,
        )
        if kind == "checkpoint":
            self.rows.append(lines.checkpoint_line(id, opened.leaf, 1, record).rstrip(b"\n"))
            return
        first = opened.entries[len(opened.entries) // 2].id if opened.entries else None
        record = replace(record, leaf=id, kept=first, compactions=opened.compactions + 1)
        made = lines.compaction_line(id, opened.leaf, 1, "sum", first, 5, record, b"{}")
        self.rows.append(made.rstrip(b"\n"))
        self.ids.append(id)
        self.leaf = id


_KINDS = (
    *("user", "said", "user", "said", "ours", "ours", "compaction", "compacted", "checkpoint", "thinking"),
    *("model", "name", "custom", "inbox", "branch", "resume", "torn", "header", "stale", "owner", "user"),
)
_OURS = {"compacted", "checkpoint", "inbox", "branch", "resume", "owner", "ours"}  # never repeat an id


def entry(kind: str, id: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    """An entry of any type."""
    return {"type": kind, "id": id, "parentId": parent, "timestamp": STAMP, **fields}


def merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Byte ranges in order, neighbours joined."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)
