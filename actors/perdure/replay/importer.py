"""Recorded sessions → scenarios. Nothing is dropped silently: what doesn't come through is counted.

User messages come in; assistant messages and tool results are what model and tools return; a recorded
error or abort is that reply's outcome; recorded compactions are dropped, the replay makes its own.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from perdure.errors import UsageError
from perdure.records import Assistant, Record
from perdure.replay.acts import Act, Aside, Reply, acts
from perdure.replay.formats.detect import read_recording
from perdure.replay.recording import Change, Lost, Recording, counted
from perdure.replay.rescript import Script
from perdure.replay.scenario import dump
from perdure.replay.steps import Header, Scenario

DEFAULT_WINDOW = 200_000


class Imported(Record):
    """A scenario made from a recording. `entries` and `kept` count records of the source."""

    scenario: Scenario
    source: str
    format: str
    entries: int
    kept: int
    lost: tuple[Lost, ...] = ()

    def report(self, out: str | None) -> dict[str, Any]:
        """The JSON object of `perdure import`; `out` is where the scenario was written."""
        lost = [{"what": row.what, "count": row.count} for row in self.lost]
        return {
            "source": self.source,
            "format": self.format,
            "entries": self.entries,
            "kept": self.kept,
            "lost": lost,
            "out": out,
        }


def convert(path: str | Path, name: str | None = None) -> Imported:
    """Read a recording of any known program and make a scenario of it; the file is not changed.

    Raises UsageError (no such file, unknown format, nothing in it) and UnreadableFile.
    """
    source = Path(path)
    recording = read_recording(source)
    losses = Counter({row.what: row.count for row in recording.lost})
    told = acts(recording.events, losses)
    if not told:
        raise UsageError(f"{path}: a {recording.format} file without a message; there is nothing to replay")
    header = _header(name or source.stem, source.name, recording, told)
    script = Script(header.start, header.model, header.thinking, losses)
    for n, act in enumerate(told):
        script.take(act, _next_model(told, n))
    script.close()
    scenario = Scenario(header, tuple(script.steps))
    kept = script.kept + recording.joined
    return Imported(scenario, str(path), recording.format, recording.entries, kept, counted(losses))


def write(imported: Imported) -> bytes:
    """The scenario's bytes for the file of `-o`."""
    return dump(imported.scenario)


def _header(name: str, source: str, recording: Recording, told: tuple[Act, ...]) -> Header:
    thinking = [_change(act, "thinking") for act in told]
    first = next((n for n, level in enumerate(thinking) if level), None)
    settled = first is not None and not any(isinstance(act, Reply) for act in told[:first])
    return Header(
        name=name,
        description=f"made from {source} ({recording.format})",
        window=recording.window or DEFAULT_WINDOW,
        model=_next_model(told, 0) or Header(name="").model,
        thinking=thinking[first] if settled and first is not None else "off",
        start=min(filter(None, (recording.start, told[0].time)), default=0),
        cwd=recording.cwd,
    )


def _change(act: Act, kind: str) -> str:
    match act:
        case Aside(what=Change() as change) if change.kind == kind:
            return change.value
        case _:
            return ""


def _next_model(told: tuple[Act, ...], start: int) -> str:
    """Who answers next, as `provider/id`; "" where the recording doesn't tell."""
    for act in told[start:]:
        if isinstance(act, Reply):
            return model_of(act.message)
    return ""


def model_of(message: Assistant) -> str:
    """`provider/id` of an answer, "" where either is missing."""
    return f"{message.provider}/{message.model}" if message.provider and message.model else ""
