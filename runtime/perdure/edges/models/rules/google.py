"""Google's generateContent: what it refuses of a body, in its wording, and how its bodies are read.

Sources: the API reference and public issue threads that quote the messages. Which roles may follow each
other is only partly told there; what is hearsay is `known`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NoReturn

from perdure.edges.models.rules.family import Family
from perdure.edges.models.rules.images import decode_head, mime_of
from perdure.edges.models.rules.refusal import Json, Refused
from perdure.records import ModelInfo

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
TYPES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
DATA = ("text", "inlineData", "functionCall", "functionResponse")
FIELDS = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"})
INLINE = 20 * 1024 * 1024  # characters of pictures in one request
SKIP = "skip_thought_signature_validator"

REFUSALS: dict[str, tuple[int, str, str]] = {
    "rate_limit": (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "server": (500, "INTERNAL", "An internal error has occurred. Please retry."),
    "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key: invalid api key."),
    "billing": (403, "PERMISSION_DENIED", "Billing hard limit of this project has been reached."),
}


def validate(
    body: Json, *, known: bool = True, model: ModelInfo | None = None, counting: bool = False
) -> None:
    """Raise `Refused` for the first rule that `body` breaks. `counting` makes no difference here."""
    for name in sorted(body.keys() - FIELDS):
        _invalid(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        _invalid("* GenerateContentRequest.contents: contents is not specified")
    _check_system(body.get("systemInstruction"))
    _check_tools(body.get("tools"))
    for n, content in enumerate(contents):
        _check_content(content, f"GenerateContentRequest.contents[{n}]", known)
    _check_turns(contents, known)
    _check_size(contents)
    if model is not None:
        wanted = body.get("generationConfig", {}).get("maxOutputTokens", 1)
        if not 1 <= wanted <= model.max_output:
            _invalid(f"The value of max_output_tokens must be from 1 to {model.max_output}, not {wanted}.")
        if known and re.search(r"gemini-[3-9]", model.id):
            _check_signed_calls(contents)


def _check_system(system: Any) -> None:
    if system is None:
        return
    parts = system.get("parts") if isinstance(system, dict) else None
    if not parts or any(not part.get("text") for part in parts):
        _invalid("* GenerateContentRequest.system_instruction.parts: must hold a text")


def _check_tools(tools: Any) -> None:
    seen: set[str] = set()
    for group in tools or ():
        for one in group.get("functionDeclarations", ()):
            name = one.get("name", "")
            if not NAME.fullmatch(name):
                _bad_name(f"GenerateContentRequest.tools[0].function_declarations[{len(seen)}].name")
            if name in seen:
                _invalid(f"Duplicate function declaration found: {name}")
            seen.add(name)
            if not isinstance(one.get("parametersJsonSchema"), dict):
                _invalid(f"Invalid value at 'tools[0].function_declarations.parameters' ({name})")


def _check_content(content: Any, path: str, known: bool) -> None:
    role, parts = content.get("role"), content.get("parts")
    if role not in ("user", "model"):
        _invalid("Please use a valid role: user, model.")
    if not parts:
        _invalid(f"* {path}.parts: contents.parts must not be empty.")
    for m, part in enumerate(parts):
        held = [name for name in DATA if name in part]
        if len(held) != 1 or (held == ["text"] and not part["text"]):
            _invalid(f"* {path}.parts[{m}].data: required oneof field 'data' must have one initialized field")
        _check_part(part, held[0], role, f"{path}.parts[{m}]", known)


def _check_part(part: Json, kind: str, role: str, path: str, known: bool) -> None:
    allowed = ("text", "functionCall") if role == "model" else ("text", "inlineData", "functionResponse")
    if kind not in allowed:
        _invalid(f"* {path}: a {kind} part can't be in a turn of role {role}")
    if kind in ("functionCall", "functionResponse"):
        if not NAME.fullmatch(part[kind].get("name", "")):
            _bad_name(f"{path}.{kind}.name")
        value = part[kind].get("args" if kind == "functionCall" else "response")
        if not isinstance(value, dict):
            _invalid(f"Invalid value at '{path}.{kind}' (type.googleapis.com/google.protobuf.Struct)")
    if kind == "inlineData":
        _check_picture(part["inlineData"], path, known)
    signature = part.get("thoughtSignature")
    if signature is not None and signature != SKIP and not _is_bytes(signature):
        _invalid(f"Invalid value at '{path}.thought_signature' (TYPE_BYTES), Base64 decoding failed")


def _check_picture(data: Json, path: str, known: bool) -> None:
    mime, text = data.get("mimeType"), data.get("data")
    if mime not in TYPES:
        _invalid(f"Unsupported MIME type: {mime}")
    if not text or not _is_bytes(text):
        _invalid(f"Invalid value at '{path}.inline_data.data' (TYPE_BYTES), Base64 decoding failed")
    real = mime_of(decode_head(text) or b"")
    if known and real is not None and real != mime:
        _invalid("Unable to process input image. Please retry or report.")


def _check_turns(contents: list[Json], known: bool) -> None:
    calls: list[Json] = []
    before = ""
    ids: set[str] = set()
    for n, content in enumerate(contents):
        answers = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if calls and len(answers) != len(calls):
            _invalid(
                "Please ensure that the number of function response parts is equal to the number of "
                "function call parts of the function call turn."
            )
        if answers and not calls:
            _invalid(
                "Please ensure that function response turn comes immediately after a function call turn."
            )
        _check_answers(calls, answers, known)
        if answers and known and len(answers) < len(content["parts"]):
            _invalid("Please ensure that a function response turn holds function responses only.")
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        role = content["role"]
        if calls and (not n or before == "model"):
            _invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a "
                "function response turn."
            )
        if known and role == "model" and before in ("", "model"):
            _invalid("Please ensure that multiturn requests alternate between user and model.")
        for call in calls:
            if call.get("id") in ids:
                _invalid(f"Duplicate function call id: {call['id']}")
            ids.add(call.get("id", ""))
        before = role
    if calls or (known and before != "user"):
        _invalid("Please ensure that multiturn requests end with a user role or a function response.")


def _check_answers(calls: list[Json], answers: list[Json], known: bool) -> None:
    for call, answer in zip(calls, answers, strict=False):
        same = call.get("id") == answer.get("id") and call["name"] == answer["name"]
        if known and not same:
            _invalid(f"Function response {answer['name']} doesn't answer the call of {call['name']}.")


def _check_size(contents: list[Json]) -> None:
    pictures = [part["inlineData"]["data"] for c in contents for part in c["parts"] if "inlineData" in part]
    if sum(map(len, pictures)) > INLINE:
        _invalid(f"Request payload size exceeds the limit: {INLINE} bytes.")


def _check_signed_calls(contents: list[Json]) -> None:
    """Of each step in the turn that is open, the first call is signed."""
    asked = [n for n, c in enumerate(contents) if c["role"] == "user" and "text" in c["parts"][0]]
    last = asked[-1] if asked else 0
    for content in contents[last:]:
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            _invalid("Function call is missing a thought_signature in functionCall parts.")


def _is_bytes(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    bare = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _bad_name(path: str) -> NoReturn:
    _invalid(
        f"* {path}: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric "
        "(a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
    )


def _invalid(message: str) -> NoReturn:
    raise Refused(400, "INVALID_ARGUMENT", message)


# --- how it is read, and how it refuses -------------------------------------------------------------


def read(body: Json) -> Json:
    """The body in the shape of the Messages API: what scripts look at and tokens are counted by."""
    messages: list[Json] = []
    for content in body["contents"]:
        role = "assistant" if content["role"] == "model" else "user"
        blocks = [_block(part) for part in content["parts"]]
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    found: Json = {"max_tokens": body.get("generationConfig", {}).get("maxOutputTokens", 1)}
    declared = [one for group in body.get("tools", ()) for one in group["functionDeclarations"]]
    if declared:
        found["tools"] = [
            {"name": d["name"], "description": d["description"], "input_schema": d["parametersJsonSchema"]}
            for d in declared
        ]
    if "systemInstruction" in body:
        found["system"] = [{"type": "text", "text": p["text"]} for p in body["systemInstruction"]["parts"]]
    return found | {"messages": messages}


def _block(part: Json) -> Json:
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "functionCall" in part:
        call = part["functionCall"]
        return {"type": "tool_use", "id": call.get("id", ""), "name": call["name"], "input": call["args"]}
    if "functionResponse" in part:
        answer = part["functionResponse"]
        failed = "error" in answer["response"]
        text = answer["response"]["error" if failed else "output"]
        made: Json = {"type": "tool_result", "tool_use_id": answer.get("id", "")}
        made["content"] = [{"type": "text", "text": text}] if text else []
        return made | ({"is_error": True} if failed else {})
    media, data = part["inlineData"]["mimeType"], part["inlineData"]["data"]
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def _check_room(tokens: int, wanted: int, model: ModelInfo) -> None:
    if tokens > model.window:
        _invalid(_overflow(tokens, model))


def _overflow(tokens: int, model: ModelInfo) -> str:
    return f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({model.window})."


def _refusal(fault: str, tokens: int, model: ModelInfo) -> Refused | None:
    if fault == "overflow":
        text = f"The input token count exceeds the maximum number of tokens allowed ({model.window})."
        return Refused(400, "INVALID_ARGUMENT", text)
    return Refused(*REFUSALS[fault]) if fault in REFUSALS else None


def _error_body(refused: Refused) -> Json:
    return {"error": {"code": refused.status, "message": refused.message, "status": refused.error_type}}


FAMILY = Family(
    validate=validate,
    read=read,
    room=_check_room,
    refusal=_refusal,
    error_body=_error_body,
    call_id=lambda mark: f"call{mark}",
    signature=lambda mark, _: mark,
)
