"""One persisted turn of another framework with an instant model, as its history grows.

    python -m benchmarks.subjects.turn_peer FOLDER openai-agents|pydantic-ai MESSAGES

openai-agents keeps its history in its SQLiteSession. pydantic-ai leaves keeping to the caller, so a file is
written after each turn, as its documentation shows. Neither has tools; both are asked the same as ours.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import cpu, fresh, median, report, resident, wall, written
from benchmarks.subjects.turn import TEXT, TURNS

BUDGET_S = 12.0


class Peer(ABC):
    """A framework with one history per key. `seen`: messages of the last request."""

    seen = 0

    @abstractmethod
    async def load(self, key: str, messages: int) -> None:
        """Give a session its history."""

    @abstractmethod
    async def turn(self, key: str) -> None:
        """One user message, one answer, kept."""


class OpenAIAgents(Peer):
    """The Agents SDK with an SQLite session in a file."""

    def __init__(self, folder: Path) -> None:
        os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
        from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage
        from openai.types.responses import ResponseOutputMessage, ResponseOutputText

        peer = self

        class Instant(Model):
            async def get_response(self, *_: Any, **asked: Any) -> ModelResponse:
                peer.seen = len(asked["input"])
                text = ResponseOutputText(text=TEXT, type="output_text", annotations=[])
                said = ResponseOutputMessage(
                    id="m1", role="assistant", status="completed", type="message", content=[text]
                )
                return ModelResponse(output=[said], usage=Usage(), response_id=None)

            def stream_response(self, *_: Any, **__: Any) -> Any:
                raise NotImplementedError

        self._agent = Agent(name="a", instructions="Be brief.", model=Instant())
        self._config, self._run = RunConfig(tracing_disabled=True), Runner.run
        self._open: Callable[[str], Any] = lambda key: SQLiteSession(key, folder / "sessions.db")
        self._sessions: dict[str, Any] = {}

    async def load(self, key: str, messages: int) -> None:
        session = self._sessions[key] = self._open(key)
        await session.add_items([{"role": role(n), "content": TEXT} for n in range(messages)])

    async def turn(self, key: str) -> None:
        await self._run(self._agent, TEXT, session=self._sessions[key], run_config=self._config)


class PydanticAI(Peer):
    """pydantic-ai with the history dumped to a file after each turn."""

    def __init__(self, folder: Path) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart
        from pydantic_ai.models.function import FunctionModel

        def answer(messages: Any, _info: Any) -> ModelResponse:
            self.seen = len(messages)
            return ModelResponse(parts=[TextPart(TEXT)])

        self._agent, self._folder = Agent(FunctionModel(answer)), folder
        self._dump = ModelMessagesTypeAdapter.dump_json
        self._history: dict[str, list[Any]] = {}

    async def load(self, key: str, messages: int) -> None:
        from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

        self._history[key] = [
            ModelRequest(parts=[UserPromptPart(TEXT)])
            if role(n) == "user"
            else ModelResponse(parts=[TextPart(TEXT)])
            for n in range(messages)
        ]

    async def turn(self, key: str) -> None:
        done = await self._agent.run(TEXT, message_history=self._history[key])
        self._history[key] = done.all_messages()
        self._keep(key)

    def _keep(self, key: str) -> None:
        with open(self._folder / f"{key}.json", "wb") as f:
            f.write(self._dump(self._history[key]))


def role(number: int) -> str:
    """User and assistant in turn."""
    return "user" if number % 2 == 0 else "assistant"


PEERS: dict[str, Callable[[Path], Peer]] = {"openai-agents": OpenAIAgents, "pydantic-ai": PydanticAI}


async def main(folder: Path, name: str, messages: int) -> None:
    """Warm with a short session, then turns one by one."""
    peer = PEERS[name](folder)
    await peer.load("warm", 10)
    await peer.load("it", messages)
    for key in ("warm", "warm", "warm", "it"):
        await peer.turn(key)
    took: list[float] = []
    began, before = wall(), written()
    while len(took) < TURNS and wall() - began < BUDGET_S:
        spent = cpu()
        await peer.turn("it")
        took.append(cpu() - spent)
    count = len(took)
    report(
        cpu_ms=median(took) * 1e3,
        wall_ms=(wall() - began) / count * 1e3,
        written_kb=(written() - before) / count / 1e3,
        seen=peer.seen,
        held_mb=resident() / 1e6,
    )


if __name__ == "__main__":
    asyncio.run(main(fresh(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
