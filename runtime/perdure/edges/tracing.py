"""OpenTelemetry spans: one for each turn, step and compaction, where somebody wants them.

Off, a span is one attribute look-up and a context manager that does nothing. It is on where `[tracing]
endpoint` (or `OTEL_EXPORTER_OTLP_ENDPOINT`) says where spans go, and where the program around the host
has set up the SDK itself. Names and attributes follow the conventions for generative AI where there are
any. Neither texts nor errors' messages are among them, and session keys only as a hash unless told.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, TypeAlias

from perdure.edges.settings_hosting import TracingSettings
from perdure.errors import ConfigError

Value: TypeAlias = "str | int | float | bool"
VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
MOST_PARENTS = 4_096  # letters whose sender's span is remembered until their turn begins
FLUSH = 3.0  # seconds that the last spans have at the end


class Span:
    """What a block may add to its span; this one is nobody's."""

    def set(self, **attributes: Value) -> None:
        """Attributes, by their names with `_` for `.`."""


class Tracing:
    """Off."""

    _nothing: AbstractContextManager[Span] = nullcontext(Span())

    def span(self, name: str, key: str, **attributes: Value) -> AbstractContextManager[Span]:
        """A span while the block runs, below the one that runs already."""
        return self._nothing

    def turn(self, key: str, number: int) -> AbstractContextManager[Span]:
        """The span of a turn, below that of who sent the message."""
        return self._nothing

    def arrived(self, key: str, headers: Mapping[str, str]) -> None:
        """A message comes with its sender's trace context (`traceparent`, `tracestate`)."""

    def close(self) -> None:
        """Send what is left."""


OFF = Tracing()


class _Real(Span):
    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, **attributes: Value) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(name.replace("__", "\0").replace("_", ".").replace("\0", "_"), value)


class OpenTelemetry(Tracing):
    """On. `provider` makes the tracer; it is shut down at the end if it is ours."""

    def __init__(self, provider: Any, *, ours: bool, session_keys: bool) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider, self._ours, self._session_keys = provider, ours, session_keys
        self._tracer = provider.get_tracer("perdure")
        self._propagator = TraceContextTextMapPropagator()
        self._parents: OrderedDict[str, Any] = OrderedDict()

    def span(self, name: str, key: str, **attributes: Value) -> AbstractContextManager[Span]:
        return self._started(name, key, None, attributes)

    def turn(self, key: str, number: int) -> AbstractContextManager[Span]:
        return self._started("perdure.turn", key, self._parents.pop(key, None), {"perdure_turn": number})

    def arrived(self, key: str, headers: Mapping[str, str]) -> None:
        if "traceparent" not in headers:
            return
        self._parents[key] = self._propagator.extract(dict(headers))
        while len(self._parents) > MOST_PARENTS:
            self._parents.popitem(last=False)

    @contextmanager
    def _started(self, name: str, key: str, parent: Any, attributes: Mapping[str, Value]) -> Iterator[Span]:
        started = self._tracer.start_as_current_span(
            name, parent, record_exception=False, set_status_on_exception=False
        )
        with started as raw:
            span = _Real(raw)
            span.set(perdure_session=self._named(key), **attributes)
            try:
                yield span
            except BaseException as error:
                span.set(error_type=type(error).__name__)
                raise

    def _named(self, key: str) -> str:
        return key if self._session_keys else hashlib.blake2b(key.encode(), digest_size=8).hexdigest()

    def close(self) -> None:
        if self._ours:
            self._provider.shutdown()


def tracing(settings: TracingSettings, environ: Mapping[str, str], *, virtual: bool) -> Tracing:
    """As configured. Raises `ConfigError` where spans are wanted and nothing can send them."""
    told = settings.endpoint or next((environ[name] for name in VARIABLES if environ.get(name)), "")
    if virtual or not settings.enabled:
        return OFF
    if told:
        return OpenTelemetry(_exporting(settings.endpoint), ours=True, session_keys=settings.session_keys)
    if "opentelemetry.sdk.trace" in sys.modules:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider

        provider = trace.get_tracer_provider()
        if isinstance(provider, TracerProvider):
            return OpenTelemetry(provider, ours=False, session_keys=settings.session_keys)
    return OFF


def _exporting(endpoint: str) -> Any:
    if find_spec("opentelemetry.sdk") is None or find_spec("opentelemetry.exporter") is None:
        raise ConfigError("tracing.endpoint: spans can't be sent: pip install 'perdure[tracing]'")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "perdure"}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint or None, timeout=FLUSH)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
