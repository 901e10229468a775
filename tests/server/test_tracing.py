"""Spans: a turn, its steps, a compaction; below the sender's; without a word of what was said."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers_host import KEY, Play, calls, real, tells
from helpers_kernel import each_loop
from helpers_serve import PATH, serving
from perdure.edges.models.reply import say
from perdure.edges.settings_hosting import TracingSettings
from perdure.edges.tracing import OFF, OpenTelemetry, tracing
from perdure.errors import ConfigError
from perdure.kernel.run import Backend

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@each_loop
def test_a_turn_is_traced_below_its_sender_with_its_steps(
    loop: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    long = "Measure twice, cut once. " * 400

    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    async def main() -> None:
        play = Play(calls("look", text="the canary"), say("done"))
        async with serving(tmp_path, play, tools=[tells("look")]) as found, found.client() as client:
            for text in (long, long, long, long):
                sent = await client.post(
                    f"{PATH}/messages?wait=20", json={"text": text}, headers={"traceparent": PARENT}
                )
                assert sent.json()["stop"] == "stop"
            assert (await found.host.command(KEY, "/compact")).startswith("Compacted")

    real(main, loop)
    spans = kept.get_finished_spans()
    turns = [s for s in spans if s.name == "perdure.turn"]
    steps = [s for s in spans if s.name == "perdure.step"]
    assert [len(turns), len(steps)] == [4, 5]
    assert {f"{s.context.trace_id:032x}" for s in (*turns, *steps)} == {PARENT.split("-")[1]}
    assert {f"{s.parent.span_id:016x}" for s in turns} == {PARENT.split("-")[2]}
    assert {s.parent.span_id for s in steps} == {s.context.span_id for s in turns}
    first = dict(steps[0].attributes or {})
    assert first["gen_ai.request.model"] == "scripted/test"
    assert first["gen_ai.usage.input_tokens"] > 100
    assert [s.attributes["perdure.stop"] for s in turns] == ["stop"] * 4
    (compaction,) = (s for s in spans if s.name == "perdure.compaction")
    assert compaction.attributes["perdure.done"] is True
    assert compaction.attributes["perdure.reason"] == "manual"
    told = repr([(s.name, dict(s.attributes or {}), s.events, s.status.description) for s in spans])
    assert "canary" not in told
    assert "Measure" not in told
    assert KEY not in told


def test_nothing_is_traced_unless_somebody_says_where_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracing(TracingSettings(), {}, virtual=False) is OFF
    told = TracingSettings(endpoint="http://127.0.0.1:9/v1/traces")
    assert tracing(told, {}, virtual=True) is OFF
    on = tracing(told, {}, virtual=False)
    assert isinstance(on, OpenTelemetry)
    on.close()
    monkeypatch.setattr("perdure.edges.tracing.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        tracing(told, {}, virtual=False)
