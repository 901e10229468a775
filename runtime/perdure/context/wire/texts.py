"""What every API's body shares: how messages that no API knows are worded, and the tools as JSON."""

from __future__ import annotations

import re

import msgspec

from perdure.context.text.characters import encodable
from perdure.records import Bash, BranchSummary, Message, Record, Summary, ToolSpec

SUMMARY = "The earlier part of this conversation was compacted. What follows is its summary.\n\n"
BRANCH = "This conversation was continued from an earlier point. Summary of the branch left behind:\n\n"
CHOICES = ("oneOf", "anyOf", "allOf")  # no API takes them at the top; the tool itself still checks
UNOFFERED = "Not available in this request."


def worded(message: Message) -> str | None:
    """The one text that a summary or a command is sent as; None for a message with content."""
    if type(message) is Summary:
        return f"{SUMMARY}<summary>\n{message.summary}\n</summary>"
    if type(message) is BranchSummary:
        return f"{BRANCH}<summary>\n{message.summary}\n</summary>"
    return bash_text(message) if type(message) is Bash else None


def bash_text(message: Bash) -> str:
    """What the model reads of a command the user ran."""
    fence = "```"
    while fence in message.output:
        fence += "`"
    output = message.output.strip("\n")
    parts = [f"The user ran `{message.command}`", f"{fence}\n{output}\n{fence}" if output else "(no output)"]
    if message.cancelled:
        parts.append("(the command was cancelled)")
    elif message.exit_code:
        parts.append(f"It exited with code {message.exit_code}.")
    if message.truncated:
        where = f" The full output is in {message.full_output_path}" if message.full_output_path else ""
        parts.append(f"[output shortened.{where}]")
    return "\n".join(parts)


def call_part(ident: str) -> str:
    """The call's id of `call_…|fc_…`; any other id as it is."""
    return ident.partition("|")[0]


class WireTool(Record):
    """A tool that may be sent: `schema` is an object's schema with sorted keys."""

    name: str
    description: str
    schema: msgspec.Raw


def offered(tools: tuple[ToolSpec, ...], used: tuple[str, ...] = (), longest: int = 128) -> list[WireTool]:
    """The tools in their given order, without names that are invalid, too long or taken.

    Where none is given: a stand-in for each one of `used`, as some doors want every called tool named.
    """
    if not tools:
        stand_in = msgspec.Raw(b'{"type":"object"}')
        return [WireTool(name, UNOFFERED, stand_in) for name in used]
    valid = re.compile(rf"[a-zA-Z0-9_-]{{1,{longest}}}")
    found: dict[str, WireTool] = {}
    for tool in tools:
        if valid.fullmatch(tool.name) and tool.name not in found:
            schema = msgspec.Raw(_schema(tool.schema))
            found[tool.name] = WireTool(tool.name, encodable(tool.description), schema)
    return list(found.values())


def _schema(raw: bytes) -> bytes:
    try:
        schema = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        schema = {}
    if type(schema) is not dict or schema.get("type") != "object":
        schema = {"type": "object"}
    bare = {word: value for word, value in schema.items() if word not in CHOICES}
    return msgspec.json.encode(bare, order="sorted")
