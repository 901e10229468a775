"""A population of sessions and what each says in a week: the demo's and the benchmarks' workload.

Most are assistants who are asked a little every day; every twentieth is a coder that reads files many
times the size of an answer. All texts and times follow from the session's number, so runs are repeatable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from perdure.contracts import LetterKind, Request
from perdure.edges.models.reply import ScriptedReply, say
from perdure.edges.models.sources import demo_source
from perdure.edges.models.summaries import last_text
from perdure.host import Host, Sent
from perdure.records import Record
from perdure.replay import generate
from perdure.replay.steps import Kind

DAY = 86_400.0
HEARTBEAT = "Heartbeat: is anything due today? If not, reply HEARTBEAT_OK."
QUESTIONS = (
    "What did I ask you to remember so far?",
    "Please read notes.md and tell me what is open.",
    "Remember that the review of chapter {n} moved to room {m}.",
    "Remember that invoice {m} is to be paid before day {n}.",
    "Which files are there? Please list all files.",
    "Draft two lines for the team: we ship on day {n}, tickets {m} and {n} stay open.",
    "Search for invoice in the notes.",
    "How sure are you about the number {m}?",
)
CODE: dict[str, Kind] = {"service.py": "code", "orders.py": "code", "build.log": "log", "report.json": "json"}


class Line(Record):
    """Something said: when (seconds since the start), by whom, what."""

    at: float
    sender: str
    text: str


def key_of(n: int) -> str:
    """The key of the n-th session."""
    return f"agent:{'coder' if n % 20 == 19 else 'main'}:demo:dm:u{n:04d}"


def script(n: int, days: int) -> Iterator[Line]:
    """What is said to the n-th session in so many days, in order of time."""
    coder = n % 20 == 19
    for day in range(days):
        morning = day * DAY + 8 * 3600 + _number(n, day, 2) % 36_000
        yield Line(morning - 60, "heartbeat", HEARTBEAT)
        for k in range(6 if coder else 1 + _number(n, day, 1) % 2):
            seed = _number(n, day, 10 + k)
            text = f"Please read {tuple(CODE)[seed % 4]}" if coder else QUESTIONS[seed % len(QUESTIONS)]
            yield Line(morning + k * 100 + seed % 60, "user", text.format(n=day + 1, m=seed % 9000 + 1000))


def furnish(workspaces: Path) -> None:
    """The files that the sessions read."""
    for agent, files in {
        "main": {"notes.md": ("prose", 1200), "AGENTS.md": ("prose", 600)},
        "coder": {
            name: (kind, 10_000) for name, kind in zip(CODE, ("code", "code", "log", "json"), strict=True)
        },
    }.items():
        folder = workspaces / agent
        folder.mkdir(parents=True, exist_ok=True)
        for seed, (name, (kind, chars)) in enumerate(files.items()):
            text = generate.text(kind, chars, seed)
            (folder / name).write_text(text, encoding="utf-8")


def answer(body: dict[str, Any], request: Request) -> ScriptedReply:
    """The demo persona, which has nothing to say to a heartbeat."""
    return say("HEARTBEAT_OK") if last_text(body).startswith("Heartbeat:") else demo_source(body, request)


async def live(host: Host, n: int, days: int, sent: Callable[[str, str, Sent], None]) -> None:
    """Say everything to the n-th session at its time, waiting for each reply."""
    key = key_of(n)
    for i, line in enumerate(script(n, days)):
        await host.clock.sleep(max(0.0, line.at - host.clock.now()))
        kind: LetterKind = "internal_system" if line.sender == "heartbeat" else "external_user"
        letter = await host.send(key, line.text, sender=line.sender, mid=f"{n}-{i}", kind=kind)
        sent(key, f"{n}-{i}", letter)
        await letter.reply()


def _number(*parts: int) -> int:
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=4).digest(), "big")
