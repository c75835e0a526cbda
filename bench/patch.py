"""ms per patch: 200 hunks on a 50,000-line file, and a small one, beside Codex's own binary.

In one run, in turns: our engine in process, our command, Codex's `apply_patch` (from its npm
package, installed once beside the other peers), and for scale an interpreter that does nothing.
Every run starts from the same file, and every result is compared. Ours flushes to disk (fsync)
and can roll back; that is part of the time.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from results import record

PEERS = Path(__file__).parent.parent / ".venv-bench"
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
LINES, HUNKS = 50_000, 200


def codex() -> Path | str:
    """A link named apply_patch to Codex's binary, or why there is none."""
    folder = PEERS / "codex"
    folder.mkdir(parents=True, exist_ok=True)
    found = _binary(folder)
    if found is None:
        if shutil.which("npm") is None:
            return "npm is not installed"
        install = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
        done = subprocess.run([*install, "@openai/codex"], capture_output=True, check=False)
        found = _binary(folder)
        if found is None:
            return f"npm could not install it (exit code {done.returncode})"
    link = folder / "apply_patch"
    link.unlink(missing_ok=True)
    link.symlink_to(found.resolve())
    return link


def _binary(folder: Path) -> Path | None:
    given = os.environ.get("CODEX_BINARY")
    if given:
        return Path(given)
    return next(folder.glob("node_modules/@openai/codex*/vendor/*/bin/codex"), None)


def big() -> tuple[str, str]:
    lines = [f"    value_{i} = compute({i % 97}, 'row {i}')" for i in range(LINES)]
    out = ["*** Begin Patch", "*** Update File: f.py"]
    for at in range(100, LINES, LINES // HUNKS):
        context = [f" {line}" for line in lines[at - 3 : at]]
        out += ["@@", *context, f"-{lines[at]}", f"+{lines[at]}  # changed", f" {lines[at + 1]}"]
    return "\n".join(lines) + "\n", "\n".join([*out, "*** End Patch"])


def small() -> tuple[str, str]:
    text = "def greet():\n    print('hello')\n\n\ngreet()\n"
    body = "*** Update File: f.py\n@@ def greet():\n-    print('hello')\n+    print('hi')\n"
    return text, f"*** Begin Patch\n{body}*** End Patch"


def in_process(patch: str, cwd: str) -> None:
    from toolrest.patch.files.os_files import OsFiles
    from toolrest.patch.run import run

    with OsFiles() as files:
        assert run(patch, files, cwd).exit_code == 0


def command(argv: list[str]) -> Callable[[str, str], None]:
    def run(patch: str, cwd: str) -> None:
        subprocess.run(argv, cwd=cwd, input=patch.encode(), stdout=subprocess.DEVNULL, check=True)

    return run


def measure(name: str, text: str, patch: str, ways: dict[str, Callable[[str, str], None]]) -> None:
    seen: dict[str, list[float]] = {way: [] for way in ways}
    results: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "f.py")
        for number in range(ROUNDS + 3):
            for way, work in ways.items():
                path.write_text(text)
                start = time.perf_counter()
                work(patch, folder)
                spent = time.perf_counter() - start
                if number >= 3:
                    seen[way].append(spent * 1000)
                if way != FLOOR:
                    results.add(path.read_text())
    assert len(results) == 1, "the results differ"
    record(
        f"patch-{'small' if 'small' in name else 'large'}",
        f"A patch: {name}",
        "ms",
        {way.replace("ours", "toolrest"): statistics.median(times) for way, times in seen.items()},
        "`bench/patch.py`.",
    )
    print(f"{name}: ms, median and best of {ROUNDS}")
    for way, times in seen.items():
        print(f"  {way:<34} {statistics.median(times):8.1f} {min(times):8.1f}")


FLOOR = "an interpreter that does nothing"


def main() -> None:
    ours = shutil.which("apply_patch", path=str(Path(sys.executable).parent))
    ways: dict[str, Callable[[str, str], None]] = {
        "ours, in process": in_process,
        "ours, as a command": command([ours] if ours else [sys.executable, "-m", "toolrest.patch"]),
        FLOOR: command([sys.executable, "-c", "pass"]),
    }
    peer = codex()
    if isinstance(peer, Path):
        ways["codex's apply_patch, as a command"] = command([str(peer)])
    measure(f"{HUNKS} hunks on {LINES:,} lines", *big(), ways)
    measure("a small patch", *small(), ways)
    if isinstance(peer, str):
        print(f"codex's apply_patch: not measured: {peer}")


if __name__ == "__main__":
    main()
