"""No request is refused for structure, from any history whatever; and what is sent stays the same."""

from __future__ import annotations

import base64
import json
import struct
import zlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_messages import OPUS, SONNET
from helpers_strict import complaints
from perdure.context.changed import Changed, Decisions, as_decisions
from perdure.context.heartbeat import drop_silent_heartbeats
from perdure.context.limit import limit
from perdure.context.policy import policy_for
from perdure.context.repair import repair
from perdure.context.sanitize import sanitize
from perdure.context.seal import seal
from perdure.context.strip import strip
from perdure.context.validate import validate
from perdure.context.wire import Memo, render
from perdure.edges.models import strict
from perdure.records import (
    Assistant,
    Bash,
    BranchSummary,
    Custom,
    Image,
    Item,
    Items,
    ModelInfo,
    Opaque,
    Provenance,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)

READ = ToolSpec("read", "Reads a file", b'{"type":"object","properties":{"path":{"type":"string"}}}')


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
MODELS = st.sampled_from([SONNET, OPUS, replace(SONNET, thinking="none", images=False)])
LEVELS = st.sampled_from(["off", "low", "high"])
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def prepared(
    history: Items,
    model: ModelInfo,
    level: str,
    decided: Decisions,
    turns: int = 0,
    unseen: frozenset[str] | None = None,
) -> Changed:
    """All safety steps in their order, then the seal; as the pipeline runs them."""
    policy = policy_for(model)
    done = strip(history).then(
        lambda now: sanitize(now, policy, model, thinking=level, decided=decided, unseen=unseen)
    )
    done = done.then(lambda now: validate(now, policy))
    done = done.then(drop_silent_heartbeats)
    done = done.then(lambda now: limit(now, turns, decided))
    done = done.then(lambda now: repair(now, decided=decided, unseen=unseen))
    on = level if done.thinking else "off"
    return done.then(lambda now: seal(now, policy, model, thinking=on, decided=decided, unseen=unseen))


def body_of(
    done: Changed, model: ModelInfo, level: str, *, max_tokens: int = 8000, memo: Memo | None = None
) -> bytes:
    return render(
        done.items,
        system="You are perdure.\n<!-- PERDURE_CACHE_BOUNDARY -->\nRuntime: test",
        tools=(READ,),
        model=model,
        policy=policy_for(model),
        max_tokens=max_tokens,
        thinking_level=level if done.thinking else "off",
        memo=memo,
    )


@SLOW
@given(HISTORIES, MODELS, LEVELS, st.sampled_from([0, 1, 3]))
def test_no_request_is_refused_for_its_structure_whatever_the_history(history, model, level, turns):
    body = body_of(prepared(history, model, level, {}, turns), model, level)
    assert complaints(body) == []
    strict.validate(json.loads(body), model=model)


@SLOW
@given(HISTORIES, MODELS, LEVELS)
def test_a_history_that_skipped_every_step_is_made_acceptable_by_the_seal_alone(history, model, level):
    done = seal(history, policy_for(model), model, thinking=level)
    body = body_of(done, model, level)
    assert complaints(body) == []
    strict.validate(json.loads(body), model=model)


@SLOW
@given(HISTORIES, MODELS, LEVELS)
def test_sealing_what_is_sealed_changes_nothing(history, model, level):
    policy = policy_for(model)
    once = seal(history, policy, model, thinking=level)
    again = seal(once.items, policy, model, thinking=level if once.thinking else "off")
    assert again.items == once.items
    assert again.lines == ()
    decided = as_decisions(once.decisions)
    assert (
        seal(once.items, policy, model, thinking=level if once.thinking else "off", decided=decided).items
        == once.items
    )


@SLOW
@given(HISTORIES)
def test_repairing_what_is_repaired_changes_nothing(history):
    once = repair(history)
    again = repair(once.items, decided=as_decisions(once.decisions))
    assert again.items == once.items
    assert again.lines == ()


@SLOW
@given(HISTORIES, MODELS, LEVELS)
def test_the_same_history_gives_the_same_bytes_and_stays_as_it_was(history, model, level):
    before = repr(history)
    first = body_of(prepared(history, model, level, {}), model, level)
    assert body_of(prepared(history, model, level, {}), model, level) == first
    assert repr(history) == before


@SLOW
@given(HISTORIES, HISTORIES, LEVELS)
def test_no_entry_vanishes_without_a_named_rule(history, more, level):
    done = prepared(history, SONNET, level, {})
    sent = {item.entry for item in done.items}
    told = {line.entry for line in done.lines}
    assert {item.entry for item in history} <= sent | told


@SLOW
@given(HISTORIES, HISTORIES, MODELS)
def test_a_memo_never_changes_the_bytes(history, more, model):
    memo = Memo()
    for grown in (history, history + more, history[:3] + more):
        done = prepared(grown, model, "off", {})
        assert body_of(done, model, "off", memo=memo) == body_of(done, model, "off")


GROWTH = st.lists(MESSAGES.filter(lambda message: not isinstance(message, Summary)), max_size=6)


@SLOW
@given(HISTORIES, GROWTH, MODELS, LEVELS)
def test_messages_that_come_later_never_change_the_bytes_of_earlier_ones(history, later, model, level):
    more = tuple(Item(f"later{n}", message) for n, message in enumerate(later))
    first = prepared(history, model, level, {})
    decided = as_decisions(first.decisions)
    second = prepared(history + more, model, level, decided, unseen=frozenset(item.entry for item in more))
    one, two = (json.loads(body_of(done, model, level)) for done in (first, second))
    # Exceptions, each by its own rule: thinking turned off or on; the floor of images moved; thinking
    # from before a compaction goes when its tool loop closes.
    moved = any(decision.key == "images" for decision in second.decisions)
    compacted = level != "off" and any(isinstance(item.message, Summary) for item in history)
    if one.get("thinking") != two.get("thinking") or moved or compacted:
        return
    blocks, grown = ([unmarked(b, m) for m in each["messages"] for b in m["content"]] for each in (one, two))
    if first.items[-1].entry == "":
        blocks.pop()  # the line that stands for the user's next one
    assert grown[: len(blocks)] == blocks


def unmarked(block: dict[str, object], message: dict[str, object]) -> tuple[object, dict[str, object]]:
    return message["role"], {key: value for key, value in block.items() if key != "cache_control"}
