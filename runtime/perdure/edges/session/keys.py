"""Session keys as file names: reversible, and safe on every file system.

`agent:main:telegram:dm:123` ↔ `sessions/main/agent+main+telegram+dm+123.jsonl`. Only `a-z 0-9 _ - +`
and `%` stand in a name (so case-insensitive and normalising file systems keep keys apart, and no key can
say `..`); a name longer than a file system takes goes on in folders that end in `~`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import PurePath

from perdure.errors import UsageError

SUFFIX = ".jsonl"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_PIECE = 160  # a name holds 255 bytes; what stands beside a session file has longer names
_LONGEST = 1800  # a path's limit is 4,096 bytes
OTHER = "other"  # the folder of keys that name no agent


def encode(text: str) -> str:
    """Any text as characters that are safe in a name."""
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(_byte(b) for b in raw)


def decode(name: str) -> str:
    """The text of an encoded name. `ValueError` if it is none."""
    out, at = bytearray(), 0
    while at < len(name):
        if name[at] == "%":
            out.append(int(name[at + 1 : at + 3], 16))
            at += 3
        else:
            out += b":" if name[at] == "+" else name[at].encode()
            at += 1
    text = out.decode("utf-8", "surrogatepass")
    if encode(text) != name:
        raise ValueError(f"{name!r} is not the name of a session")
    return text


def relative_path(key: str) -> PurePath:
    """Where a key's file stands below `sessions/`. `UsageError` for a key that is empty or too long."""
    name = encode(key)
    if not name:
        raise UsageError("the session key is empty: give one like agent:main:cli:dm:local")
    if len(name) > _LONGEST:
        raise UsageError(f"the session key is too long ({len(key):,} characters): shorten it")
    pieces = [name[at : at + _PIECE] for at in range(0, len(name), _PIECE)]
    return PurePath(_folder(key), *(f"{piece}~" for piece in pieces[:-1]), pieces[-1] + SUFFIX)


def key_of(relative: PurePath) -> str:
    """The key whose file stands there. `ValueError` if the path is not one of ours."""
    parts = relative.parts
    folders, name = parts[1:-1], parts[-1]
    if not name.endswith(SUFFIX) or not all(part.endswith("~") for part in folders):
        raise ValueError(f"{relative} is not the path of a session")
    key = decode("".join(part[:-1] for part in folders) + name[: -len(SUFFIX)])
    if relative_path(key) != relative:
        raise ValueError(f"{relative} is not the path of a session")
    return key


def agent_of(key: str) -> str | None:
    """The agent that `agent:<agent>:…` names."""
    parts = key.split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" and parts[1] else None


def folders(agents: Iterable[str]) -> set[str]:
    """The folders that hold these agents' sessions, and those of keys that name no agent."""
    return {OTHER, *(_named(agent) for agent in agents)}


def _folder(key: str) -> str:
    return _named(agent_of(key) or "")


def _named(agent: str) -> str:
    name = encode(agent)
    if len(name) > _PIECE:
        return f"{name[:100]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return name or OTHER


def _byte(b: int) -> str:
    char = chr(b)
    return "+" if char == ":" else char if char in _PLAIN else f"%{b:02x}"
