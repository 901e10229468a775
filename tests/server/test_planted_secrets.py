"""Secrets of every shape in what is said, called, returned and raised: none in log, metrics or spans."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers_host import KEY, Fn, Play, real
from helpers_secrets import one_of_each
from helpers_serve import PATH, serving
from perdure.contracts import ToolContext
from perdure.edges.models.reply import ScriptedReply, call, say

OTHERS = (
    ("/rename", {"name": "{}"}),
    ("/command", {"line": "/pin {}"}),
    ("/model", {"model": "{}"}),
    ("/label", {"entry": "{}", "text": "{}"}),
)


def test_no_planted_secret_reaches_log_metrics_or_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    planted = one_of_each()
    seen: list[bytes] = []

    async def breaks(arguments: Mapping[str, Any], context: ToolContext) -> str:
        raise ValueError(f"could not open {arguments['where']}")

    async def main() -> None:
        play = Play()
        async with (
            serving(tmp_path, play, tools=[Fn("breaks", breaks)]) as found,
            found.client() as client,
        ):
            for n, (text, _) in enumerate(planted):
                if n % 2:
                    play.then(ScriptedReply((call("breaks", f"toolu_{n}", where=text),)), say(text))
                else:
                    play.then(RuntimeError(f"the model broke: {text}"))
                sent = await client.post(f"{PATH}/messages?wait=20", json={"text": text, "sender": "user"})
                assert sent.status_code == 200
                path, body = OTHERS[n // 2 % len(OTHERS)]
                await client.post(f"{PATH}{path}", json={k: v.format(text) for k, v in body.items()})
            await found.host.command(KEY, "/compact")
            seen.append((await client.get("/metrics")).content)

    real(main, seconds=60)
    seen.append((tmp_path / "state" / "runtime.log").read_bytes())
    seen.append("\n".join(span.to_json() for span in kept.get_finished_spans()).encode())
    assert len(seen) == 3
    assert all(len(each) > 1_000 for each in seen)
    for text, hidden in planted:
        for what, where in zip(("metrics", "log", "spans"), seen, strict=True):
            assert hidden.encode() not in where, (what, text)
