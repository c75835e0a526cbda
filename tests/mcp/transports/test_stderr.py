"""The reason of a crash is found in what interpreters write, whatever comes after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolrest.mcp.transports.stderr import crash_reason

NODE = {
    "throw new Error('API_TOKEN is not set')": "Error: API_TOKEN is not set",
    "Promise.reject(new TypeError('first\\nsecond'))": "TypeError: first | second",
    "require('fs').writeFileSync('/proc/x', '')": "open '/proc/x'",
    "require('nonesuch-package')": "Cannot find module 'nonesuch-package'",
    "console.error('usage: s FOLDER'); process.exit(2)": "usage: s FOLDER",
}
PYTHON = {
    "import nonesuch_package": "ModuleNotFoundError: No module named 'nonesuch_package'",
    "raise ValueError('first\\nsecond')": "ValueError: first | second",
    "import sys; sys.exit('usage: s FOLDER')": "usage: s FOLDER",
    "try:\n  1 / 0\nexcept Exception:\n  raise RuntimeError('later')": "RuntimeError: later",
}


def test_errors_of_node(node: str, tmp_path: Path) -> None:
    for number, (code, reason) in enumerate(NODE.items()):
        script = tmp_path / f"{number}.cjs"
        script.write_text(code)
        done = subprocess.run([node, str(script)], capture_output=True, text=True)
        found = crash_reason(done.stderr)
        assert reason in found, done.stderr
        assert "Node.js v" not in found
        assert "    at " not in found


@pytest.mark.parametrize(("code", "reason"), PYTHON.items())
def test_errors_of_python(code: str, reason: str) -> None:
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert crash_reason(done.stderr) == reason


@pytest.mark.parametrize("text", ["", "\n\n", "just a line", "a\n" * 100_000])
def test_any_text_is_short(text: str) -> None:
    assert len(crash_reason(text)) <= 400
