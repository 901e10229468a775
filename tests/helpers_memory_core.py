"""A memory-core on a folder, with the calls of its tools, for tests."""

import json
from pathlib import Path
from types import SimpleNamespace

from perdure.contracts import MemoryContext
from perdure.plugins.memories.core.memory import MemoryCore
from perdure.testing.lending import FakeRuntime

KEY = "agent:main:cli:dm:local"


class Notes:
    """A workspace with notes, its memory, and what the tools say (as JSON)."""

    def __init__(self, folder: Path, settings=None, runtime=None) -> None:
        self.workspace = folder / "workspace"
        self.runtime = runtime if runtime is not None else FakeRuntime(folder / "store", settings)
        self.memory = MemoryCore(self.runtime)

    def write(self, path: str, text: str | bytes) -> Path:
        """A file of the workspace."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return file

    async def call(self, tool: str, session: str = KEY, **arguments):
        """What a tool answers; `_from` stands for `from`."""
        arguments = {name.removeprefix("_"): value for name, value in arguments.items()}
        found = next(each for each in self.memory.tools() if each.spec.name == tool)
        output = await found.run(arguments, _Context(self.workspace, session))
        assert not output.is_error
        return json.loads(output.content[0].text)

    async def search(self, query, session: str = KEY, **more):
        """The results of `memory_search`."""
        return (await self.call("memory_search", session, query=query, **more))["results"]

    async def snippets(self, query: str, session: str = KEY) -> list[str]:
        """The texts of the results, without where they are from."""
        return [each["snippet"].partition("\n\nSource: ")[0] for each in await self.search(query, session)]

    def context(self, agent: str = "main") -> MemoryContext:
        return MemoryContext(agent, f"agent:{agent}:cli:dm:local", self.workspace, self.runtime)


class _Context(SimpleNamespace):
    call_id = "call"
    virtual = True

    def __init__(self, workspace: Path, session: str) -> None:
        super().__init__(workspace=workspace, session=session)

    async def run_blocking(self, work):
        return work()
