"""Every recorded refusal comes in its recorded wording, and what a provider takes is taken."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from helpers_models import INFO, assistant, body, result, text, tool, use, user
from perdure.edges.models.strict import Refused, validate
from perdure.records import ModelInfo

OLD = ModelInfo("anthropic", "claude-sonnet-4-5", thinking="enabled")
NEW = ModelInfo("anthropic", "claude-opus-4-8", thinking="adaptive")
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def png(width: int, height: int) -> str:
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return base64.b64encode(head + b"\x08\x06\x00\x00\x00").decode()


def image(width: int = 10, height: int = 10, mime: str = "image/png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": mime, "data": png(width, height)}
    return {"type": "image", "source": source}


def refused(data: dict[str, Any], model: ModelInfo | None = None, known: bool = True) -> str:
    with pytest.raises(Refused) as caught:
        validate(data, model=model, known=known)
    assert caught.value.status in (400, 404)
    return caught.value.message


THINK = {"type": "thinking", "thinking": "hm", "signature": "s"}
ON = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "an unanswered call": (
        body(user("a"), assistant(use("toolu_A"), use("toolu_B")), user("b"), tools=[tool()]),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_A, "
        "toolu_B. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
    ),
    "a call answered one message late": (
        body(user("a"), assistant(use("toolu_A")), user("b"), user(result("toolu_A"))),
        "messages.1: `tool_use` ids were found without",
    ),
    "half of a batch answered": (
        body(user("a"), assistant(use("A"), use("B")), user(result("A"))),
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: B.",
    ),
    "a result without its call": (
        body(user("a"), assistant(text("x")), user(text("y"), result("toolu_X"))),
        "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: toolu_X. "
        "Each `tool_result` block must have a corresponding `tool_use` block in the previous message.",
    ),
    "a result in the first message": (
        body(user(result("toolu_X"))),
        "messages.0.content.0: unexpected `tool_use_id` found",
    ),
    "a reused id": (
        body(
            user("a"),
            assistant(use("A")),
            user(result("A")),
            assistant(text("t"), use("A")),
            user(result("A")),
        ),
        "messages.3.content.1: `tool_use` ids must be unique",
    ),
    "two results of one call": (
        body(user("a"), assistant(use("A")), user(result("A"), result("A"))),
        "messages.2.content.1: each tool_use must have a single result. "
        "Found multiple `tool_result` blocks with id: A",
    ),
    "text before results": (
        body(user("a"), assistant(use("A")), user(text("first"), result("A"))),
        "messages.1: `tool_use` ids were found without",
    ),
    "an id of another provider": (
        body(user("a"), assistant(use("call_1|fc_2")), user(result("call_1|fc_2"))),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "an empty text": (body(user(text(""))), "messages: text content blocks must be non-empty"),
    "a blank text": (
        body(user(text(" \n"))),
        "messages: text content blocks must contain non-whitespace text",
    ),
    "a mark on an empty text": (
        body(user(text("", cache_control=MARK))),
        "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
    ),
    "an aborted turn stored without content": (
        body(user("a"), assistant(), user("b")),
        "messages.1: all messages must have non-empty content except for the optional final assistant "
        "message",
    ),
    "a prefill": (
        body(user("a"), assistant(text("b"))),
        "This model does not support assistant message prefill. "
        "The conversation must end with a user message.",
    ),
    "five marks": (
        body(user(*[text("x", cache_control=MARK)] * 5)),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "the automatic mark as the fifth": (
        body(user(*[text("x", cache_control=MARK)] * 4), cache_control=MARK),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    "an hour behind five minutes": (
        body(user(text("x", cache_control=MARK), text("y", cache_control=HOUR))),
        "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come after a "
        "ttl='5m' cache_control block. Note that blocks are processed in the following order: "
        "`tools`, `system`, `messages`.",
    ),
    "a tool name with a dot": (
        body(tools=[tool("a.b")]),
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    "two tools of one name": (body(tools=[tool(), tool()]), "tools: Tool names must be unique."),
    "a small budget": (
        body(thinking={"type": "enabled", "budget_tokens": 1000}),
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    "a budget over max_tokens": (
        body(thinking={"type": "enabled", "budget_tokens": 1024}),
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    "a tool loop that lost its thinking": (
        body(user("a"), assistant(use("A")), user(result("A")), **ON),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When "
        "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
        "lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
        "previous turns. To avoid this requirement, disable `thinking`. Please consult our documentation at "
        "https://docs.claude.com/en/docs/build-with-claude/extended-thinking",
    ),
    "thinking behind text": (
        body(user("a"), assistant(text("x"), THINK, text("y")), user("b")),
        "messages.1.content.0: If an assistant message contains any thinking blocks, the first block must be "
        "`thinking` or `redacted_thinking`. Found `text`.",
    ),
    "thinking at the end": (
        body(user("a"), assistant(THINK), user("b")),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    "a picture too wide": (
        body(user(image(8001))),
        "messages.0.content.0.image.source.base64.data: At least one of the image dimensions exceed max "
        "allowed size: 8000 pixels",
    ),
    "21 pictures, one of 2001 pixels": (
        body(user(*[image()] * 20, image(2001))),
        "messages.0.content.20.image.source.base64.data: At least one of the image dimensions exceed max "
        "allowed size for many-image requests: 2000 pixels",
    ),
    "an unknown field": (body(colour="red"), "colour: Extra inputs are not permitted"),
    "details of a tool result": (
        body(user("a"), assistant(use("A")), user(result("A", details={}))),
        "messages.2.content.0.tool_result.details: Extra inputs are not permitted",
    ),
    "a missing signature": (
        body(user("a"), assistant({"type": "thinking", "thinking": "x"}, text("y")), user("b")),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "a role of ours": (
        body({"role": "toolResult", "content": "x"}),
        "messages.0.role: Input should be 'user' or 'assistant'",
    ),
    "an assistant first": (body(assistant(text("a")), user("b")), "messages: first message must use"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_breaks_a_rule_is_refused_in_the_recorded_wording(name: str) -> None:
    data, message = CASES[name]
    assert refused(data).startswith(message)


TAKEN: dict[str, dict[str, Any]] = {
    "a plain question": body(),
    "a batch answered in another order": body(
        user("a"), assistant(use("A"), use("B")), user(result("B"), result("A"), text("and")), tools=[tool()]
    ),
    "an empty result": body(user("a"), assistant(use("A")), user(result("A", ""))),
    "users in a row": body(user("a"), user("b"), assistant(text("c")), user("d")),
    "20 wide pictures": body(user(*[image(8000)] * 20)),
    "21 pictures of 2000": body(user(*[image(2000)] * 21)),
    "an hour before five minutes": body(
        user(text("y", cache_control=MARK)),
        tools=[tool(cache_control=HOUR)],
        system=[text("s", cache_control=HOUR)],
    ),
    "a tool loop with its thinking": body(user("a"), assistant(THINK, use("A")), user(result("A")), **ON),
    "old thinking, now switched off": body(user("a"), assistant(THINK, text("x")), user("b")),
    "empty thinking with a signature": body(
        user("a"), assistant({"type": "thinking", "thinking": "", "signature": "s"}, text("x")), user("b")
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_a_provider_takes_is_taken(name: str) -> None:
    validate(TAKEN[name], model=INFO)


def test_rules_known_by_hearsay_only_can_be_switched_off() -> None:
    data = body(assistant(text("a")), user("b"))
    refused(data)
    validate(data, known=False)


def test_a_rule_that_was_recorded_stays_on_without_hearsay() -> None:
    data, message = CASES["an unanswered call"]
    assert refused(data, known=False).startswith(message)


def test_another_model_is_not_found_under_its_bare_id() -> None:
    with pytest.raises(Refused) as caught:
        validate(body(model="claude-3-5-haiku-latest"), model=INFO)
    assert (caught.value.status, caught.value.error_type) == (404, "not_found_error")
    assert caught.value.message == "model: claude-3-5-haiku-latest"


def test_an_older_model_continues_a_prefill_but_not_one_that_ends_in_a_blank() -> None:
    validate(body(user("a"), assistant(text("b")), model=OLD.id), model=OLD)
    message = refused(body(user("a"), assistant(text("b ")), model=OLD.id), OLD)
    assert message == "messages: final assistant content cannot end with trailing whitespace"


def test_thinking_kinds_belong_to_generations() -> None:
    refused(body(model=OLD.id, thinking={"type": "adaptive"}), OLD)
    refused(body(model=NEW.id, max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 2000}), NEW)
    validate(body(model=NEW.id, thinking={"type": "adaptive"}), model=NEW)


def test_more_output_than_the_model_has_is_refused() -> None:
    message = refused(body(max_tokens=INFO.max_output + 1), INFO)
    assert message.startswith(f"max_tokens: {INFO.max_output + 1} > {INFO.max_output}")


@pytest.mark.parametrize("junk", [None, 5, [], "x", {"type": []}, {"type": "text"}, {"type": "nope"}])
def test_junk_in_place_of_a_block_is_refused_and_never_crashes(junk: Any) -> None:
    refused(body({"role": "user", "content": [junk]}))
    refused(body({"role": "user", "content": [result("A", [junk])]}))


def test_ten_thousand_messages_are_checked_in_some_tens_of_milliseconds() -> None:
    turns = [m for n in range(5000) for m in (assistant(text("x"), use(f"t{n}")), user(result(f"t{n}")))]
    data = body(user("go"), *turns, tools=[tool()])
    best = min(_timed(data) for _ in range(3))
    assert best < 0.25, f"{best:.3f} s"  # about 0.03 s on an idle core


def _timed(data: dict[str, Any]) -> float:
    start = time.process_time()
    validate(data, model=INFO)
    return time.process_time() - start
