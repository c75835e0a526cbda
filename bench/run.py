"""Run every benchmark: ours in this environment, each peer in one of its own.

The numbers go to docs/benchmarks.json, and from there to the plots of docs/benchmarks.md. With
names of scripts (`run.py dispatch startup`) only these run.

A peer that cannot be installed or measured is printed as such and counts as not shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import results

HERE = Path(__file__).parent
VENVS = HERE.parent / ".venv-bench"

# kimi-cli's command is never started; its tool layer is the package kosong.
PEERS = {
    "kimi-cli": ["kosong"],
    "pydantic-ai": ["pydantic-ai-slim"],
    "inspect-ai": ["inspect-ai"],
    "openai-agents": ["openai-agents"],
}


def environment(name: str, packages: list[str]) -> Path | None:
    """A venv with the peer in it, made once; None when it cannot be had."""
    folder = VENVS / name
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False)
        pip = [str(python), "-m", "pip", "install", "-q", *packages]
        if made.returncode or subprocess.run(pip, check=False).returncode:
            return None
        (folder / ".ready").touch()
    return python


def measure(python: Path, script: str, name: str) -> dict[str, object]:
    done = subprocess.run(
        [str(python), "-P", str(HERE / script), name],  # -P: mcp.py here is not the package mcp
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"peer": name, "not measured": reason[:200]}
    row: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def dispatch() -> None:
    own = Path(sys.executable)
    names = ["floor: pydantic + task", "toolrest, audit off", "toolrest, audit on"]
    rows = [measure(own, "dispatch.py", name) for name in names]
    for name, packages in PEERS.items():
        python = environment(name, packages)
        if python is None:
            rows.append({"peer": name, "not measured": "could not be installed"})
        else:
            rows.append(measure(python, "dispatch.py", name))
    micros_of = {str(row["peer"]): row["us"] for row in rows if isinstance(row.get("us"), float)}
    results.record(
        "dispatch",
        "One tool call through the whole gate",
        "µs",
        micros_of,  # type: ignore[arg-type]
        "A tool that does nothing, called by a model's reply: arguments checked, decision made, "
        "output shaped. The floor is a pydantic model and a task. `bench/dispatch.py`.",
    )
    base = rows[1].get("us")
    print("µs per no-op tool call")
    for row in rows:
        micros = row.get("us")
        if not isinstance(micros, float) or not isinstance(base, float):
            print(f"  {row['peer']:<24} not measured: {row.get('not measured')}")
            continue
        extra = ", ".join(f"{k} {v:.0f}" for k, v in row.items() if k not in ("peer", "us"))  # type: ignore[str-format]
        print(f"  {row['peer']:<24} {micros:8.1f}   {micros / base:5.1f}x ours   {extra}")


def main() -> None:
    os.environ["BENCH_RESULTS"] = str(results.FILE)
    known = [path.stem for path in sorted(HERE.glob("*.py")) if path.stem not in ("run", "results")]
    wanted = sys.argv[1:] or ["dispatch", *(name for name in known if name != "dispatch")]
    for name in wanted:
        print(f"\n{name}.py", flush=True)
        if name == "dispatch":
            dispatch()
        else:
            subprocess.run([sys.executable, str(HERE / f"{name}.py")], check=False)
    results.write()


if __name__ == "__main__":
    main()
