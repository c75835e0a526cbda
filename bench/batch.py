"""A batch against `xargs -P` of the same `exec`: throughput, the driver's memory, resuming.

    python bench/batch.py [100] [1000] [10000] [--resume-only] [--svg FILE]

Each size runs scripted tasks of three turns, by `toolrest batch --store`, then by xargs; on a busy
machine compare the seconds of CPU. `resume` is the start of a finished batch of that size, and
`driver` the most memory of the driver, its children not counted.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from toolrest.testing import Call, ScriptedServer

TOOLREST = str(Path(sys.executable).parent / "toolrest")
JOBS = max(2, os.cpu_count() or 2)
PLAN = {"plan": [{"step": "look", "status": "in_progress"}]}
SYNTHETIC = (100, 1000, 10_000)


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
    batch = measured(batch_command(base, count), env, cwd=base)
    each = f"{TOOLREST} exec --json -C {base / 'ws'} go >/dev/null 2>&1"
    xargs = ["sh", "-c", f"seq {count} | xargs -P {JOBS} -I@ sh -c '{each}'"]
    plain = measured(xargs, env, cwd=base)
    resumed = measured(batch_command(base, count), env, cwd=base)
    return {
        "tasks": count,
        "batch tasks/s/core": count / batch["seconds"] / JOBS,
        "xargs tasks/s/core": count / plain["seconds"] / JOBS,
        "batch CPU s/task": batch["cpu"] / count,
        "xargs CPU s/task": plain["cpu"] / count,
        "throughput": plain["seconds"] / batch["seconds"],
        "driver MB": batch["mb"],
        "resume s": resumed["seconds"],
    }


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
    return {"tasks": count, "resume s": best["seconds"], "resume CPU s": best["cpu"],
            "driver MB": best["mb"]}  # fmt: skip


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Resume time and driver memory over the number of tasks (logarithmic), as SVG."""
    charts = (("resume s", 1.0, "s to start a finished batch (budget 1 s)"),
              ("driver MB", 150.0, "MB of the driver (budget 150 MB)"))  # fmt: skip
    parts = []
    for at, (name, most, title) in enumerate(charts):
        points = [
            (60 + 150 * (len(str(row["tasks"])) - 3), 170 - 130 * min(row[name] / most, 1.1),
             row[name], row["tasks"])
            for row in rows
        ]  # fmt: skip
        x = 460 * at
        line = " ".join(f"{x + px:.0f},{py:.0f}" for px, py, _, _ in points)
        parts.append(f'<text x="{x + 20}" y="20">{title}</text>')
        parts.append(f'<path d="M{x + 40} 40H{x + 400}" stroke="#c33" stroke-dasharray="4"/>')
        parts.append(f'<path d="M{x + 40} 170H{x + 400}" stroke="#888"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="#3b7dd8" stroke-width="2"/>')
        for px, py, value, tasks in points:
            parts.append(f'<circle cx="{x + px:.0f}" cy="{py:.0f}" r="4" fill="#3b7dd8"/>')
            parts.append(f'<text x="{x + px - 12:.0f}" y="{py - 9:.0f}">{value:.2f}</text>')
            parts.append(f'<text x="{x + px - 14:.0f}" y="188">{tasks}</text>')
    body = "\n".join(parts)
    Path(path).write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" width="900" height="200" '
        f'font-family="sans-serif" font-size="12">\n{body}\n</svg>\n'
    )


def main() -> None:
    words = sys.argv[1:]
    svg = words[words.index("--svg") + 1] if "--svg" in words else None
    sizes = [int(word) for word in words if word.isdecimal()] or [100]
    if "--resume-only" in words:
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
            for size in sizes:
                print(json.dumps(run_size(base, size, env)), flush=True)
            rows = [resume_size(base, size, env) for size in SYNTHETIC]
        for found in rows:
            print(json.dumps(found), flush=True)
        if svg is not None:
            plot(rows, svg)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
