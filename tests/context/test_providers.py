"""Every provider of the policy table takes every history, also after a switch from any other."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers_histories import HISTORIES, png
from helpers_messages import OPUS, SONNET, call, items, result, says, user
from helpers_policy import ROWS
from helpers_strict import complaints
from helpers_wire import bedrock_complaints, google_complaints
from perdure.context import pipeline
from perdure.context.changed import NOTHING_DECIDED, Changed
from perdure.context.environment import resolve
from perdure.context.numbers import limits
from perdure.context.policy import policy_for
from perdure.context.safety.gemini import SIGNATURES, THOUGHTS, fit, is_base64
from perdure.context.safety.image_floor import OLD_IMAGES
from perdure.context.safety.sanitize import sanitize
from perdure.context.safety.seal import seal
from perdure.context.safety.thinking import same_model
from perdure.context.wire import Memo, render
from perdure.context.wire.google import UNSIGNED, wire_name
from perdure.contracts import Assembled
from perdure.edges.models import strict
from perdure.edges.models.classify import classify
from perdure.edges.models.rules import bedrock, google, messages
from perdure.records import (
    Assistant,
    Image,
    Items,
    ModelInfo,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    User,
)

GEMINI = ModelInfo("google", "gemini-2.5-pro", "google-generative-ai", thinking="adaptive")
GEMINI_3 = replace(GEMINI, id="gemini-3-pro-preview")
CONVERSE = "bedrock-converse-stream"
NOVA = ModelInfo("amazon-bedrock", "us.amazon.nova-pro-v1:0", CONVERSE)
CLAUDE = ModelInfo("amazon-bedrock", "anthropic.claude-sonnet-4-5-v1:0", CONVERSE, thinking="enabled")
NEWER = replace(CLAUDE, id="anthropic.claude-opus-4-6-v1", thinking="adaptive")
OLDER = replace(CLAUDE, id="anthropic.claude-3-7-sonnet-v1:0")
ROUTED = ModelInfo("minimax", "m2", "anthropic-messages", thinking="enabled")
MODELS = [GEMINI, GEMINI_3, replace(GEMINI, images=False), NOVA, CLAUDE, NEWER, OLDER, SONNET, OPUS, ROUTED]
CHECKS = {
    "google-generative-ai": google_complaints,
    CONVERSE: bedrock_complaints,
    "anthropic-messages": complaints,
}

EVERY = [ModelInfo(row[0], row[1], row[2], thinking=kind) for row in ROWS for kind in ("none", "adaptive")]
EVERY += [ModelInfo(name, "m", api) for name in ("opencode", "mistral") for api in strict.FAMILIES]
EVERY = [model for model in EVERY if model.api in strict.FAMILIES]

READ = ToolSpec("read", "Reads a file", b'{"type":"object","properties":{"path":{"type":"string"}}}')
SYSTEM = "You are perdure.\n<!-- PERDURE_CACHE_BOUNDARY -->\nRuntime: test"
EXAMPLES = int(os.environ.get("PERDURE_EXAMPLES", "20"))  # of each property; more where there is time
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES)
LEVELS = st.sampled_from(["off", "low", "high"])
SIGNED = st.lists(st.sampled_from([None, "c2ln", "c2lnbg==", "_-8", "no base64!", "\ud83d"]), min_size=1)


def resigned(history: Items, makers: list[ModelInfo], signatures: list[str | None]) -> Items:
    """The history as if these models had made its answers, with such signatures on every block."""
    count = 0
    out = []
    for item in history:
        message = item.message
        if isinstance(message, Assistant):
            blocks: list[Any] = []
            for block in message.content:
                if isinstance(block, Text | ToolCall | Thinking):
                    block = replace(block, signature=signatures[count % len(signatures)])
                    count += 1
                blocks.append(block)
            maker = makers[count % len(makers)]
            message = replace(message, content=tuple(blocks), provider=maker.provider, model=maker.id)
        out.append(replace(item, message=message))
    return tuple(out)


OWNED = st.builds(resigned, HISTORIES, st.lists(st.sampled_from(MODELS), min_size=1, max_size=4), SIGNED)


def body_of(done: Changed, model: ModelInfo, level: str = "off", **options: Any) -> bytes:
    options = {"system": SYSTEM, "tools": (READ,), "max_tokens": 8000} | options
    thinking = level if done.thinking else "off"
    return render(done.items, model=model, policy=policy_for(model), thinking_level=thinking, **options)


def sealed(history: Items, model: ModelInfo, level: str = "off") -> Changed:
    return seal(history, policy_for(model), model, thinking=level)


def taken(body: bytes, model: ModelInfo) -> dict[str, Any]:
    """The body, once its own oracle and the strict model have found nothing."""
    assert CHECKS[model.api](body) == []
    found: dict[str, Any] = json.loads(body)
    strict.validate(found, model=model)
    return found


@SLOW
@given(OWNED, st.sampled_from(MODELS), LEVELS, st.booleans())
def test_no_request_is_refused_for_its_structure_by_any_family(history, model, level, tools):
    body = body_of(sealed(history, model, level), model, level, **({} if tools else {"tools": ()}))
    taken(body, model)


@SLOW
@given(OWNED, st.sampled_from(EVERY), LEVELS)
def test_no_row_of_the_policy_table_makes_a_request_that_is_refused(history, model, level):
    strict.validate(json.loads(body_of(sealed(history, model, level), model, level)), model=model)


@SLOW
@given(OWNED, st.sampled_from(MODELS), LEVELS)
def test_sealing_again_changes_nothing_for_any_family(history, model, level):
    once = sealed(history, model, level)
    again = sealed(once.items, model, level if once.thinking else "off")
    assert (again.items, again.lines) == (once.items, ())


@SLOW
@given(OWNED, OWNED, st.lists(st.sampled_from(MODELS), min_size=2, max_size=4))
def test_a_session_that_switches_between_families_is_taken_by_each(first, more, models):
    memo, scratch, grown = Memo(), pipeline.Scratch(), first
    for model in models:
        env = resolve("agent:main:main", model, SYSTEM, (READ,), limits(200_000))
        stage = pipeline.history(grown, env, NOTHING_DECIDED, scratch=scratch)
        made = pipeline.request(
            stage,
            Assembled(stage.items),
            env,
            decided=NOTHING_DECIDED,
            unseen=frozenset(),
            hooks=(),
            scratch=scratch,
        )
        taken(made.body, model)
        done = sealed(grown, model)
        assert body_of(done, model, memo=memo) == body_of(done, model)
        grown = grown + more


@SLOW
@given(OWNED, st.sampled_from([GEMINI_3, CLAUDE]))
def test_no_text_that_a_user_wrote_is_lost_on_the_way_to_another_family(history, model):
    done = sealed(history, model)
    whole = json.dumps(json.loads(body_of(done, model)), ensure_ascii=False)
    for item in done.items:
        for block in item.message.content if isinstance(item.message, User) else ():
            if isinstance(block, Text):
                assert json.dumps(block.text, ensure_ascii=False)[1:-1] in whole


# --- google -------------------------------------------------------------------------------------------


def made_by(model: ModelInfo, *content: Any) -> Assistant:
    return replace(says(*content), provider=model.provider, model=model.id)


def google_body(history: Items, model: ModelInfo = GEMINI_3, **options: Any) -> dict[str, Any]:
    return taken(body_of(sealed(history, model), model, **options), model)


def test_results_stand_alone_behind_their_calls_and_pictures_follow() -> None:
    shot = ToolResult("b", "shot", (Image(png(9, 9), "image/png"),))
    history = items(user("go"), says(call("a"), call("b", "shot")), result("a"), shot, user("and?"))
    _, called, answers, said = google_body(history)["contents"]
    assert [part["functionCall"]["name"] for part in called["parts"]] == ["read", "shot"]
    assert [list(part) for part in answers["parts"]] == [["functionResponse"], ["functionResponse"]]
    assert [next(iter(part)) for part in said["parts"]] == ["inlineData", "text"]


def test_a_failed_result_is_told_as_an_error() -> None:
    history = items(user("go"), says(call("a")), result("a", "boom", is_error=True))
    (answer,) = google_body(history)["contents"][2]["parts"]
    assert answer["functionResponse"]["response"] == {"error": "boom"}


def test_its_own_signatures_go_back_and_those_of_others_do_not() -> None:
    mine = made_by(GEMINI_3, replace(call("a"), signature="c2lnbg=="))
    other = made_by(OPUS, replace(call("b"), signature="c2lnbg=="))
    contents = google_body(items(user("go"), mine, result("a"), other, result("b")))["contents"]
    signs = [c["parts"][0]["thoughtSignature"] for c in contents if c["role"] == "model"]
    assert signs == ["c2lnbg==", UNSIGNED]


def test_before_gemini_3_no_call_needs_a_signature() -> None:
    contents = google_body(items(user("go"), says(call("a")), result("a")), GEMINI)["contents"]
    assert "thoughtSignature" not in contents[1]["parts"][0]


def test_of_parallel_calls_only_the_first_is_signed() -> None:
    contents = google_body(items(user("go"), says(call("a"), call("b")), result("a"), result("b")))[
        "contents"
    ]
    assert ["thoughtSignature" in part for part in contents[1]["parts"]] == [True, False]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("read", "read"), ("1st", "_1st"), ("-x", "_-x"), ("a.b:c", "a.b:c"), ("9" * 64, "_" + "9" * 63)],
)
def test_a_tool_name_begins_with_a_letter_or_an_underscore(name: str, wanted: str) -> None:
    assert wire_name(name) == wanted


def test_a_result_that_names_another_tool_is_sent_under_its_calls_name() -> None:
    history = items(user("go"), says(call("a")), result("a", tool="write"))
    (answer,) = google_body(history)["contents"][2]["parts"]
    assert answer["functionResponse"]["name"] == "read"


def test_thoughts_are_not_sent_and_each_is_told_by_its_rule() -> None:
    mine = made_by(GEMINI_3, Thinking("hm", "c2ln"), "hello")
    only = made_by(GEMINI_3, Thinking("hm", "c2ln"))
    signed = made_by(GEMINI_3, Text("x", "no base64!"))
    done = fit(items(mine, only, signed), lambda answer: same_model(answer, GEMINI_3))
    assert [(line.decision, line.rule) for line in done.lines] == [
        ("in", THOUGHTS),
        ("left_out", THOUGHTS),
        ("in", SIGNATURES),
    ]
    assert [item.message.content for item in done.items] == [(Text("hello"),), (Text("x"),)]  # type: ignore[union-attr]


@given(st.binary(min_size=1, max_size=40), st.booleans())
def test_every_signature_in_base64_is_known_as_such(raw: bytes, padded: bool) -> None:
    for text in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        assert is_base64(text if padded else text.rstrip("="))
    assert not is_base64("")
    assert not is_base64("a b")


def test_google_is_asked_to_think_in_the_words_of_its_generation() -> None:
    done = sealed(items(user("go")), GEMINI)
    old, new = (json.loads(body_of(done, model, "high"))["generationConfig"] for model in (GEMINI, GEMINI_3))
    assert old["thinkingConfig"] == {"thinkingBudget": 4000, "includeThoughts": True}
    assert new["thinkingConfig"] == {"thinkingLevel": "high", "includeThoughts": True}
    assert "thinkingConfig" not in json.loads(body_of(done, GEMINI))["generationConfig"]


# --- bedrock ------------------------------------------------------------------------------------------


def test_reasoning_goes_back_whole_and_redacted_as_it_came() -> None:
    mine = made_by(NEWER, Thinking("hm", "sig"), Thinking("", "c2VjcmV0", True), call("a"))
    done = sealed(items(user("go"), mine, result("a")), NEWER, "low")
    blocks = taken(body_of(done, NEWER, "low"), NEWER)["messages"][1]["content"]
    assert blocks[0] == {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}}
    assert blocks[1] == {"reasoningContent": {"redactedContent": "c2VjcmV0"}}


def test_redacted_reasoning_that_is_no_base64_is_left_out() -> None:
    mine = made_by(NEWER, Thinking("", "no base64!", True), "hello")
    done = sealed(items(user("go"), mine, user("on")), NEWER, "low")
    assert b"redacted" not in body_of(done, NEWER, "low")


def test_points_of_the_cache_stand_behind_the_stable_system_and_the_newest_message() -> None:
    body = taken(body_of(sealed(items(user("go")), CLAUDE), CLAUDE, retention="long"), CLAUDE)
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "You are perdure."}, point, {"text": "Runtime: test"}]
    assert body["messages"][-1]["content"][-1] == point
    plain = body_of(sealed(items(user("go")), CLAUDE), CLAUDE, retention="none")
    assert b"cachePoint" not in plain
    assert b"CACHE_BOUNDARY" not in plain


def test_a_result_without_content_says_so() -> None:
    empty = ToolResult("a", "read", ())
    body = taken(body_of(sealed(items(user("go"), says(call("a")), empty), CLAUDE), CLAUDE), CLAUDE)
    assert body["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "(no output)"}]


# --- images -------------------------------------------------------------------------------------------


def shots(count: int, padding: int = 0) -> Items:
    raw = base64.b64encode(base64.b64decode(png(100, 100)) + bytes(padding)).decode()
    return items(*(User((Text(str(n)), Image(raw, "image/png"))) for n in range(count)))


def sent_images(done: Changed) -> int:
    return sum(isinstance(block, Image) for item in done.items for block in item.message.content)  # type: ignore[union-attr]


@pytest.mark.parametrize(("model", "most", "left"), [(CLAUDE, 20, 12), (GEMINI, 60, 30), (SONNET, 100, 12)])
def test_more_pictures_than_a_provider_takes_go_oldest_first(model: ModelInfo, most: int, left: int) -> None:
    assert sent_images(sanitize(shots(most), policy_for(model), model)) == most
    done = sanitize(shots(most + 1), policy_for(model), model)
    assert sent_images(done) == left
    assert {line.rule for line in done.lines} == {OLD_IMAGES}


@pytest.mark.parametrize("model", [SONNET, CLAUDE, GEMINI])
def test_pictures_too_heavy_together_leave_half_of_the_room_free(model: ModelInfo) -> None:
    rules = policy_for(model).images
    each = 2 * 1024 * 1024
    history = shots(rules.max_total // (each * 4 // 3) + 1, each)
    done = sanitize(history, policy_for(model), model)
    total = sum(len(b.data) for i in done.items for b in i.message.content if isinstance(b, Image))  # type: ignore[union-attr]
    assert 0 < total <= rules.max_total // 2
    assert sanitize(history[:-2], policy_for(model), model).lines == ()
    taken(body_of(sealed(history, model), model), model)


def test_a_gif_is_shown_to_claude_and_told_to_gemini() -> None:
    gif = Image(base64.b64encode(b"GIF89a\x09\0\x09\0" + bytes(20)).decode(), "image/gif")
    assert sent_images(sanitize(items(User((gif,))), policy_for(CLAUDE), CLAUDE)) == 1
    done = sanitize(items(User((gif,))), policy_for(GEMINI), GEMINI)
    assert "image/gif 9x9" in done.items[0].message.content[0].text  # type: ignore[union-attr]


# --- the strict models --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["rate_limit", "overloaded", "server", "auth", "billing", "overflow"])
@pytest.mark.parametrize(("family", "model"), [(google, GEMINI), (bedrock, CLAUDE)])
def test_a_refusal_in_any_wording_is_of_the_same_kind(family: Any, model: ModelInfo, fault: str) -> None:
    kinds = []
    for each, info in ((family, model), (messages, SONNET)):
        refused = each.FAMILY.refusal(fault, 10, info)
        kinds.append(classify(refused.status, f"{refused.error_type}: {refused.message}"))
    assert kinds[0] == kinds[1]


def broken(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The body with one place changed, or taken away."""
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    place: Any = body
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return body


TALK = items(user("go"), says(call("a"), call("b")), result("a"), result("b"), says("done"), user("on"))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("contents/0", None, "function call turn comes immediately"),
        ("contents/1/parts/1", None, "number of function response parts"),
        ("contents/2", None, "number of function response parts"),
        ("contents/2/parts/0", None, "number of function response parts"),
        ("contents/1/parts/0/functionCall/name", "1st", "Invalid function name"),
        ("contents/1/parts/0/functionCall/args", [], "Struct"),
        ("contents/1/parts/0/thoughtSignature", "no base64!", "Base64 decoding failed"),
        ("contents/1/parts/1/functionCall/id", "a", "Duplicate|doesn't answer"),
        ("contents/0/parts/0/text", "", "required oneof field"),
        ("contents/0/parts", [], "must not be empty"),
        ("contents/0/role", "system", "valid role"),
        ("contents/4", None, "end with a user role"),
        ("model", "x", "Unknown name"),
        ("generationConfig/maxOutputTokens", 10**6, "max_output_tokens"),
        ("tools/0/functionDeclarations/0/name", "a b", "Invalid function name"),
        ("systemInstruction/parts/0/text", "", "system_instruction"),
    ],
)
def test_google_refuses_what_breaks_a_rule(path: str, value: Any, said: str) -> None:
    body = google_body(TALK)
    with pytest.raises(strict.Refused, match=said):
        strict.validate(broken(body, path, value), model=GEMINI_3)


def test_gemini_3_refuses_an_open_call_without_a_signature() -> None:
    body = google_body(items(user("go"), says(call("a")), result("a")))
    with pytest.raises(strict.Refused, match="missing a thought_signature"):
        strict.validate(broken(body, "contents/1/parts/0/thoughtSignature", None), model=GEMINI_3)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("messages/0", None, "must start with a user message"),
        ("messages/2/content/0", None, "Expected toolResult blocks"),
        ("messages/1/content/1", None, "exceeds the number"),
        ("messages/1/content/0/toolUse/toolUseId", "a b", "regular expression"),
        ("messages/1/content/0/toolUse/input", [], "Provide a json object"),
        ("messages/0/content/0/text", " ", "is blank"),
        ("messages/0/content", [], "is empty"),
        ("messages/0/role", "system", "enum value set"),
        ("messages/4", None, "prefill"),
        ("toolConfig", None, "toolConfig field must be defined"),
        ("toolConfig/tools", [], "must not be empty"),
        ("modelId", "x", "extraneous key"),
        ("inferenceConfig/maxTokens", 10**6, "exceeds the model limit"),
    ],
)
def test_bedrock_refuses_what_breaks_a_rule(path: str, value: Any, said: str) -> None:
    body = taken(body_of(sealed(TALK, CLAUDE), CLAUDE), CLAUDE)
    with pytest.raises(strict.Refused, match=said):
        strict.validate(broken(body, path, value), model=CLAUDE)
