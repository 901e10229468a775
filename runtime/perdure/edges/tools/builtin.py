"""The default tool set, in the fixed order in which requests and prompts name it."""

from __future__ import annotations

from perdure.contracts import Tool
from perdure.edges.settings import Settings, ToolSettings
from perdure.edges.tools.arguments import Checked
from perdure.edges.tools.exec import Approve, ExecTool
from perdure.edges.tools.read import ReadTool
from perdure.edges.tools.recall import RecallTool
from perdure.edges.tools.search import FindTool, GrepTool
from perdure.edges.tools.write import EditTool, WriteTool


def default_tools(
    settings: Settings | ToolSettings, approve: Approve | None = None, *, ahead: bool = False
) -> tuple[Tool, ...]:
    """read, write, edit, grep, find, exec (where allowed), recall; then the configuration's own lists.

    The order and the bytes of every schema are part of the cached prefix of each request.
    """
    chosen = settings.tools if isinstance(settings, Settings) else settings
    tools: list[Tool] = [ReadTool(), WriteTool(), EditTool(), GrepTool(), FindTool()]
    if chosen.exec.mode != "off":
        tools.append(ExecTool(chosen.exec, approve, ahead=ahead))
    tools.append(RecallTool())
    return tuple(Checked(tool) for tool in tools if offered(tool.spec.name, chosen.allow, chosen.deny))


def offered(name: str, allow: tuple[str, ...], deny: tuple[str, ...]) -> bool:
    """Whether the lists let a tool through: deny wins, an empty allow list allows all."""
    return name not in deny and (not allow or name in allow)
