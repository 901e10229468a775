"""The reference program pi in a process of its own, and the same questions put to our own reader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.edges.session.encode import encode_message
from perdure.edges.session.tail import open_session

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / ".venv" / "peers" / "node_modules" / "@mariozechner" / "pi-coding-agent"
DRIVER = ROOT / "tests" / "interop" / "driver.mjs"
PATIENCE = 60.0  # seconds for one answer; the first includes the start of node
KEEP = (40, 400, 4_000)  # tokens its planner is asked to keep


def why_not() -> str:
    """Why pi can't run here; empty if it can."""
    if shutil.which("node") is None:
        return "there is no node on this machine"
    if not PACKAGE.is_dir():
        return "pi is not installed: run `make interop`"
    return ""


class Pi:
    """One node process that opens, plans and writes with pi's own code."""

    def __init__(self, home: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if "API_KEY" not in name}
        self._process = subprocess.Popen(
            ["node", os.fspath(DRIVER), os.fspath(PACKAGE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ | {"HOME": os.fspath(home), "PI_OFFLINE": "1"},
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=20)

    def ask(self, op: str, **arguments: Any) -> Any:
        """One request; an error of pi's fails the test with its words."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        patience = threading.Timer(PATIENCE, self._process.kill)
        patience.start()
        try:
            stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            stdin.flush()
            answer = json.loads(stdout.readline() or b'{"error": "pi ended, or did not answer in time"}')
        finally:
            patience.cancel()
        assert "error" not in answer, answer["error"]
        return answer["ok"]

    def look(self, file: Path, *, leaf: str | None = None, keep: Sequence[int] = KEEP) -> dict[str, Any]:
        """What pi sees in a file, and what it would compact. Changes no byte of it."""
        before = file.read_bytes()
        seen = self.ask("look", file=os.fspath(file), keep=list(keep), leaf=leaf)
        assert file.read_bytes() == before
        return dict(seen)

    def append(self, file: Path, *calls: Sequence[Any]) -> list[Any]:
        """Call methods of a `SessionManager` on an existing file; `{"$": n}` is what call n returned."""
        return list(self.ask("write", file=os.fspath(file), calls=calls)["results"])

    def create(self, folder: Path, *calls: Sequence[Any], cwd: str = "/workspace") -> Path:
        """A session that pi itself has written."""
        return Path(self.ask("write", folder=os.fspath(folder), cwd=cwd, calls=calls)["file"])

    def fork(self, file: Path, folder: Path) -> Path:
        """A copy of a whole session under a new id, as pi makes it for another working folder."""
        return Path(self.ask("fork", file=os.fspath(file), folder=os.fspath(folder), cwd="/elsewhere"))


# --- messages pi appends --------------------------------------------------------------------------

NO_COST = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
USAGE = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0) | {"cost": NO_COST}


def user(text: str | list[dict[str, Any]], at: int = 1) -> list[Any]:
    """Append a user message."""
    return ["appendMessage", {"role": "user", "content": text, "timestamp": at}]


def assistant(
    *content: str | dict[str, Any], model: str = "m", provider: str = "anthropic", at: int = 2, **more: Any
) -> list[Any]:
    """Append an answer of blocks and texts."""
    blocks = [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]
    stop = "toolUse" if any(b["type"] == "toolCall" for b in blocks) else "stop"
    message = {"role": "assistant", "content": blocks, "api": "anthropic-messages", "provider": provider}
    message |= {
        "model": model,
        "usage": USAGE | {"output": 5, "totalTokens": 5},
        "stopReason": stop,
        "timestamp": at,
    }
    return ["appendMessage", message | more]


def call(id: str, name: str = "read", **arguments: Any) -> dict[str, Any]:
    """A block that calls a tool."""
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def result(id: str, text: str = "out", name: str = "read", **more: Any) -> list[Any]:
    """Append a tool's result."""
    content = [{"type": "text", "text": text}]
    message = {"role": "toolResult", "toolCallId": id, "toolName": name, "content": content, "isError": False}
    return ["appendMessage", message | {"timestamp": 3} | more]


# --- the same by our reader -----------------------------------------------------------------------


def ours(file: Path) -> dict[str, Any]:
    """What we see in a file, in the words of `Pi.look`."""
    opened = open_session(file)
    chosen = opened.settings
    model = {"provider": chosen.provider, "modelId": chosen.model} if chosen.model else None
    return {
        "session": opened.session_id,
        "cwd": opened.cwd,
        "name": opened.name,
        "ids": [item.entry for item in opened.items],
        "messages": [normal(json.loads(encode_message(item.message))) for item in opened.items],
        "thinkingLevel": chosen.thinking,
        "model": model,
    }


def theirs(seen: Mapping[str, Any]) -> dict[str, Any]:
    """What pi saw, in the same words."""
    found = {name: seen[name] for name in ("session", "cwd", "name", "ids")}
    context = seen["context"]
    return found | {
        "messages": [normal(message) for message in context["messages"]],
        "thinkingLevel": context["thinkingLevel"],
        "model": context["model"],
    }


def normal(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in one spelling: text as a block, no field without a value, the price as a sum."""
    plain = {name: value for name, value in message.items() if value is not None}
    if isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    if plain["role"] == "custom":
        plain.pop("details", None)  # never shown to a model
    if "usage" in plain:
        usage = dict(plain["usage"])
        plain["usage"] = usage | {"cost": usage["cost"]["total"]}
    return plain


# --- a file without us ----------------------------------------------------------------------------


def without_ours(file: Path, copy: Path) -> Path:
    """The same session as if we had written no fact of our own: no line, no field, no detail."""
    rows = [json.loads(row) for row in file.read_bytes().splitlines()]
    gone = {r["id"]: r["parentId"] for r in rows if str(r.get("customType")).startswith("perdure.")}
    with copy.open("wb") as out:
        for row in rows:
            if row.get("id") in gone:
                continue
            row.pop("perdure", None)
            row.get("details", {}).pop("perdure", None)
            while row.get("parentId") in gone:  # another program went on behind a line of ours
                row["parentId"] = gone[row["parentId"]]
            out.write(json.dumps(row).encode() + b"\n")
    return copy
