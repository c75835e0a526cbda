"""Spans and metrics of a host program that uses OpenTelemetry.

In a process of its own: a program's providers can be set only once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import asyncio, json, sys
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))

from toolrest import Toolrest, tool

@tool(mutating=False)
async def fine(n: int) -> str:
    return str(n)

async def main():
    settings = json.loads(sys.argv[1])
    async with Toolrest(sys.argv[2], tools=[fine], settings=settings) as rest:
        await rest.call("fine", {"n": 1}, call_id="one")
        await rest.call("fine", {"n": "x"}, call_id="two")
        await rest.call("made_up", call_id="three")

asyncio.run(main())
data = reader.get_metrics_data()
points = [
    (metric.name, dict(point.attributes), getattr(point, "value", None) or point.count)
    for resource in (data.resource_metrics if data else ())
    for scope in resource.scope_metrics
    for metric in scope.metrics
    for point in metric.data.data_points
]
ended = [
    (span.name, dict(span.attributes), span.end_time > span.start_time)
    for span in spans.get_finished_spans()
]
print(json.dumps([ended, points]))
"""


def traced(tmp_path: Path, **settings: Any) -> tuple[list[Any], list[Any]]:
    pytest.importorskip("opentelemetry.sdk")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(settings), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    ended, points = json.loads(done.stdout)
    return ended, points


def test_each_call_is_a_span_and_counts(tmp_path: Path) -> None:
    ended, points = traced(tmp_path)
    name = "toolrest.tool.call"
    assert [span[0] for span in ended] == [name] * 3
    assert all(span[2] for span in ended)
    by_call = {span[1].pop("call_id"): span[1] for span in ended}
    assert by_call["one"] == {"tool": "fine", "success": True}
    assert by_call["two"] == {"tool": "fine", "success": False, "failure": "input_invalid"}
    assert by_call["three"]["failure"] == "tool_not_found"
    for metric in (name, "toolrest.tool.call.duration_ms"):
        counted = {
            (tags["tool"], tags["success"]): count for of, tags, count in points if of == metric
        }
        # What a model made up is no tool of its own.
        assert counted == {("fine", "true"): 1, ("fine", "false"): 1, ("(unknown)", "false"): 1}


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    assert traced(tmp_path, **{"otel.enabled": False}) == ([], [])
