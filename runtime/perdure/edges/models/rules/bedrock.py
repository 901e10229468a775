"""Bedrock's Converse: what it refuses of a body, in its wording, and how its bodies are read.

Sources: the API reference (shapes, patterns, limits) and public issue threads that quote the messages.
What its Claude models refuse beyond that is checked on the body as the Messages API has it.
"""

from __future__ import annotations

import base64
import binascii
import re
from itertools import pairwise
from typing import Any, NoReturn

from perdure.edges.models.rules import pairing, thinking
from perdure.edges.models.rules.family import Family
from perdure.edges.models.rules.images import decode_head, mime_of, size_of
from perdure.edges.models.rules.refusal import Json, Refused
from perdure.edges.models.rules.schema import Found
from perdure.records import ModelInfo

ID = NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
FIELDS = frozenset({"messages", "system", "toolConfig", "inferenceConfig", "additionalModelRequestFields"})
KINDS = ("text", "image", "toolUse", "toolResult", "reasoningContent", "cachePoint")
OF_USER = ("text", "image", "toolResult", "cachePoint")
OF_MODEL = ("text", "toolUse", "reasoningContent", "cachePoint")
FORMATS = ("png", "jpeg", "gif", "webp")
IMAGES, IMAGE_BYTES, MAX_SIDE, POINTS = 20, 3_750_000, 8_000, 4

REFUSALS: dict[str, tuple[int, str, str]] = {
    "rate_limit": (429, "ThrottlingException", "Too many requests, please wait before trying again."),
    "overloaded": (503, "ServiceUnavailableException", "Bedrock is overloaded. Please try again later."),
    "server": (500, "InternalServerException", "The system encountered an unexpected error."),
    "auth": (403, "UnrecognizedClientException", "Unauthorized: the security token is invalid."),
    "billing": (403, "AccessDeniedException", "INVALID_PAYMENT_INSTRUMENT: payment required."),
}


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Raise `Refused` for the first rule that `body` breaks. `counting` makes no difference here."""
    for name in sorted(body.keys() - FIELDS):
        _invalid(f"extraneous key [{name}] is not permitted")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        _invalid("The messages field must hold at least one message.")
    _check_tools(body.get("toolConfig"))
    for n, message in enumerate(messages):
        _check_message(message, f"messages.{n}", known)
    _check_turns(messages)
    _check_pairs(messages)
    _check_pictures(messages)
    _check_points(body)
    called = any("toolUse" in b or "toolResult" in b for m in messages for b in m["content"])
    if called and not body.get("toolConfig"):
        _invalid("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    if model is not None:
        _check_claude(read(body) | {"model": model.id}, model, known)


def _check_claude(body: Json, model: ModelInfo, known: bool) -> None:
    wanted = body["max_tokens"]
    if not 1 <= wanted <= model.max_output:
        _invalid(f"The maximum tokens you requested exceeds the model limit of {model.max_output}: {wanted}")
    try:
        pairing.check_pairing(body["messages"], known=known)
        found = Found()
        found.kinds |= {block["type"] for message in body["messages"] for block in message["content"]}
        thinking.check_thinking(body, model, found, known=known)
    except Refused as refused:
        _invalid(f"The model returned the following errors: {refused.message}")


def _check_tools(config: Any) -> None:
    if config is None:
        return
    tools = config.get("tools")
    if not tools:
        _invalid("toolConfig.tools: the list must not be empty")
    seen: set[str] = set()
    for n, tool in enumerate(tools):
        spec = tool["toolSpec"]
        path = f"toolConfig.tools.{n}.member.toolSpec"
        if not NAME.fullmatch(spec.get("name", "")):
            _pattern(f"{path}.name")
        if spec["name"] in seen:
            _invalid(f"The tool name {spec['name']} is already defined at {path}.")
        seen.add(spec["name"])
        if not spec.get("description"):
            _invalid(f"{path}.description: Member must have length greater than or equal to 1")
        if not isinstance(spec.get("inputSchema", {}).get("json"), dict):
            _invalid(f"The value at {path}.inputSchema.json.type must be one of the following: object.")


def _check_message(message: Any, path: str, known: bool) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        _invalid(f"{path}.role: Member must satisfy enum value set: [user, assistant]")
    if not content:
        _invalid(f"The content field in the Message object at {path} is empty. Add a ContentBlock object.")
    for m, block in enumerate(content):
        held = [kind for kind in KINDS if kind in block]
        where = f"{path}.content.{m}"
        if len(held) != 1 or len(block) != 1:
            _invalid(f"{where}: the ContentBlock must hold exactly one of {', '.join(KINDS)}")
        if held[0] not in (OF_USER if role == "user" else OF_MODEL):
            _invalid(f"{where}: {held[0]} blocks can't be in a message of role {role}")
        _check_block(block, held[0], where, known)


def _check_block(block: Json, kind: str, path: str, known: bool) -> None:
    value = block[kind]
    if kind == "text" and not value.strip():
        _blank(path)
    elif kind == "toolUse":
        _check_id(value, path)
        if not NAME.fullmatch(value.get("name", "")):
            _pattern(f"{path}.toolUse.name")
        if not isinstance(value.get("input"), dict):
            _invalid(f"The format of the value at {path}.toolUse.input is invalid. Provide a json object.")
    elif kind == "toolResult":
        _check_id(value, path)
        for m, inner in enumerate(value.get("content", ())):
            if "text" in inner and not inner["text"].strip():
                _blank(f"{path}.toolResult.content.{m}")
            if known and value.get("status") == "error" and "text" not in inner:
                _invalid(f"{path}.toolResult: all content must be text if the status is error")
    elif kind == "reasoningContent":
        _check_reasoning(value, path)


def _check_reasoning(value: Json, path: str) -> None:
    if "redactedContent" in value:
        if not value["redactedContent"] or _bytes(value["redactedContent"]) is None:
            _invalid(f"{path}.reasoningContent.redactedContent: Base64 decoding failed")
    elif not value.get("reasoningText", {}).get("signature"):
        _invalid(f"{path}.reasoningContent.reasoningText.signature: Field required")


def _check_turns(messages: list[Json]) -> None:
    if messages[0]["role"] != "user":
        _invalid(
            "A conversation must start with a user message. Try again with a conversation that starts "
            "with a user message."
        )
    if any(one["role"] == two["role"] for one, two in pairwise(messages)):
        _invalid(
            "A conversation must alternate between user and assistant roles. Make sure the conversation "
            "alternates between user and assistant roles and try again."
        )
    if messages[-1]["role"] != "user":
        _invalid(
            "This model does not support assistant message prefill. The last turn must be a user message."
        )


def _check_pairs(messages: list[Json]) -> None:
    calls: list[str] = []
    seen: set[str] = set()
    for n, message in enumerate(messages):
        answers = [b["toolResult"]["toolUseId"] for b in message["content"] if "toolResult" in b]
        missing = [ident for ident in calls if ident not in answers]
        if missing:
            _invalid(f"Expected toolResult blocks at messages.{n}.content for the following Ids: "
                     f"{', '.join(missing)}")  # fmt: skip
        if len(answers) > len(calls):
            _invalid(f"The number of toolResult blocks at messages.{n}.content exceeds the number of "
                     "toolUse blocks of previous turn.")  # fmt: skip
        calls = [b["toolUse"]["toolUseId"] for b in message["content"] if "toolUse" in b]
        if len(set(calls)) < len(calls) or seen & set(calls):
            _invalid(f"The toolUse blocks at messages.{n}.content contain duplicate Ids.")
        seen.update(calls)


def _pictures(messages: list[Json]) -> list[Json]:
    blocks = [block for message in messages for block in message["content"]]
    nested = [inner for b in blocks if "toolResult" in b for inner in b["toolResult"].get("content", ())]
    return [block["image"] for block in (*blocks, *nested) if "image" in block]


def _check_pictures(messages: list[Json]) -> None:
    pictures = _pictures(messages)
    if len(pictures) > IMAGES:
        _invalid(f"too many images: {len(pictures)} > {IMAGES}")
    for picture in pictures:
        form, text = picture.get("format"), picture.get("source", {}).get("bytes")
        raw = _bytes(text)
        if form not in FORMATS or not raw:
            _invalid("The provided image is invalid: its format or its bytes are missing.")
        if len(raw) > IMAGE_BYTES:
            _invalid(f"image exceeds 3.75 MB maximum: {len(raw)} bytes > {IMAGE_BYTES} bytes")
        head = decode_head(text) or b""
        if mime_of(head) not in (None, f"image/{form}"):
            _invalid(f"Image does not match the provided format {form}")
        if max(size_of(head) or (0, 0)) > MAX_SIDE:
            _invalid(f"image dimensions exceed max allowed size: {MAX_SIDE} pixels")


def _check_points(body: Json) -> None:
    blocks = [*body.get("system", ()), *(block for m in body["messages"] for block in m["content"])]
    if sum("cachePoint" in block for block in blocks) > POINTS:
        _invalid(f"A maximum of {POINTS} cachePoint blocks may be provided.")
    for block in body.get("system", ()):
        if "text" in block and not block["text"].strip():
            _blank("system")
    for message in body["messages"]:
        for one, two in pairwise(message["content"]):
            if "cachePoint" in two and "reasoningContent" in one:
                _invalid("cachePoint cannot be inserted after reasoning block.")


def _check_id(value: Json, path: str) -> None:
    if not ID.fullmatch(value.get("toolUseId", "")):
        _pattern(f"{path}.toolUseId")


def _bytes(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def _blank(path: str) -> NoReturn:
    _invalid(
        f"The text field in the ContentBlock object at {path} is blank. Add text to the text field, and try "
        "again."
    )


def _pattern(path: str) -> NoReturn:
    _invalid(f"Value at '{path}' failed to satisfy constraint: Member must satisfy regular expression "
             "pattern: [a-zA-Z0-9_-]+, with a length from 1 to 64")  # fmt: skip


def _invalid(message: str) -> NoReturn:
    raise Refused(400, "ValidationException", message)


# --- how it is read, and how it refuses -------------------------------------------------------------


def read(body: Json) -> Json:
    """The body in the shape of the Messages API: what scripts look at and tokens are counted by."""
    messages = [{"role": m["role"], "content": _marked(m["content"])} for m in body["messages"]]
    found: Json = {"max_tokens": body.get("inferenceConfig", {}).get("maxTokens", 1)}
    found |= body.get("additionalModelRequestFields", {})
    specs = [tool["toolSpec"] for tool in body.get("toolConfig", {}).get("tools", ())]
    if specs:
        found["tools"] = [
            {"name": s["name"], "description": s["description"], "input_schema": s["inputSchema"]["json"]}
            for s in specs
        ]
    if "system" in body:
        found["system"] = _marked(body["system"])
    return found | {"messages": messages}


def _marked(content: list[Json]) -> list[Json]:
    """The blocks; a cache point is the mark of the block before it."""
    out: list[Json] = []
    for block in content:
        if "cachePoint" in block:
            life = {"ttl": block["cachePoint"]["ttl"]} if "ttl" in block["cachePoint"] else {}
            out[-1] = out[-1] | {"cache_control": {"type": "ephemeral"} | life}
        else:
            out.append(_block(block))
    return out


def _block(block: Json) -> Json:
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    if "toolUse" in block:
        call = block["toolUse"]
        return {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]}
    if "toolResult" in block:
        answer = block["toolResult"]
        content = [_block(inner) for inner in answer.get("content", ())]
        made: Json = {"type": "tool_result", "tool_use_id": answer["toolUseId"], "content": content}
        return made | ({"is_error": True} if answer.get("status") == "error" else {})
    if "image" in block:
        media, data = f"image/{block['image']['format']}", block["image"]["source"]["bytes"]
        return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
    said = block["reasoningContent"]
    if "redactedContent" in said:
        return {"type": "redacted_thinking", "data": said["redactedContent"]}
    text = said["reasoningText"]
    return {"type": "thinking", "thinking": text["text"], "signature": text["signature"]}


def _check_room(tokens: int, wanted: int, model: ModelInfo) -> None:
    if tokens > model.window:
        _invalid("Input is too long for requested model.")


def _refusal(fault: str, tokens: int, model: ModelInfo) -> Refused | None:
    if fault == "overflow":
        return Refused(400, "ValidationException", "Input is too long for requested model.")
    return Refused(*REFUSALS[fault]) if fault in REFUSALS else None


def _error_body(refused: Refused) -> Json:
    return {"__type": refused.error_type, "message": refused.message}


FAMILY = Family(
    validate=validate,
    read=read,
    room=_check_room,
    refusal=_refusal,
    error_body=_error_body,
    call_id=lambda mark: f"tooluse_{mark}",
    signature=lambda mark, _: f"sig_{mark}",
    unaltered=True,
)
