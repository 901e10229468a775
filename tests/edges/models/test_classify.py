"""Every recorded failure has one kind, and what only looks like an overflow is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.edges.models.classify import classify, message_of, model_error, observed_tokens, retry_after
from perdure.edges.models.partial import read_arguments

SESSIONS = os.environ.get("PERDURE_SESSIONS", "")


def anthropic(kind: str, message: str) -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})


GEMINI = json.dumps(
    {
        "error": {
            "message": json.dumps(
                {
                    "error": {
                        "code": 429,
                        "message": "You exceeded your current quota, please check your plan "
                        "and billing details. Please retry in 43.5s.",
                        "status": "RESOURCE_EXHAUSTED",
                    }
                }
            ),
            "code": 429,
            "status": "Too Many Requests",
        }
    }
)

OVERFLOWS = [
    "400 " + anthropic("invalid_request_error", "prompt is too long: 252587 tokens > 200000 maximum"),
    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or "
    "`max_tokens` and try again",
    "This model's maximum context length is 128000 tokens. However, you requested 139211 tokens (135115 in "
    "the messages, 4096 in the completion). Please reduce the length of the messages or completion.",
    "Context overflow: estimated context size exceeds safe threshold during tool loop.",
    "Preemptive context overflow: estimated context size exceeds safe threshold during tool loop",
    "413 " + anthropic("request_too_large", "Request exceeds the maximum size"),
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "context_length_exceeded",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)",
    "prompt too long; exceeded max context length by 4 tokens",
    "model_context_window_exceeded",
    "the request exceeds the available context size, try increasing it",
    "400 上下文长度超出限制",
    "错误：上下文过长，请压缩上下文",
    "输入超出最大上下文",
    # OpenAI, and those who speak like it
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 290021 tokens. "
    "Please reduce the length of the messages.",
    json.dumps({"error": {"message": "too much", "code": "context_length_exceeded", "type": "x"}}),
    "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576, but got "
    "a string with length 1540820 instead.",
    "This endpoint's maximum context length is 163840 tokens. However, you requested about 200123 tokens "
    "(190000 of text input, 10123 in the output). Please reduce the length of either one.",
    # Google
    "Unable to submit request because the input token count is 2097153 but the model only supports up to "
    "1048576. Reduce the input token count and try again.",
    "Request payload size exceeds the limit: 20971520 bytes.",
    # Bedrock
    "ValidationException: Input is too long for requested model.",
    "The model returned the following errors: Too many input tokens. Max input tokens: 8192, request input "
    "token count: 9000",
    "Malformed input request: expected maxLength: 40000, actual: 46000, please reformat your input",
    # vLLM, SGLang, TGI
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that "
    "`max_model_len` is no smaller than the number of text tokens.",
    "Input prompt (5000 tokens) is too long and exceeds limit of 4096",
    "The input (33000 tokens) is longer than the model's context length (32768 tokens).",
    "Requested token count exceeds the model's maximum context length of 32768 tokens.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens "
    "and 200 `max_new_tokens`",
    "`inputs` must have less than 1024 tokens. Given: 2000",
    # Ollama, llama.cpp, LM Studio
    "input length exceeds the context length",
    "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
    json.dumps({"error": {"code": 400, "message": "too big", "type": "exceed_context_size_error"}}),
    "input is too large to process. increase the physical batch size",
    "Trying to keep the first 6402 tokens when context the overflows. However, the model is loaded with "
    "context length of only 4096 tokens, which is not enough.",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Reached context length of 4096 tokens with this model, but this model does not currently support "
    "mid-generation context overflow.",
    # Mistral, Groq, xAI, Cerebras, Copilot, GitHub Models
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion. Current length is 9012 while limit is 8192",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "prompt token count of 130000 exceeds the limit of 128000",
    json.dumps({"error": {"code": "model_max_prompt_tokens_exceeded", "message": "no"}}),
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    # Cohere, AI21, watsonx, Fireworks, MiniMax, DashScope, Zhipu, Doubao
    "too many tokens: total number of tokens (prompt and prediction) cannot exceed 4081 - received 5000. Try "
    "using a shorter prompt",
    "Prompt has too many tokens",
    "the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model",
    "The prompt is too long: 140000, model maximum context length: 131071",
    "invalid params, context window exceeds limit (2013)",
    "Range of input length should be [1, 129024]",
    "Prompt exceeds max length",
    "Total tokens of image and text exceed max message tokens",
    "Input length 140000 exceeds the maximum length 131072",
    "输入长度超过限制",
    "对话过长，请缩短后重试",
]

NO_OVERFLOWS: list[tuple[int | None, str, str]] = [
    (429, "ThrottlingException: Too many tokens, please wait before trying again.", "rate_limit"),
    (429, "Requests to this deployment have exceeded token rate limit of your pricing tier.", "rate_limit"),
    (
        413,
        "Request too large for model `llama` in organization `o` service tier `on_demand` on tokens per "
        "minute (TPM): Limit 6000, Requested 7012, please reduce your message size and try again.",
        "rate_limit",
    ),
    (
        400,
        anthropic(
            "invalid_request_error",
            "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for this model",
        ),
        "invalid",
    ),
    (400, "The maximum tokens you requested exceeds the model limit of 4096. Try a lower one.", "invalid"),
    (
        400,
        anthropic(
            "invalid_request_error",
            "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880",
        ),
        "invalid",
    ),
    (400, anthropic("invalid_request_error", "messages.3.content.1.text: must not be empty"), "invalid"),
    (
        400,
        anthropic("invalid_request_error", "tools.0.custom.name: String should have at most 128 characters"),
        "invalid",
    ),
    (400, "Invalid request: max_tokens cannot exceed 8192", "invalid"),
    (400, "max_tokens exceeds the limit of 8192", "invalid"),
    (400, "max_tokens超出限制", "invalid"),
    (None, "context deadline exceeded", "timeout"),
    (500, "Internal server error: context canceled", "server"),
    (503, "The engine is currently overloaded, please try again later", "overloaded"),
]

# What OpenAI, vLLM, llama.cpp, Ollama, LM Studio, OpenRouter, Mistral, Groq and xAI answer.
SERVERS: list[tuple[int | None, str, str]] = [
    (
        400,
        "invalid_request_error: context_length_exceeded: Your input exceeds the context "
        "window of this model. Please adjust your input and try again.",
        "overflow",
    ),
    (
        400,
        "This model's maximum context length is 4097 tokens. However, your messages resulted "
        "in 4105 tokens. Please reduce the length of the messages.",
        "overflow",
    ),
    (
        400,
        '{"object":"error","message":"This model\'s maximum context length is 32768 tokens. '
        "However, you requested 40000 tokens in the messages, Please reduce the length of the "
        'messages.","type":"BadRequestError","param":null,"code":400}',
        "overflow",
    ),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum "
        "context length is 4096 tokens and your request has 100 input tokens (8192 > 4096 - "
        "100).",
        "overflow",
    ),
    (
        400,
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. "
        "Make sure that `max_model_len` is no smaller than the number of text tokens.",
        "overflow",
    ),
    (
        400,
        "The prompt (total length 33000) is too long to fit into the model (context length "
        "32768). Make sure that `max_model_len` is no smaller",
        "overflow",
    ),
    (
        400,
        "VLLMValidationError: This model's maximum context length is 131072 tokens. However, "
        "your request has 140000 input tokens.",
        "overflow",
    ),
    (
        400,
        '{"error":{"code":400,"message":"request (9000 tokens) exceeds the available context '
        "size (8192 tokens), try increasing "
        'it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}',
        "overflow",
    ),
    (
        400,
        "the request exceeds the available context size. try increasing the context size or "
        "enable context shift",
        "overflow",
    ),
    (
        500,
        "input length exceeds maximum context length",
        "overflow",
    ),
    (
        400,
        "the input length exceeds the context length",
        "overflow",
    ),
    (
        500,
        "prompt too long; exceeded max context length by 4 tokens",
        "overflow",
    ),
    (
        400,
        "Trying to keep the first 6000 tokens when context the overflows. However, the model "
        "is loaded with context length of only 4096 tokens, which is not enough. Try to load "
        "the model with a larger context length, or provide a shorter input",
        "overflow",
    ),
    (
        400,
        "The number of tokens to keep from the initial prompt is greater than the context "
        "length. Try to load the model with a larger context length, or provide a shorter "
        "input",
        "overflow",
    ),
    (
        400,
        "Reached context length of 4096 tokens with model (arch: llama) that does not "
        "currently support mid-generation context overflow. Try reloading with a larger "
        "context length or shortening the prompt/chat.",
        "overflow",
    ),
    (
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested "
        "about 140000 tokens (130000 of text input, 10000 in the output). Please reduce the "
        'length of either one, or use the "middle-out" transform to compress your prompt '
        "automatically.",
        "overflow",
    ),
    (
        400,
        '{"object":"error","message":"Prompt contains 65673 tokens and 0 draft tokens, too '
        "large for model with 32768 maximum context "
        'length","type":"invalid_request_error","param":null,"code":"3051"}',
        "overflow",
    ),
    (
        400,
        "prompt contains 40000 tokens ... too large for model with 32768 maximum context length",
        "overflow",
    ),
    (
        413,
        "Request Entity Too Large",
        "overflow",
    ),
    (
        400,
        "Request too large for model `llama-3.3-70b-versatile` on tokens per minute (TPM): Limit 6000",
        "rate_limit",
    ),
    (
        413,
        '{"error":{"message":"Request too large for model `x` in organization `org` service '
        "tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested "
        '8000","type":"tokens","code":"rate_limit_exceeded"}}',
        "rate_limit",
    ),
    (
        400,
        "Please reduce the length of the messages or completion. Current length is 140000 "
        "while limit is 131072",
        "overflow",
    ),
    (
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "overflow",
    ),
    (
        400,
        "Input token length too long",
        "overflow",
    ),
    (
        429,
        "insufficient_quota: You exceeded your current quota, please check your plan and billing details.",
        "billing",
    ),
    (
        429,
        "Rate limit reached for gpt-5 in organization org-x on tokens per min (TPM): Limit "
        "30000, Used 20000, Requested 15000. Please try again in 10s.",
        "rate_limit",
    ),
    (
        429,
        "rate_limit_exceeded: slow down",
        "rate_limit",
    ),
    (
        429,
        "Requests rate limit exceeded",
        "rate_limit",
    ),
    (
        429,
        '{"message":"Service tier capacity exceeded for this '
        'model.","type":"service_tier_capacity_exceeded","code":"3505"}',
        "rate_limit",
    ),
    (
        402,
        "Insufficient credits. Add more using https://openrouter.ai/credits",
        "billing",
    ),
    (
        402,
        "This request requires more credits, or fewer max_tokens. You requested up to 32000 "
        "tokens, but can only afford 1523.",
        "billing",
    ),
    (
        402,
        "Insufficient Balance",
        "billing",
    ),
    (
        401,
        "invalid_request_error: invalid_api_key: Incorrect API key provided: sk-xx. You can "
        "find your API key at",
        "auth",
    ),
    (
        401,
        "No auth credentials found",
        "auth",
    ),
    (
        401,
        "Unauthorized",
        "auth",
    ),
    (
        401,
        "User not found.",
        "auth",
    ),
    (
        403,
        "Country, region, or territory not supported",
        "auth",
    ),
    (
        404,
        "model_not_found: The model `gpt-9` does not exist or you do not have access to it.",
        "not_found",
    ),
    (
        404,
        "model 'qwen3' not found",
        "not_found",
    ),
    (
        404,
        'model "qwen3" not found, try pulling it first',
        "not_found",
    ),
    (
        400,
        "qwen/x is not a valid model ID",
        "not_found",
    ),
    (
        400,
        "library/gemma:2b does not support tools",
        "invalid",
    ),
    (
        503,
        "The server is overloaded or not ready yet",
        "overloaded",
    ),
    (
        503,
        "Loading model",
        "overloaded",
    ),
    (
        503,
        "service_unavailable_error: The engine is currently overloaded, please try again later",
        "overloaded",
    ),
    (
        None,
        "server_is_overloaded: The server is overloaded.",
        "overloaded",
    ),
    (
        None,
        "server_error: The server had an error processing your request. Sorry about that!",
        "server",
    ),
    (
        502,
        "Provider returned error",
        "server",
    ),
    (
        500,
        "unexpected server status: llm server loading model",
        "overloaded",
    ),
    (
        500,
        "llama runner process has terminated: exit status 2",
        "server",
    ),
    (
        400,
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40",
        "invalid",
    ),
    (
        422,
        "[{'type': 'extra_forbidden', 'loc': ['body','x'], 'msg': 'Extra inputs are not permitted'}]",
        "invalid",
    ),
    (
        400,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, "
        "but got 1 instead.",
        "invalid",
    ),
    (
        400,
        "max_tokens is too large: 999999. This model supports at most 16384 completion "
        "tokens, whereas you provided 999999.",
        "invalid",
    ),
    (
        400,
        "invalid_encrypted_content: The encrypted content for item rs_1 could not be verified.",
        "invalid",
    ),
    (
        404,
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
        "invalid",
    ),
    (
        400,
        "array_above_max_length: Invalid 'tools': array too long. Expected an array with "
        "maximum length 128, but got an array with length 130 instead.",
        "invalid",
    ),
    (
        400,
        "string_above_max_length: Invalid 'input[0].content': string too long. Expected a "
        "string with maximum length 10485760, but got a string with length 11000000 instead.",
        "overflow",
    ),
]

KINDS: list[tuple[int | None, str, str]] = [
    *((None, text, "overflow") for text in OVERFLOWS),
    *SERVERS,
    *NO_OVERFLOWS,
    (
        None,
        "429 "
        + anthropic(
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 10,000 input tokens per minute. "
            "Please reduce the prompt length or the maximum tokens requested, or try again later.",
        ),
        "rate_limit",
    ),
    (
        429,
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 46911. The input or "
        "output tokens must be reduced in order to run successfully.",
        "rate_limit",
    ),
    (429, GEMINI, "rate_limit"),
    (
        429,
        "You've reached your usage limit for this period. Your quota refreshes in the next cycle.",
        "billing",
    ),
    (429, "You exceeded your current quota, please check your plan and billing details.", "billing"),
    (
        400,
        anthropic("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
        "billing",
    ),
    (402, "Payment Required", "billing"),
    (None, "401 " + anthropic("authentication_error", "invalid x-api-key"), "auth"),
    (403, anthropic("permission_error", "not allowed"), "auth"),
    (500, "auth_unavailable: no auth available", "auth"),
    (
        None,
        "Cannot convert argument to a ByteString because the character at index 7 has a value of 8230",
        "auth",
    ),
    (None, "404 " + anthropic("not_found_error", "model: claude-3-5-haiku-latest"), "not_found"),
    (500, "your current code plan not support model glm-5", "not_found"),
    (529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    (None, "overloaded_error: Overloaded", "overloaded"),
    (503, "upstream", "overloaded"),
    (500, anthropic("api_error", "Internal server error"), "server"),
    (502, "<html>Bad Gateway</html>", "server"),
    (None, "Provider returned error", "server"),
    (400, "registry.example/model:7b does not support tools", "invalid"),
    (400, anthropic("invalid_request_error", "messages.1: `tool_use` ids were found without"), "invalid"),
    (400, "Reasoning is mandatory for this endpoint and cannot be disabled.", "invalid"),
    (None, "Model context window too small (4096 tokens). Minimum is 16000.", "invalid"),
    (None, "LLM idle timeout (120s): no response from model", "timeout"),
    (None, "request timed out", "timeout"),
    (504, "", "timeout"),
    (None, "read ECONNRESET", "transport"),
    (None, "UNKNOWN_CERTIFICATE_VERIFICATION_ERROR", "transport"),
    (None, "fetch failed", "transport"),
    (None, "terminated", "cut"),
    (None, "Unterminated string in JSON at position 8193", "cut"),
    (None, "This operation was aborted", "aborted"),
    (None, "Request was aborted.", "aborted"),
    (None, "something else", "unknown"),
    (418, "", "invalid"),
    (500, "", "server"),
]


@pytest.mark.parametrize(("status", "text", "kind"), KINDS, ids=[f"{k}-{t[:40]}" for _, t, k in KINDS])
def test_each_wording_has_one_kind(status: int | None, text: str, kind: str) -> None:
    assert classify(status, text) == kind


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("prompt is too long: 252587 tokens > 200000 maximum", 252587),
        ("maximum context length is 128000 tokens. However, you requested 139,211 tokens", 139211),
        ("your messages resulted in 130000 tokens", 130000),
        ("Prompt contains 65673 tokens and 0 draft tokens, too large for model", 65673),
        ("request (9000 tokens) exceeds the available context size (8192 tokens)", 9000),
        ("However, your request has 140000 input tokens.", 140000),
        ("input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000", 178959),
        ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537812),
        ("Prompt contains 40000 tokens and 0 draft tokens, too large", 40000),
        ("Input prompt (5000 tokens) is too long and exceeds limit of 4096", 5000),
        ("prompt token count of 130000 exceeds the limit of 128000", 130000),
        ("the input token count is 2097153 but the model only supports up to 1048576", 2097153),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096", 5000),
        ("Context overflow: estimated", None),
        ("prompt is too long: ,,, tokens > 200000 maximum", None),
        ("prompt is too long: 999999999999 tokens", 999_999_999_999),
        ("prompt is too long: 1000000000000 tokens", None),
        (f"prompt is too long: {'9' * 5_000} tokens", None),
    ],
)
def test_the_refused_size_is_read_where_it_is_told(text: str, tokens: int | None) -> None:
    assert observed_tokens(text) == tokens


NOON = 1764417600.0  # 2025-11-29 12:00:00 UTC


@pytest.mark.parametrize(
    ("headers", "text", "wait"),
    [
        ({"Retry-After": "30"}, "", 30),
        ({"retry-after-ms": "1500", "retry-after": "30"}, "", 1.5),
        ({"retry-after": "Sat, 29 Nov 2025 12:00:45 GMT"}, "", 45),
        ({"retry-after": "Sat, 29 Nov 2025 11:00:00 GMT"}, "", 0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "Sat, 29 Nov 99999999999 12:00:45 GMT"}, "", None),
        ({}, "Please try again in 6.2s.", 6.2),
        ({}, "Please try again in 350ms.", 0.35),
        ({}, "try again in 2 minutes", 120),
        ({}, '"retryDelay": "43s"', 43),
        ({}, "no hint", None),
    ],
)
def test_the_wait_comes_from_headers_first(headers: dict[str, str], text: str, wait: float | None) -> None:
    assert retry_after(headers, text, NOON) == (pytest.approx(wait) if wait is not None else None)


def test_json_inside_json_is_read_to_its_innermost_message() -> None:
    assert message_of(GEMINI).startswith("You exceeded your current quota")
    error = model_error(429, GEMINI)
    assert (error.kind, error.retry_after) == ("rate_limit", 43.5)
    assert str(error).startswith("429 You exceeded")


def test_a_final_error_carries_no_wait() -> None:
    assert model_error(401, "invalid x-api-key", {"retry-after": "30"}).retry_after is None


def test_the_line_of_an_error_is_one_line_of_bounded_length() -> None:
    error = model_error(500, "a\nb\n" + "x" * 100_000)
    assert "\n" not in str(error)
    assert len(str(error)) <= 600
    assert str(model_error(None, ""))


@given(st.text(), st.none() | st.integers(100, 599))
def test_any_text_is_classified_without_an_exception(text: str, status: int | None) -> None:
    assert model_error(status, text, {"retry-after": text}).kind == classify(status, text)


@pytest.mark.skipif(not SESSIONS, reason="PERDURE_SESSIONS names the folder of recorded sessions")
def test_recorded_errors_are_all_understood() -> None:
    found = [text for path in sorted(Path(SESSIONS).glob("*.jsonl")) for text in _errors(path)]
    assert len(found) > 100
    kinds = {text: classify(None, text) for text in found}
    assert [text for text, kind in kinds.items() if kind == "unknown"] == []
    for status, kind in (("429", "rate_limit"), ("404", "not_found"), ("401", "auth")):
        assert {k for text, k in kinds.items() if text.startswith(status)} == {kind}
    for word, kind in (("too long", "overflow"), ("credit balance", "billing"), ("aborted", "aborted")):
        assert {k for text, k in kinds.items() if word in text} == {kind}


def _errors(path: Path) -> list[str]:
    out = []
    for line in path.read_bytes().split(b"\n"):
        if b'"errorMessage"' in line:
            try:
                message = json.loads(line)["message"]
            except (ValueError, KeyError):
                continue
            out += [message["errorMessage"]] if message.get("errorMessage") else []
    return out


@pytest.mark.parametrize(
    ("raw", "kept", "broken"),
    [
        ("", b"{}", False),
        ("  ", b"{}", False),
        ('{"a": 1}', b'{"a": 1}', False),
        ('{"a": 1, "b": "unfin', b'{"a":1,"b":"unfin"}', True),
        ('{"a": {"b": [1, 2', b'{"a":{"b":[1,2]}}', True),
        ('{"a": 1, "b": tru', b'{"a":1}', True),
        ('{"a": "x\\', b'{"a":"x"}', True),
        ('{"a": "ends in \\u12', b"{}", True),
        ("[1]", b"{}", True),
        ("nonsense", b"{}", True),
    ],
)
def test_of_broken_arguments_is_kept_what_stands_before_the_break(
    raw: str, kept: bytes, broken: bool
) -> None:
    arguments, problem = read_arguments(raw)
    assert arguments == kept
    assert (problem is not None) is broken


@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4), st.integers(0, 60)
)
def test_arguments_cut_anywhere_still_give_an_object(value: dict[str, object], at: int) -> None:
    raw = json.dumps(value)
    arguments, problem = read_arguments(raw[:at])
    assert isinstance(json.loads(arguments), dict)
    assert problem is None or at < len(raw)
