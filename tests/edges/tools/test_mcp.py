"""MCP tools against a real server process: calls, death, stalls, hostile names and results."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers_tools import LOOPS, Context, images, said
from perdure.contracts import Tool
from perdure.edges.settings import McpSettings
from perdure.edges.tools.mcp import McpServer, expanded, servers
from perdure.edges.tools.mcp_shapes import fitted_name, output_of, spec_of

SERVER = str(Path(__file__).parents[2] / "helpers_mcp_server.py")


def settings(**more: Any) -> McpSettings:
    return McpSettings("test", command=sys.executable, args=(SERVER,), **more)


def with_server(
    loop: str, chosen: McpSettings, body: Callable[[McpServer, dict[str, Tool]], Awaitable[None]]
) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                server = McpServer(chosen)
                tasks.start_soon(server.run)
                found = {tool.spec.name: tool for tool in await server.tools()}
                await body(server, found)
                tasks.cancel_scope.cancel()

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_tools_of_a_real_server_work_and_survive_its_death(
    loop: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz")
    monkeypatch.setenv("WANTED", "given")
    context = Context(tmp_path)

    async def body(server: McpServer, tools: dict[str, Tool]) -> None:
        async def run(name: str, **arguments: Any) -> Any:
            return await tools[f"mcp__test__{name}"].run(arguments, context)

        assert list(tools) == sorted(tools)
        assert said(await run("add", a=2, b="3")) == "5"
        assert "a: must be integer" in said(await run("add", a="x", b=3))
        odd = next(tool for name, tool in tools.items() if "odd_name" in name)
        assert said(await odd.run({}, context)) == "odd"
        assert [image.mime for image in images(await run("picture"))] == ["image/png"]
        flood = await run("flood")
        assert flood.full is not None
        assert len(flood.full) == 400_003
        assert len(said(flood)) < 40_000
        failed = await run("fail")
        assert failed.is_error
        given = said(await run("environment"))
        assert "sk-ant" not in given
        assert "TOKEN=given" in given
        died = await run("die")
        assert died.is_error
        assert "went away during die" in said(died)
        assert said(await run("add", a=1, b=1)) == "2"
        assert server.connections == 2

    with_server(loop, settings(env=(("TOKEN", "${WANTED}"),)), body)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_call_that_never_answers_ends_at_its_timeout_and_harms_no_other(loop: str, tmp_path: Path) -> None:
    async def body(_: McpServer, tools: dict[str, Tool]) -> None:
        stalled = await tools["mcp__test__stall"].run({}, Context(tmp_path))
        assert "did not answer within 1.5 seconds" in said(stalled)
        assert said(await tools["mcp__test__add"].run({"a": 1, "b": 2}, Context(tmp_path))) == "3"

    with_server(loop, settings(timeout_seconds=1.5), body)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (McpSettings("x", command="/no/such/program"), "No such file"),
        (McpSettings("x", command=sys.executable, args=("-c", "print('not json')"), connect_seconds=2.0), ""),
        (
            McpSettings("x", command="sleep", args=("60",), connect_seconds=0.5),
            "not connected within 0.5 seconds",
        ),
        (McpSettings("x", url="http://127.0.0.1:9/mcp", connect_seconds=2.0), ""),
        (McpSettings("x"), "neither command nor url"),
    ],
)
def test_a_server_that_is_not_there_offers_nothing_and_says_why(
    loop: str, chosen: McpSettings, problem: str, tmp_path: Path
) -> None:
    async def body(server: McpServer, tools: dict[str, Tool]) -> None:
        assert tools == {}
        assert problem in server.problem
        answer = await server.call("any", {})
        assert answer.is_error
        assert "is not reachable" in said(answer)

    with_server(loop, chosen, body)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_over_http_works(loop: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, SERVER, "http", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        while "running on" not in (line := process.stderr.readline()).lower():
            assert line, "the server ended"

        async def body(_: McpServer, tools: dict[str, Tool]) -> None:
            assert said(await tools["mcp__web__add"].run({"a": 20, "b": 3}, Context(tmp_path))) == "23"

        with_server(loop, McpSettings("web", url=f"http://127.0.0.1:{port}/mcp"), body)
    finally:
        process.kill()
        process.communicate()


def test_the_configuration_decides_what_is_offered_and_virtual_time_calls_nothing(tmp_path: Path) -> None:
    async def body(_: McpServer, tools: dict[str, Tool]) -> None:
        assert list(tools) == ["mcp__test__add"]
        answer = await tools["mcp__test__add"].run({"a": 1, "b": 2}, Context(tmp_path, virtual=True))
        assert "virtual time" in said(answer)

    with_server("asyncio", settings(allow=("add", "die"), deny=("die",)), body)


@given(st.text(max_size=80), st.text(max_size=80))
def test_every_name_fits_what_providers_accept(server: str, tool: str) -> None:
    name = fitted_name(server, tool)
    assert 1 <= len(name) <= 64
    assert all(c.isascii() and (c.isalnum() or c in "_-") for c in name)


def test_names_that_look_alike_after_fitting_stay_apart() -> None:
    assert len({fitted_name("s", name) for name in ("a.b", "a_b", "a/b", "x" * 90, "x" * 91)}) == 5


@pytest.mark.parametrize("schema", [{"type": "array"}, {"x": object()}, {"x": "y" * 100_000}, None])
def test_a_schema_that_can_t_be_used_becomes_an_open_object(schema: Any) -> None:
    spec = spec_of(
        "s", SimpleNamespace(name="t", description="a\u202eb\x00" + "d" * 9_000, input_schema=schema)
    )
    assert msgspec.json.decode(spec.schema)["type"] == "object"
    assert "\u202e" not in spec.description
    assert len(spec.description) <= 4_000


def test_results_of_every_kind_become_text_or_images() -> None:
    blocks = [
        SimpleNamespace(type="text", text="hi\ud800"),
        SimpleNamespace(type="image", mime_type="video/mp4", data="AAAA"),
        SimpleNamespace(type="audio", mime_type="audio/wav", data="AAAA"),
        SimpleNamespace(type="resource", resource=SimpleNamespace(uri="file:///a", text="body")),
        SimpleNamespace(type="resource", resource=SimpleNamespace(uri="file:///b", blob="AA")),
        SimpleNamespace(type="resource_link", name="n", uri="u"),
    ]
    text = said(output_of(SimpleNamespace(content=blocks, structured_content={"a": 1}, is_error=False)))
    assert text.startswith("hi\ufffd\n[an image of type video/mp4")
    assert "file:///a:\nbody" in text
    empty = output_of(SimpleNamespace(content=[], structured_content={"a": 1}, is_error=True))
    assert (said(empty), empty.is_error) == ('{"a":1}', True)


def test_variables_come_from_the_environment_and_disabled_servers_are_left_out() -> None:
    assert expanded((("A", "Bearer ${T}"), ("B", "${NONE}x$T")), {"T": "1"}) == (
        ("A", "Bearer 1"),
        ("B", "x$T"),
    )
    chosen = servers(
        [McpSettings("b", command="x"), McpSettings("a", command="x"), McpSettings("c", enabled=False)]
    )
    assert [server.name for server in chosen] == ["a", "b"]
