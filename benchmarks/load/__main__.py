"""`python -m benchmarks.load`: a thousand clients, a quiet phase and a disturbed one, so many runs.

LOAD_MINUTES (15) for each phase, LOAD_RUNS (3), LOAD_CLIENTS (1000), LOAD_LOOP (asyncio).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.load.clients import phase
from benchmarks.load.figures import Phase, Verdict, as_record, beside, stalls
from benchmarks.load.wire import Place

SLOW, VANISHING = 0.10, 0.05
WARM = 20.0  # seconds before the first phase is measured


class Process:
    """A child that answers each line with one line of JSON."""

    def __init__(self, *words: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def hear(self) -> dict[str, float]:
        """Its next line."""
        assert self._child.stdout is not None
        line = await asyncio.to_thread(self._child.stdout.readline)
        if not line:
            raise SystemExit("a process of the load ended: see above")
        return dict(json.loads(line))

    async def ask(self) -> dict[str, float]:
        """Its figures since the last time."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return await self.hear()

    def end(self) -> None:
        """Let it go."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()


async def run(number: int, clients: int, minutes: float, loop: str) -> tuple[list[Phase], list[Verdict]]:
    """One run: both phases against one server."""
    control, server = Process("benchmarks.load.stalls"), Process("benchmarks.load.served", loop)
    try:
        told = await server.hear()
        url = urlsplit(str(told["url"]))
        place = Place(url.hostname or "", url.port or 0, str(told["token"]))
        await phase("warm", place, clients, WARM)
        found = []
        for name, slow, vanishing in (("quiet", 0.0, 0.0), ("disturbed", SLOW, VANISHING)):
            await server.ask()
            await control.ask()
            seen = await phase(name, place, clients, minutes * 60, slow=slow, vanishing=vanishing)
            seen.server, seen.control = await server.ask(), await control.ask()
            print(json.dumps({"run": number, **seen.record()}), flush=True)
            found.append(seen)
    finally:
        control.end()
        server.end()
    quiet, disturbed = found
    return found, [*stalls(quiet), *beside(quiet, disturbed)]


def main() -> None:
    """All runs; exit code 1 where something did not hold."""
    clients, runs = int(os.environ.get("LOAD_CLIENTS", "1000")), int(os.environ.get("LOAD_RUNS", "3"))
    minutes, loop = float(os.environ.get("LOAD_MINUTES", "15")), os.environ.get("LOAD_LOOP", "asyncio")
    out = Path(os.environ.get("LOAD_OUT", "build/load"))
    out.mkdir(parents=True, exist_ok=True)
    records, verdicts = [], []
    for number in range(1, runs + 1):
        phases, found = asyncio.run(run(number, clients, minutes, loop))
        records += [{"run": number, **each.record()} for each in phases]
        verdicts += found
        for verdict in found:
            print(f"{'met   ' if verdict.met else 'MISSED'} {verdict.what}: {verdict.measured}", flush=True)
    report = {
        "clients": clients,
        "loop": loop,
        "phases": records,
        "verdicts": [as_record(v) for v in verdicts],
    }
    (out / "report.json").write_text(json.dumps(report, indent=1))
    raise SystemExit(0 if all(v.met for v in verdicts) else 1)


if __name__ == "__main__":
    main()
