"""OpenTelemetry spans and metrics, made from events; nothing without the package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolrest.events import Event, ToolCallBegin, ToolCallEnd

if TYPE_CHECKING:
    from toolrest.gate.bus import Bus

CALL = "toolrest.tool.call"
DURATION = "toolrest.tool.call.duration_ms"


def subscribe_telemetry(bus: Bus) -> None:
    """Trace the session's calls, if the package is installed."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        return
    bus.subscribe(_Tracer(trace.get_tracer("toolrest"), metrics.get_meter("toolrest")))


class _Tracer:
    """One span a call, from its begin to its end, and two instruments."""

    def __init__(self, tracer: Any, meter: Any) -> None:
        self._tracer = tracer
        self._calls = meter.create_counter(CALL, description="tool calls")
        self._duration = meter.create_histogram(DURATION, unit="ms")
        self._open: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, ToolCallBegin):
            self._open[event.call_id] = self._tracer.start_span(
                CALL, attributes={"tool": event.tool, "call_id": event.call_id}
            )
        elif isinstance(event, ToolCallEnd):
            self._end(event)

    def _end(self, event: ToolCallEnd) -> None:
        # A tool name that a model made up must not become a time series.
        name = "(unknown)" if event.failure == "tool_not_found" else event.tool
        tags = {"tool": name, "success": str(event.success is True).lower()}
        self._calls.add(1, tags)
        self._duration.record(event.duration * 1000, tags)
        span = self._open.pop(event.call_id, None)
        if span is None:
            return
        span.set_attribute("success", event.success is True)
        if event.failure is not None:
            span.set_attribute("failure", event.failure)
        span.end()
