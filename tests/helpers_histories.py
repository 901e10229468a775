"""Hostile histories for properties: any roles in any order, odd ids, bytes, pictures, thinking."""

from __future__ import annotations

import base64
import struct
import zlib

from hypothesis import strategies as st

from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Item,
    Opaque,
    Provenance,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)


def png(width: int, height: int) -> str:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    data = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


IDS = st.sampled_from(
    ["", " ", "1", "a-b", "a_b", "call_1|fc_2", "toolu_01A", "exec:108", "\ud83d", "x" * 90]
)
NASTY = st.sampled_from(
    ["", "  \n", "hi", "\ud83d", "a\x00b", "\x1b[31mred", "\u202eevil", "HEARTBEAT_OK", "x" * 9000]
)
TEXTS = st.one_of(NASTY, st.text(st.characters(codec=None), max_size=12))
NAMES = st.sampled_from(["read", " read ", "", "bad name!", "a.b:c", "n" * 65, "\ud83d"])
ARGUMENTS = st.sampled_from(
    [
        b"{}",
        b'{"a":1}',
        b"null",
        b"",
        b"[1]",
        b"{",
        b'"{\\"a\\":1}"',
        b'{"a":"\\ud83d"}',
        b'{"a":1e999}',
        b'"x"',
    ]
)
IMAGES = st.sampled_from(
    [
        Image("", "image/png"),
        Image("!!", "image/png"),
        Image(png(9, 9), "image/gif"),
        Image(png(9000, 9), "image/png"),
        Image(png(1170, 2532), "image/png"),
        Image("aGVsbG8=", "image/png"),
    ]
)
SIGNED = st.builds(Thinking, TEXTS, st.sampled_from([None, "", "sig", "\ud83d"]), st.booleans())
CALLS = st.builds(ToolCall, IDS, NAMES, ARGUMENTS)
OPAQUE = st.just(Opaque("video", b"{}"))
BLOCKS = st.lists(st.one_of(st.builds(Text, TEXTS), SIGNED, CALLS, CALLS, IMAGES, OPAQUE), max_size=4).map(
    tuple
)
STOPS = st.sampled_from(["stop", "toolUse", "length", "error", "aborted"])
TIMES = st.integers(0, 9)
OWNERS = st.sampled_from(
    [("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-4-6"), ("openai", "gpt")]
)
ASSISTANTS = st.builds(
    lambda content, stop, owner, at: Assistant(content, stop, owner[0], "", owner[1], timestamp=at),
    BLOCKS, STOPS, OWNERS, TIMES,
)  # fmt: skip
ORIGINS = st.one_of(st.none(), st.just(Provenance("inter_session", "s\n1", None, "tool")))
MESSAGES = st.one_of(
    st.builds(User, BLOCKS, TIMES, ORIGINS),
    ASSISTANTS,
    ASSISTANTS,
    st.builds(ToolResult, IDS, NAMES, BLOCKS, st.booleans(), st.sampled_from([None, b"{}"])),
    st.builds(ToolResult, IDS, NAMES, BLOCKS, st.booleans(), st.sampled_from([None, b"{}"])),
    st.builds(Summary, TEXTS, st.just(0), TIMES),
    st.builds(BranchSummary, TEXTS),
    st.builds(Bash, TEXTS, TEXTS, st.sampled_from([None, 0, 2]), excluded=st.booleans()),
    st.builds(Custom, TEXTS, BLOCKS),
)
HISTORIES = st.lists(MESSAGES, max_size=14).map(
    lambda found: tuple(Item(f"e{n}", message) for n, message in enumerate(found))
)
