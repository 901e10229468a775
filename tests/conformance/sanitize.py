"""Sanitising: ids, thinking, details, usage, calls, turn order, and whole runs of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from conformance.messages import messages, source, unreadable, view
from conformance.rules import Case, Check, Departure, Function, holds, same
from helpers_messages import SONNET
from helpers_pairing import DEPARTURES, by_our_rules, shown
from helpers_strict import complaints
from perdure.context.changed import Changed
from perdure.context.policy import TranscriptPolicy, policy_for
from perdure.context.safety.contents import INVALID_CALL, contents
from perdure.context.safety.ids import normalise, wire_id
from perdure.context.safety.reasoning import cut_pairs, drop_alone
from perdure.context.safety.repair import SYNTHETIC, calls_of, repair
from perdure.context.safety.sanitize import sanitize
from perdure.context.safety.seal import seal
from perdure.context.safety.strip import strip
from perdure.context.safety.thinking import settle
from perdure.context.safety.validate import FIRST_USER, validate
from perdure.context.tokens.estimator import Estimator
from perdure.context.wire import render
from perdure.records import (
    Assistant,
    Block,
    Items,
    Message,
    ModelInfo,
    Summary,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
)

UNREADABLE = "what is no message gets into no view"


def never_refused(case: Case) -> None:
    """Whatever the history, the request made of it is well-formed by the provider's own rules."""
    policy = policy_for(SONNET)
    done = seal(source(case), policy, SONNET)
    raw = render(done.items, system="s", tools=(), model=SONNET, policy=policy, max_tokens=900)
    same(complaints(raw), [], "the request is refused")


# --- ids ------------------------------------------------------------------------------------------


def _one_id(case: Case) -> None:
    raw = case["input"]["id"]
    same(wire_id(raw if isinstance(raw, str) else "", case["params"].get("mode", "strict")), case["expected"])


def _id_policy(case: Case) -> TranscriptPolicy:
    native = case["params"].get("preserveNativeAnthropicToolUseIds", False)
    return TranscriptPolicy(ids=case["params"].get("mode", "strict"), native_ids=native)


def _called(items: Items) -> list[str]:
    return [c.id for m in messages(items) if isinstance(m, Assistant) for c in calls_of(m)]


def _ids_fit(case: Case) -> None:
    """In the alphabet, unique, and the same on both sides: what a result answered, it answers still."""
    items, policy = source(case), _id_policy(case)
    done = normalise(items, policy)
    alphabet = r"[A-Za-z0-9]{9}" if policy.ids == "strict9" else r"[A-Za-z0-9]{1,40}"
    native = r"|toolu_[A-Za-z0-9_]{1,58}" if policy.native_ids else ""
    ids = _called(done.items)
    holds(all(re.fullmatch(alphabet + native, each) for each in ids), f"ids are in the alphabet: {ids}")
    same(len(set(ids)), len(ids), "ids that differ")
    same(_answered(done.items), _answered(items), "which call each result answers")


def _answered(items: Items) -> list[int | None]:
    """For each result the place of the call it answers: of its own turn first, then the oldest open one."""
    open_: list[tuple[int, str]] = []
    turn: list[tuple[int, str]] = []
    found: list[int | None] = []
    count = 0
    for message in messages(items):
        if isinstance(message, Assistant):
            open_, turn = open_ + turn, []
            for call in calls_of(message):
                turn.append((count, call.id))
                count += 1
        elif isinstance(message, ToolResult):
            mine = next((one for one in (*turn, *open_) if one[1] == message.call_id), None)
            found.append(mine[0] if mine else None)
            turn, open_ = [t for t in turn if t != mine], [o for o in open_ if o != mine]
    return found


def _ids_agree(case: Case) -> None:
    items = source(case)
    done = normalise(items, _id_policy(case))
    same(messages(done.items), messages(view(case["expected"]["out"])))
    same(done.items is items, case["expected"]["same_ref"], "untouched")


def _older_call_open(case: Case) -> bool:
    """An unanswered call of an earlier turn has the raw id of a later one."""
    waiting: dict[str, int] = {}
    for message in messages(source(case)):
        if isinstance(message, Assistant):
            if any(waiting.get(call.id, 0) > 0 for call in calls_of(message)):
                return True
            for call in calls_of(message):
                waiting[call.id] = waiting.get(call.id, 0) + 1
        elif isinstance(message, ToolResult) and waiting.get(message.call_id, 0) > 0:
            waiting[message.call_id] -= 1
    return False


def _objects(case: Case, role: str) -> list[dict[str, Any]]:
    given = case["input"]["messages"]
    return [m for m in given if isinstance(m, dict) and m.get("role") == role]


def _two_id_fields(case: Case) -> bool:
    """A result with none or several id fields is one record with one id."""
    found = _objects(case, "toolResult")
    return any(not m.get("toolCallId") or "toolUseId" in m for m in found)


def _odd_id(case: Case) -> bool:
    """A call whose id is no text: the reference leaves it alone, in our records it is one."""
    calls = ("toolCall", "toolUse", "functionCall")
    found = [
        b
        for m in _objects(case, "assistant")
        for b in (m["content"] if isinstance(m.get("content"), list) else [])
        if isinstance(b, dict) and b.get("type") in calls
    ]
    return any(not isinstance(b.get("id"), str) or not b["id"] for b in found)


# --- thinking -------------------------------------------------------------------------------------


def _stamped(items: Items) -> Items:
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


def _without_older_thinking(case: Case) -> Items:
    policy = replace(policy_for(SONNET), drop_thinking=True)
    return settle(_stamped(source(case)), SONNET, policy).items


def _thinking_agrees(case: Case) -> None:
    wanted = messages(_stamped(view(case["expected"]["out"])))
    # The reference leaves blank text where thinking was all; blank text is refused, so it goes.
    wanted = [m for m in wanted if not (isinstance(m, Assistant) and m.content == (Text(""),))]
    same(messages(_without_older_thinking(case)), wanted)


def _thinking_only_last(case: Case) -> None:
    """No thinking but that of the last assistant message; all else that it said is still there."""
    done, items = messages(_without_older_thinking(case)), _stamped(source(case))
    said = [m for m in done if isinstance(m, Assistant)]
    last = next((m for m in reversed(messages(items)) if isinstance(m, Assistant)), None)
    with_thinking = [m for m in said if any(isinstance(b, Thinking) for b in m.content)]
    holds(all(m == last for m in with_thinking), "only the last message thinks")
    holds(not last or not last.content or not isinstance(last.content[-1], Thinking) or not with_thinking,
          "no message ends in thinking")  # fmt: skip
    had = [b for m in messages(items) if isinstance(m, Assistant) for b in m.content]
    same(_aloud(b for m in said for b in m.content), _aloud(had), "what was said aloud")


def _aloud(blocks: Iterable[Block]) -> list[Block]:
    """What is no thinking; blank text is refused, so it may go with the thinking before it."""
    return [b for b in blocks if not isinstance(b, Thinking) and b != Text("")]


def _odd_content(case: Case) -> bool:
    """Contents that are no lists of blocks: a string is one text, what isn't a block is none."""
    found = [m.get("content") for m in _objects(case, "assistant")]
    return any(not isinstance(c, list) or not c or not all(isinstance(b, dict) for b in c) for c in found)


def _misplaced(case: Case) -> bool:
    """The last thinking does not stand at the head of what the model said in a row, or ends it."""
    found = messages(source(case))
    last = max((at for at, m in enumerate(found) if isinstance(m, Assistant) and m.content), default=-1)
    message = found[last] if last >= 0 else None
    if not isinstance(message, Assistant) or not any(isinstance(b, Thinking) for b in message.content):
        return False
    sent = [b for b in message.content if not isinstance(b, Text) or b.text.strip()]
    in_a_row = last > 0 and isinstance(found[last - 1], Assistant)
    return in_a_row or not isinstance(sent[0], Thinking) or isinstance(sent[-1], Thinking)


# --- reasoning of the Responses API -----------------------------------------------------------------


def _downgraded(step: Callable[[Items], Changed]) -> Check:
    def check(case: Case) -> None:
        done = step(source(case)).items
        same(messages(done), messages(view(case["expected"]["out"])))

    return check


def _nothing_but_reasoning(step: Callable[[Items], Changed]) -> Check:
    """Only reasoning leaves, no text or call does; ids stay the same on both sides; once is enough."""

    def check(case: Case) -> None:
        items = repair(source(case)).items  # as it runs: each result stands behind its call
        done = step(items).items
        same(step(done).items, done, "doing it again")
        had, left = (
            [_bare(b) for m in messages(each) if isinstance(m, Assistant) for b in m.content]
            for each in (items, done)
        )
        same([b for b in left if b is not None], [b for b in had if b is not None], "what was said aloud")
        same(_answered(done), _answered(items), "which call each result answers")

    return check


def _bare(block: Block) -> Any:
    if isinstance(block, Thinking):
        return None
    return (block.name, block.arguments) if isinstance(block, ToolCall) else block


def _odd_blocks(case: Case) -> bool:
    """Blocks that are no objects, signatures that are no text, results with two id fields."""
    given = [m for m in case["input"]["messages"] if isinstance(m, dict)]
    blocks = [b for m in given for b in (m["content"] if isinstance(m.get("content"), list) else [])]
    signatures = (b.get("thinkingSignature", "") for b in blocks if isinstance(b, dict))
    odd = any(not isinstance(b, dict) for b in blocks) or not all(isinstance(s, str) for s in signatures)
    return odd or unreadable(case) or any("toolUseId" in m for m in given)


def _downgrade(step: Callable[[Items], Changed]) -> Function:
    rule = Departure(
        "what is no block, no signature or no message is none in our records",
        "the reference carries it through and judges by it; the decoder lets no such thing in",
        _odd_blocks,
        _nothing_but_reasoning(step),
    )
    return Function(_downgraded(step), (rule,), always=_nothing_but_reasoning(step))


# --- details, usage, calls, order -----------------------------------------------------------------


def _details(case: Case) -> None:
    items = source(case)
    done = strip(items)
    same(messages(done.items), messages(view(case["expected"]["out"])))
    same(done.items is items, case["expected"]["same_ref"], "untouched")


def _stale_usage(case: Case) -> None:
    """The reference zeroes it; ours reads none of it, so nothing that is sent may differ."""
    policy = policy_for(SONNET)
    ours, theirs = (
        seal(each, policy, SONNET).items for each in (source(case), view(case["expected"]["out"]))
    )
    same([_without_usage(m) for m in messages(ours)], [_without_usage(m) for m in messages(theirs)])
    same(Estimator().items(ours), Estimator().items(theirs), "how large it seems")


def _without_usage(message: Message) -> Any:
    return replace(message, usage=None) if isinstance(message, Assistant) else message


def _usage_snapshots(case: Case) -> None:
    """A usage that says nothing is no usage here; nothing that is sent depends on it."""
    ours, theirs = messages(source(case)), messages(view(case["expected"]["out"]))
    same([_whole_usage(m) for m in ours], [_whole_usage(m) for m in theirs], "usage")


def _whole_usage(message: Message) -> Any:
    return (message.usage or Usage()) if isinstance(message, Assistant) else message


def _inputs(case: Case) -> None:
    done = contents(source(case), TranscriptPolicy(), SONNET)
    wanted = case["expected"]["out"]
    same(messages(done.items), messages(view(wanted["messages"])))
    dropped = sum(1 for line in done.lines if line.rule == INVALID_CALL)
    same(dropped, wanted["droppedToolCalls"], "calls dropped")


def _allow_list(case: Case) -> bool:
    return bool(case["params"].get("allowedToolNames"))


def _no_object(case: Case) -> bool:
    """Arguments are there, and are no object."""
    given = (
        b.get("arguments", b.get("input"))
        for m in _objects(case, "assistant")
        for b in (m["content"] if isinstance(m.get("content"), list) else [])
        if isinstance(b, dict) and b.get("type") in ("toolCall", "toolUse", "functionCall")
    )
    return any(each is not None and not isinstance(each, dict) for each in given)


def _objects_only(case: Case) -> None:
    done = contents(source(case), TranscriptPolicy(), SONNET)
    made = [c for m in messages(done.items) if isinstance(m, Assistant) for c in calls_of(m)]
    holds(all(isinstance(json.loads(call.arguments), dict) for call in made), "arguments are objects")
    wanted = messages(view(case["expected"]["out"]["messages"]))
    names = [c.name for m in wanted if isinstance(m, Assistant) for c in calls_of(m)]
    same([call.name for call in made], names, "calls that stay")


def _past_not_judged(case: Case) -> None:
    items = source(case)
    names = [c.name for m in messages(items) if isinstance(m, Assistant) for c in calls_of(m)]
    done = contents(items, TranscriptPolicy(), SONNET)
    kept = [c.name for m in messages(done.items) if isinstance(m, Assistant) for c in calls_of(m)]
    good = [n.strip() for n in names if re.fullmatch(r"[A-Za-z0-9_:.-]{1,64}", n.strip())]
    same(kept, good, "names of the calls that are told")


def _user_first(case: Case) -> None:
    done = messages(validate(source(case), TranscriptPolicy(first_user=True)).items)
    theirs = User((Text("(session bootstrap)"),), 1760000000000)
    wanted = messages(view(case["expected"]["out"]))
    same(done, [User((Text(FIRST_USER),)) if m == theirs else m for m in wanted])


# --- policies and whole runs ----------------------------------------------------------------------


def _policy(case: Case) -> None:
    given, wanted = case["params"], case["expected"]
    ours = policy_for(
        ModelInfo(given.get("provider") or "", given.get("modelId") or "", given.get("modelApi") or "")
    )
    same(
        {
            "sanitizeMode": "full" if ours.full else "images-only",
            "sanitizeToolCallIds": ours.ids != "none",
            "toolCallIdMode": ours.ids,
            "preserveNativeAnthropicToolUseIds": ours.native_ids,
            "repairToolUseResultPairing": ours.pairing,
            "preserveSignatures": ours.keep_signatures,
            "sanitizeThinkingSignatures": ours.base64_signatures,
            "dropThinkingBlocks": ours.drop_thinking,
            "applyGoogleTurnOrdering": ours.first_user,
            "validateGeminiTurns": ours.merge_assistants,
            "validateAnthropicTurns": ours.merge_users,
            "allowSyntheticToolResults": ours.synthesise,
        },
        {
            key: wanted.get(key, "none" if key == "toolCallIdMode" else False)
            for key in (
                "sanitizeMode", "sanitizeToolCallIds", "toolCallIdMode", "preserveNativeAnthropicToolUseIds",
                "repairToolUseResultPairing", "preserveSignatures", "sanitizeThinkingSignatures",
                "dropThinkingBlocks", "applyGoogleTurnOrdering", "validateGeminiTurns",
                "validateAnthropicTurns", "allowSyntheticToolResults",
            )
        }
        | {"sanitizeThinkingSignatures": bool(wanted["sanitizeThinkingSignatures"])},
        "policy",
    )  # fmt: skip


def _policy_of(found: dict[str, Any]) -> TranscriptPolicy:
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


def _run(case: Case) -> tuple[Items, Items]:
    """What pairing gets to see, and what is sent."""
    items, policy = source(case), _policy_of(case["params"]["policy"])
    model = replace(SONNET, id="test-model", provider="anthropic")
    clean = contents(strip(items).items, policy, model).items
    return clean, sanitize(items, policy, model).then(lambda now: validate(now, policy)).items


def _paired(case: Case) -> None:
    clean, _ = _run(case)
    same(shown(repair(clean).items, clean), by_our_rules(clean), "by our rules")
    never_refused(case)


def _whole(case: Case) -> None:
    _, done = _run(case)
    same(_sent(messages(done)), _sent(messages(view(case["expected"]["validated"]))))


def _sent(found: list[Message]) -> list[Any]:
    """What a comparison looks at: texts, calls, results, summaries.

    Thinking is judged by rules of its own; blank texts, and messages that hold nothing else, are never
    sent; lone surrogates are U+FFFD on the wire; the text of a made-up result is ours.
    """
    told = [(_said(message), message) for message in found]
    return [one for one, message in told if not isinstance(message, Assistant) or one[-1]]


def _said(message: Message) -> Any:
    if isinstance(message, Summary):
        return (message.summary,)
    blocks = [b for b in getattr(message, "content", ()) if not isinstance(b, Thinking)]
    parts = [_text(b.text) if isinstance(b, Text) else b for b in blocks]
    call_id = message.call_id if isinstance(message, ToolResult) else ""
    return (type(message), call_id, [part for part in parts if not isinstance(part, str) or part.strip()])


def _text(text: str) -> str:
    if text == "{{SYNTHETIC_RESULT}}":
        return SYNTHETIC
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole_departures() -> tuple[Departure, ...]:
    def met(name: str) -> Any:
        return lambda case: DEPARTURES[name](source(case))

    reason = "see the pairing vectors: the same rules decide here, and the request they make is accepted"
    return tuple(Departure(name, reason, met(name), _paired) for name in DEPARTURES)


FUNCTIONS = {
    "sanitizeToolCallId": Function(_one_id),
    "sanitizeToolCallIdsForCloudCodeAssist": Function(
        _ids_agree,
        (
            Departure(
                UNREADABLE,
                "the reference carries it through untouched; ours has no such records",
                unreadable,
                _ids_fit,
            ),
            Departure(
                "a result has one id",
                "of several id fields (or none) the decoder makes one; the reference rewrites each apart",
                _two_id_fields,
                _ids_fit,
            ),
            Departure(
                "every call has an id that is text",
                "the reference leaves a call alone whose id is a number or missing: providers refuse it",
                _odd_id,
                _ids_fit,
            ),
            Departure(
                "a result belongs to the call of its own turn",
                "the reference gives it to the oldest open call of that id",
                _older_call_open,
                _ids_fit,
            ),
        ),
        always=_ids_fit,
    ),
    "dropThinkingBlocks": Function(
        _thinking_agrees,
        (
            Departure(
                "contents that are no blocks",
                "a string is one text and what isn't a block is never sent, so the last message is the last",
                _odd_content,
                _thinking_only_last,
            ),
            Departure(
                "thinking stands at the head of what is said in a row, and never ends it",
                "providers refuse any other order, so the last message's goes too",
                _misplaced,
                _thinking_only_last,
            ),
        ),
    ),
    "stripToolResultDetails": Function(_details),
    "downgradeOpenAIReasoningBlocks": _downgrade(drop_alone),
    "downgradeOpenAIFunctionCallReasoningPairs": _downgrade(cut_pairs),
    "sanitizeGoogleTurnOrdering": Function(_user_first),
    "stripStaleAssistantUsageBeforeLatestCompaction": Function(_stale_usage),
    "ensureAssistantUsageSnapshots": Function(_usage_snapshots),
    "repairToolCallInputs": Function(
        _inputs,
        (
            Departure(
                "tools of this request don't judge the past",
                "a call that was made and answered is told, whatever tools there are now",
                _allow_list,
                _past_not_judged,
            ),
            Departure(
                "arguments that are no object go as an empty one",
                "the call and its result stay a pair; the reference sends what can't be read",
                _no_object,
                _objects_only,
            ),
        ),
    ),
    "resolveTranscriptPolicy": Function(_policy),
    "sanitizeSessionHistory+validateReplayTurns": Function(_whole, _whole_departures(), always=_paired),
}
