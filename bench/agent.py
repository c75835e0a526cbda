"""`toolrest exec` beside the real `codex exec`: the same script, the same server, in one run.

Fifty commands one after the other, then a text. Codex is the npm package @openai/codex, taken
from PATH, from $CODEX_BIN, or installed into .venv-bench/codex; when it cannot be had, that is
printed and nothing is compared.

    python bench/agent.py [runs]
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import record
from toolrest.testing import Call
from toolrest.testing.server import ScriptedServer

HERE = Path(__file__).parent
CALLS = 50
SANDBOXES = ("danger-full-access", "workspace-write")
TOOLREST = Path(sys.executable).parent / "toolrest"


def script() -> list[object]:
    return [[Call("exec_command", {"cmd": f"echo {n}"})] for n in range(CALLS)] + ["done"]


def codex() -> str | None:
    """The native binary; node's launcher around it would be measured too."""
    given = os.environ.get("CODEX_BIN")
    if given:
        return given
    folder = HERE.parent / ".venv-bench" / "codex"
    if not list(folder.rglob("bin/codex")) and (npm := shutil.which("npm")):
        command = [npm, "install", "--silent", "--prefix", str(folder), "@openai/codex"]
        subprocess.run(command, check=False, capture_output=True)
    found = [path for path in folder.rglob("codex") if path.is_file() and os.access(path, os.X_OK)]
    native = [path for path in found if "vendor" in path.parts]
    return str(native[0]) if native else shutil.which("codex")


def provider(url: str) -> str:
    rows = {"name": "mock", "base_url": url, "env_key": "MOCK_API_KEY", "wire_api": "responses"}
    body = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
    retries = "request_max_retries = 0\nstream_max_retries = 0\n"
    return f"[model_providers.mock]\n{body}{retries}"


def prepare(name: str, folder: Path, url: str) -> dict[str, str]:
    """A home of its own, and the environment to run in."""
    home, tmp = folder / "home", folder / "tmp"
    home.mkdir()
    tmp.mkdir()
    top = 'model = "gpt-5.5"\nmodel_provider = "mock"\napproval_policy = "never"\n'
    if name == "codex":
        top += "check_for_update_on_startup = false\n"
        tail = "[sandbox_workspace_write]\nexclude_slash_tmp = true\n"
        tail += "[analytics]\nenabled = false\n[feedback]\nenabled = false\n"
    else:
        tail = ""
    (home / "config.toml").write_text(top + provider(url) + tail)
    own = {"TOOLREST_HOME": str(home), "CODEX_HOME": str(home), "HOME": str(folder)}
    base = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp), "MOCK_API_KEY": "dummy"}
    return {**base, **own}


def once(name: str, binary: str, sandbox: str) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(dir=HERE.parent) as made,
        ScriptedServer(script(), check=False) as server,
    ):
        folder = Path(made)
        work = folder / "work"
        work.mkdir()
        env = prepare(name, folder, server.url)
        command = [binary, "exec", "--json", "--skip-git-repo-check", "-s", sandbox]
        started = time.monotonic()
        child = subprocess.Popen(
            [*command, "-C", str(work), "go"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        assert child.stdout is not None
        out = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        times = [request.at for request in server.requests if request.wire]
        if status or len(times) != CALLS + 1:
            assert child.stderr is not None
            words = child.stderr.read().decode()[-300:] or out.decode()[-300:]
            raise RuntimeError(f"{name}: {len(times)} requests, status {status}: {words}")
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return {
        "start to first request, ms": (times[0] - started) * 1000,
        "round trip, ms": statistics.median(gaps) * 1000,
        "whole run, s": wall,
        "peak memory, MB": usage.ru_maxrss / 1024,
    }


def measure(binaries: dict[str, str], sandbox: str, runs: int) -> dict[str, dict[str, float]]:
    """The median of each figure. Runs take turns, so that a noisy moment hits both."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in binaries}
    for _ in range(runs):
        for name, binary in binaries.items():
            rows[name].append(once(name, binary, sandbox))
    return {
        name: {key: statistics.median(row[key] for row in found) for key in found[0]}
        for name, found in rows.items()
    }


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    binaries = {"toolrest": str(TOOLREST)}
    found = codex()
    if found:
        binaries["codex"] = found
    for sandbox in SANDBOXES:
        print(f"\n{sandbox}: {CALLS} commands, median of {runs} runs")
        rows = measure(binaries, sandbox, runs)
        record(
            f"agent-{sandbox}",
            f"{CALLS} commands by `exec`, {sandbox}",
            "ms",
            {
                f"{name}, {key}": value
                for name, found in rows.items()
                for key, value in found.items()
                if "ms" in key
            },
            "`bench/agent.py`.",
        )
        theirs = rows.get("codex")
        for key, value in rows["toolrest"].items():
            if theirs is None:
                print(f"  {key:<28} toolrest {value:8.1f}   codex not measured (not installed)")
            else:
                ratio = value / theirs[key]
                print(
                    f"  {key:<28} toolrest {value:8.1f}   codex {theirs[key]:8.1f}   {ratio:.2f}x"
                )


if __name__ == "__main__":
    main()
