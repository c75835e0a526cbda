"""A batch against `xargs -P` of the same `exec`: throughput, the driver's memory, resuming.

    python bench/batch.py [100] [1000] [10000] [--no-sessions] [--svg FILE]

Each size is one `toolrest batch --store` of scripted tasks of three turns, with xargs before and
after it, a hundred tasks each time, so that a machine that gets busier meets both. `driver` is the
engine with sessions that end at once: its own time and memory for each task. `resume` is the start
of a finished batch.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from toolrest.batch import attempt
from toolrest.batch.child import ChildEnd
from toolrest.batch.engine import LocalEngine
from toolrest.batch.run_task import RunOptions
from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import FolderStore
from toolrest.batch.stores.totals import Totals
from toolrest.batch.tasks.task import read_tasks
from toolrest.testing import Call, ScriptedServer

TOOLREST = str(Path(sys.executable).parent / "toolrest")
JOBS = max(2, os.cpu_count() or 2)
PLAN = {"plan": [{"step": "look", "status": "in_progress"}]}
SYNTHETIC = (100, 1000, 10_000)
SAMPLE = 200
"""Tasks that xargs runs beside a batch, at the most."""


def reply(body: Any) -> Any:
    turns = sum(item.get("type") == "function_call_output" for item in body["input"])
    return "done" if turns == 2 else [Call("update_plan", PLAN)]


def measured(command: list[str], env: dict[str, str], **options: Any) -> dict[str, float]:
    """Seconds, seconds of CPU of all children, and the most memory of the first one in MB."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    most = 0
    with subprocess.Popen(command, env=env, stdout=-3, stderr=-3, **options) as process:
        done = threading.Event()

        def look() -> None:
            nonlocal most
            while not done.wait(0.02):
                try:
                    text = Path(f"/proc/{process.pid}/status").read_text()
                except OSError:
                    return
                if "VmHWM:" in text:
                    most = int(text.split("VmHWM:")[1].split()[0])

        thread = threading.Thread(target=look)
        thread.start()
        code = process.wait()
        done.set()
        thread.join()
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code:
        raise SystemExit(f"{command[:3]} ended with {code}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu": cpu, "mb": most / 1024}


def write_tasks(base: Path, count: int) -> Path:
    rows = ({"id": f"t{at}", "prompt": "go", "cd": str(base / "ws")} for at in range(count))
    path = base / f"tasks-{count}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def batch_command(base: Path, count: int) -> list[str]:
    store = str(base / f"store-{count}")
    return [TOOLREST, "batch", str(write_tasks(base, count)), "--store", store, "-j", str(JOBS)]


def run_size(base: Path, count: int, env: dict[str, str]) -> dict[str, Any]:
    """All tasks of a size as one batch, between two halves of a sample by xargs."""
    half = min(count, SAMPLE) // 2
    each = f"{TOOLREST} exec --json -C {base / 'ws'} go >/dev/null 2>&1"
    xargs = ["sh", "-c", f"seq {half} | xargs -P {JOBS} -I@ sh -c '{each}'"]
    halves = [measured(xargs, env, cwd=base)]
    batch = measured(batch_command(base, count), env, cwd=base)
    halves.append(measured(xargs, env, cwd=base))
    results = [*(base / f"store-{count}" / "tasks").glob("*/result.json")]
    failed = sum(json.loads(path.read_bytes())["failure"] is not None for path in results)
    shutil.rmtree(base / f"store-{count}")
    seconds, cpu = (sum(row[name] for row in halves) / (2 * half) for name in ("seconds", "cpu"))
    return {
        "tasks": count,
        "results": len(results),
        "failed": failed,
        "batch tasks/s/core": count / batch["seconds"] / JOBS,
        "xargs tasks/s/core": 1 / seconds / JOBS,
        "throughput": seconds * count / batch["seconds"],
        "batch CPU s/task": batch["cpu"] / count,
        "xargs CPU s/task": cpu,
        "throughput by CPU": cpu * count / batch["cpu"],
        "batch MB": batch["mb"],
    }


def driver_size(base: Path, count: int, env: dict[str, str]) -> dict[str, Any]:
    """The driver alone, in a process of its own."""
    command = [sys.executable, __file__, "--driver", str(write_tasks(base, count)), str(base)]
    found = measured(command, env, cwd=base)
    shutil.rmtree(base / "driver")
    return {"tasks": count, "driver CPU ms/task": 1000 * found["cpu"] / count,
            "driver MB": found["mb"]}  # fmt: skip


def run_driver(file: str, base: str) -> None:
    """Run tasks whose sessions end at once."""

    async def at_once(*_: Any, **__: Any) -> ChildEnd:
        await asyncio.sleep(0)
        return ChildEnd(0, {"status": "completed", "reason": "done", "text": "x" * 500})

    attempt.run_child = at_once
    store, runner = FolderStore(os.path.join(base, "driver")), Runner.here()
    engine = LocalEngine(store, RunOptions(), Totals(store, runner), runner, print)
    asyncio.run(engine.run(list(read_tasks(file)), 64))


def resume_size(base: Path, count: int, env: dict[str, str]) -> dict[str, Any]:
    """The start of a finished batch; its results are copies."""
    command = batch_command(base, count)
    store = base / f"store-{count}"
    shutil.rmtree(store, ignore_errors=True)
    row = json.dumps({"id": "t", "failure": None, "attempts": [], "usage": {}, "text": "x" * 500})
    for at in range(count):
        folder = store / "tasks" / f"t{at}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(row)
    measured(command, env, cwd=base)
    best = min((measured(command, env, cwd=base) for _ in range(3)), key=lambda m: m["seconds"])
    shutil.rmtree(store)
    return {"tasks": count, "resume s": best["seconds"], "resume CPU s": best["cpu"]}


CHARTS = (
    ("throughput by CPU", 1.2, 0.95, "throughput beside xargs -P, by CPU (at least 0.95)"),
    ("resume CPU s", 1.0, 1.0, "s of CPU to start a finished batch (budget 1 s)"),
    ("driver MB", 150.0, 150.0, "MB of the driver (budget 150 MB)"),
)
"""Field, value at the top, the limit, title."""


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Each chart over the number of tasks (logarithmic), as SVG."""
    parts = []
    for at, (name, most, limit, title) in enumerate(CHARTS):
        x, line = 460 * at, 170 - 130 * limit / most
        points = [
            (x + 60 + 150 * (len(str(row["tasks"])) - 3), 170 - 130 * min(row[name] / most, 1.1),
             row[name], row["tasks"])
            for row in rows if name in row
        ]  # fmt: skip
        steps = " ".join(f"{px:.0f},{py:.0f}" for px, py, _, _ in points)
        parts.append(f'<text x="{x + 20}" y="20">{title}</text>')
        parts.append(
            f'<path d="M{x + 40} {line:.0f}H{x + 400}" stroke="#c33" stroke-dasharray="4"/>'
        )
        parts.append(f'<path d="M{x + 40} 170H{x + 400}" stroke="#888"/>')
        parts.append(f'<polyline points="{steps}" fill="none" stroke="#3b7dd8" stroke-width="2"/>')
        for px, py, value, tasks in points:
            parts.append(f'<circle cx="{px:.0f}" cy="{py:.0f}" r="4" fill="#3b7dd8"/>')
            parts.append(f'<text x="{px - 12:.0f}" y="{py - 9:.0f}">{value:.2f}</text>')
            parts.append(f'<text x="{px - 14:.0f}" y="188">{tasks}</text>')
    body = "\n".join(parts)
    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{460 * len(CHARTS)}" height="200" '
        f'font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--driver"]:
        run_driver(*words[1:])
        return
    svg = words[words.index("--svg") + 1] if "--svg" in words else None
    sizes = [int(word) for word in words if word.isdecimal()] or [100]
    if "--no-sessions" in words:
        sizes = []
    base = Path(tempfile.mkdtemp(prefix="toolrest-bench-"))
    for name in ("home", "ws"):
        (base / name).mkdir()
    env = {**os.environ, "TOOLREST_HOME": str(base / "home"), "HOME": str(base)}
    try:
        with ScriptedServer([reply] * 1_000_000) as server:
            row = f'name="scripted"\nbase_url="{server.url}"\nwire_api="responses"\n'
            settings = 'model="gpt-5.5"\nmodel_provider="scripted"\n[model_providers.scripted]\n'
            (base / "home" / "config.toml").write_text(settings + row)
            server.requests = deque(maxlen=1)  # type: ignore[assignment]  # no memory of them
            rows = {size: {"tasks": size} for size in sorted({*sizes, *SYNTHETIC})}
            for size in sizes:
                rows[size] |= run_size(base, size, env)
                print(json.dumps(rows[size]), flush=True)
        for size in SYNTHETIC:
            found = driver_size(base, size, env) | resume_size(base, size, env)
            rows[size] |= found
            print(json.dumps(found), flush=True)
        if svg is not None:
            plot(list(rows.values()), svg)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
