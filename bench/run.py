"""Run every benchmark: ours in this environment, each peer in one of its own.

A peer that cannot be installed or measured is printed as such and counts as not shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
        [str(python), str(HERE / script), name],
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
    base = rows[1].get("us")
    print("µs per no-op tool call")
    for row in rows:
        micros = row.get("us")
        if not isinstance(micros, float) or not isinstance(base, float):
            print(f"  {row['peer']:<24} not measured: {row.get('not measured')}")
            continue
        extra = ", ".join(f"{k} {v:.0f}" for k, v in row.items() if k not in ("peer", "us"))  # type: ignore[str-format]
        print(f"  {row['peer']:<24} {micros:8.1f}   {micros / base:5.1f}x ours   {extra}")


if __name__ == "__main__":
    dispatch()
    others = sorted(path.name for path in HERE.glob("*.py") if path.stem not in ("run", "dispatch"))
    for script in others:
        print(f"\n{script}", flush=True)
        subprocess.run([sys.executable, str(HERE / script)], check=False)
