"""The reference's sanitising vectors: ours agrees, or departs by a rule that holds for unseen cases too.

Left out by function: OpenAI reasoning downgrades (no such wire here yet), usage snapshots (a message
without usage is a record without usage; nothing sent depends on it).
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from helpers_conformance import cases as vectors
from helpers_conformance import ident
from helpers_messages import SONNET, view
from helpers_pairing import DEPARTURES, by_our_rules, shown
from perdure.context.ids import normalise, wire_id
from perdure.context.policy import TranscriptPolicy, policy_for
from perdure.context.repair import SYNTHETIC, calls_of, repair
from perdure.context.sanitize import INVALID_CALL, contents, forget_stale_usage, sanitize
from perdure.context.strip import strip
from perdure.context.thinking import settle
from perdure.context.validate import FIRST_USER, validate
from perdure.records import Assistant, Items, Message, ModelInfo, Summary, Text, Thinking, ToolResult, User


def messages(items: Items) -> list[Message]:
    return [item.message for item in items]


def representable(case: dict[str, Any]) -> bool:
    found = case["input"]["messages"]
    return isinstance(found, list) and all(isinstance(one, dict) for one in found)


def cases(*functions: str) -> list[dict[str, Any]]:
    return [case for case in vectors("sanitize", *functions) if representable(case)]


# --- ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", vectors("sanitize", "sanitizeToolCallId"), ids=ident)
def test_a_single_id_is_rewritten_as_the_reference_does(case: dict[str, Any]) -> None:
    raw = case["input"]["id"]
    mode = case["params"].get("mode", "strict")
    assert wire_id(raw if isinstance(raw, str) else "", mode) == case["expected"]


def older_call_is_open(items: Items) -> bool:
    """An unanswered call of an earlier turn has the raw id of a later one."""
    waiting: dict[str, int] = {}
    here: set[str] = set()
    for item in items:
        message = item.message
        if isinstance(message, Assistant):
            here = {call.id for call in calls_of(message)}
            if any(waiting.get(each, 0) > 0 for each in here):
                return True
            for call in calls_of(message):
                waiting[call.id] = waiting.get(call.id, 0) + 1
        elif isinstance(message, ToolResult) and waiting.get(message.call_id, 0) > 0:
            waiting[message.call_id] -= 1
    return False


def two_id_fields(case: dict[str, Any]) -> bool:
    """A result with two id fields is one record with one id; the decoder decides which."""
    found = [m for m in case["input"]["messages"] if m.get("role") == "toolResult"]
    return any(not m.get("toolCallId") or "toolUseId" in m for m in found)


def odd_call(case: dict[str, Any]) -> bool:
    """A block whose id is not a string has no id in our records."""
    found = [b for m in case["input"]["messages"] for b in m.get("content") or [] if isinstance(b, dict)]
    return any("id" in b and not isinstance(b["id"], str) for b in found)


@pytest.mark.parametrize("case", cases("sanitizeToolCallIdsForCloudCodeAssist"), ids=ident)
def test_ids_are_rewritten_alike_on_both_sides(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    native = case["params"].get("preserveNativeAnthropicToolUseIds", False)
    policy = TranscriptPolicy(ids=case["params"].get("mode", "strict"), native_ids=native)
    done = normalise(source, policy)
    called = [
        call.id
        for item in done.items
        if isinstance(item.message, Assistant)
        for call in calls_of(item.message)
    ]
    assert len(set(called)) == len(called)
    if two_id_fields(case) or odd_call(case) or older_call_is_open(source):
        return
    assert messages(done.items) == messages(view(case["expected"]["out"]))
    assert (done.items is source) == case["expected"]["same_ref"]


def test_a_result_belongs_to_the_call_of_its_own_turn_though_an_older_one_is_open() -> None:
    calls = [{"type": "toolCall", "id": "exec_0", "name": "read", "arguments": {}}]
    said = {"role": "assistant", "content": calls}
    answer = {"role": "toolResult", "toolCallId": "exec_0", "toolName": "read", "content": "x"}
    first, second, result = messages(normalise(view([said, said, answer]), policy_for(SONNET)).items)
    assert isinstance(first, Assistant)
    assert isinstance(second, Assistant)
    assert isinstance(result, ToolResult)
    assert result.call_id == calls_of(second)[0].id != calls_of(first)[0].id


# --- thinking, details, usage, calls ------------------------------------------------------------------


def stamped(items: Items) -> Items:
    """As if the model of the request had made and signed every thinking block."""
    out = []
    for item in items:
        message = item.message
        if isinstance(message, Assistant):
            made = tuple(
                replace(b, signature="sig") if isinstance(b, Thinking) else b for b in message.content
            )
            message = replace(message, content=made, provider=SONNET.provider, model=SONNET.id)
        out.append(replace(item, message=message))
    return tuple(out)


def emptied(found: list[Message]) -> list[Message]:
    """The reference leaves blank text where thinking was all; blank text is refused, so it goes."""
    return [m for m in found if not (isinstance(m, Assistant) and m.content == (Text(""),))]


@pytest.mark.parametrize("case", cases("dropThinkingBlocks"), ids=ident)
def test_older_thinking_is_left_out_for_models_that_do_not_read_it(case: dict[str, Any]) -> None:
    source = stamped(view(case["input"]["messages"]))
    policy = replace(policy_for(SONNET), drop_thinking=True)
    done = messages(settle(source, SONNET, policy).items)
    if odd_content(case):
        # A string is one text, what isn't a block is never sent: the last message is the last one.
        assert all(
            isinstance(b, Thinking) is False for m in done if isinstance(m, Assistant) for b in m.content
        )
        return
    wanted = emptied(messages(stamped(view(case["expected"]["out"]))))
    if ends_in_thinking(source):
        # No message can end in thinking, so the last one's goes too.
        wanted = [m for m in wanted if not (isinstance(m, Assistant) and isinstance(m.content[-1], Thinking))]
    assert done == wanted


def odd_content(case: dict[str, Any]) -> bool:
    found = [m.get("content") for m in case["input"]["messages"] if m.get("role") == "assistant"]
    return any(not isinstance(c, list) or not all(isinstance(b, dict) for b in c) for c in found)


def ends_in_thinking(items: Items) -> bool:
    last = [i.message for i in items if isinstance(i.message, Assistant) and i.message.content][-1:]
    return any(isinstance(m, Assistant) and isinstance(m.content[-1], Thinking) for m in last)


@pytest.mark.parametrize("case", cases("stripToolResultDetails"), ids=ident)
def test_details_are_stripped_from_tool_results(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    done = strip(source)
    assert messages(done.items) == messages(view(case["expected"]["out"]))
    assert (done.items is source) == case["expected"]["same_ref"]


@pytest.mark.parametrize("case", cases("stripStaleAssistantUsageBeforeLatestCompaction"), ids=ident)
def test_usage_from_before_the_latest_compaction_is_forgotten(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    ours = messages(forget_stale_usage(source).items)
    theirs = messages(view(case["expected"]["out"]))
    assert [without_cost(m) for m in ours] == [without_cost(m) for m in theirs]


def without_cost(message: Message) -> Any:
    return (
        message.usage and (message.usage.prompt, message.usage.output)
        if isinstance(message, Assistant)
        else message
    )


@pytest.mark.parametrize("case", cases("repairToolCallInputs"), ids=ident)
def test_calls_that_cannot_be_made_are_left_out(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    done = contents(source, TranscriptPolicy(), SONNET)
    if case["params"].get("allowedToolNames"):
        # Tools of this request don't judge the past: what was called and answered is still told.
        assert messages(done.items) == messages(source)
        return
    assert messages(done.items) == messages(view(case["expected"]["out"]["messages"]))
    dropped = sum(1 for line in done.lines if line.rule == INVALID_CALL)
    assert dropped == case["expected"]["out"]["droppedToolCalls"]


@pytest.mark.parametrize("case", cases("sanitizeGoogleTurnOrdering"), ids=ident)
def test_a_history_begins_with_the_user_where_the_provider_wants_it(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    done = messages(validate(source, TranscriptPolicy(first_user=True)).items)
    wanted = [
        User((Text(FIRST_USER),)) if m == User((Text("(session bootstrap)"),), 1760000000000) else m
        for m in messages(view(case["expected"]["out"]))
    ]
    assert done == wanted


# --- the policy table ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", vectors("sanitize", "resolveTranscriptPolicy"), ids=ident)
def test_a_provider_without_a_row_is_judged_by_its_api(case: dict[str, Any]) -> None:
    given, wanted = case["params"], case["expected"]
    ours = policy_for(
        ModelInfo(given.get("provider") or "", given.get("modelId") or "", given.get("modelApi") or "")
    )
    assert ours.full == (wanted["sanitizeMode"] == "full")
    assert (ours.ids != "none") == wanted["sanitizeToolCallIds"]
    assert ours.ids == wanted.get("toolCallIdMode", "none")
    assert ours.native_ids == wanted["preserveNativeAnthropicToolUseIds"]
    assert ours.pairing == wanted["repairToolUseResultPairing"]
    assert ours.keep_signatures == wanted["preserveSignatures"]
    assert ours.base64_signatures == bool(wanted["sanitizeThinkingSignatures"])
    assert ours.drop_thinking == wanted["dropThinkingBlocks"]
    assert ours.first_user == wanted["applyGoogleTurnOrdering"]
    assert ours.merge_assistants == wanted["validateGeminiTurns"]
    assert ours.merge_users == wanted["validateAnthropicTurns"]
    assert ours.synthesise == wanted["allowSyntheticToolResults"]


# --- the whole pipeline -------------------------------------------------------------------------------


def policy_of(found: dict[str, Any]) -> TranscriptPolicy:
    return TranscriptPolicy(
        full=found["sanitizeMode"] == "full",
        ids=found.get("toolCallIdMode", "none") if found["sanitizeToolCallIds"] else "none",
        native_ids=found["preserveNativeAnthropicToolUseIds"],
        keep_signatures=found["preserveSignatures"],
        drop_thinking=found["dropThinkingBlocks"],
        first_user=found["applyGoogleTurnOrdering"],
        merge_assistants=found["validateGeminiTurns"],
        merge_users=found["validateAnthropicTurns"],
    )


def sent(found: list[Message]) -> list[Any]:
    """What a comparison looks at: texts, calls, results, summaries.

    Thinking is judged by rules of its own; blank texts, and messages that hold nothing else, are never
    sent; lone surrogates are U+FFFD on the wire; the text of a made-up result is ours.
    """
    shown = [(said(message), message) for message in found]
    return [one for one, message in shown if not isinstance(message, Assistant) or one[-1]]


def said(message: Message) -> Any:
    if isinstance(message, Summary):
        return (message.summary,)
    blocks = [b for b in getattr(message, "content", ()) if not isinstance(b, Thinking)]
    parts = [text_of(b.text) if isinstance(b, Text) else b for b in blocks]
    call_id = message.call_id if isinstance(message, ToolResult) else ""
    return (type(message), call_id, [part for part in parts if not isinstance(part, str) or part.strip()])


def text_of(text: str) -> str:
    if text == "{{SYNTHETIC_RESULT}}":
        return SYNTHETIC
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@pytest.mark.parametrize("case", cases("sanitizeSessionHistory+validateReplayTurns"), ids=ident)
def test_the_whole_of_sanitising_sends_what_the_reference_sends(case: dict[str, Any]) -> None:
    source = view(case["input"]["messages"])
    policy = policy_of(case["params"]["policy"])
    model = replace(SONNET, id="test-model", provider="anthropic")
    clean = contents(strip(source).items, policy, model).items
    assert shown(repair(clean).items, clean) == by_our_rules(clean)
    if any(applies(source) for applies in DEPARTURES.values()):
        return
    done = sanitize(source, policy, model).then(lambda now: validate(now, policy))
    assert sent(messages(done.items)) == sent(messages(view(case["expected"]["validated"])))
