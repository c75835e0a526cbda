"""`toolrest hooks`: what is configured, and what each hook is run for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.forked import toolrest


def hooks(folder: Path) -> subprocess.CompletedProcess[str]:
    return toolrest("hooks", "-C", str(folder), cwd=folder)


def test_the_list(tmp_path: Path, toolrest_home: Path) -> None:
    assert "no hooks in" in hooks(tmp_path).stdout
    file = toolrest_home / "config.toml"
    file.write_text(
        '[[hooks.PreToolUse]]\ncommand = ["/bin/true", "x"]\nmatcher = "Bash"\n'
        '[[hooks.PostToolUse]]\ncommand = ["/bin/true"]\non_error = "continue"\n'
        '[[hooks.PreToolUse]]\ncommand = ["/bin/true"]\nmatcher = "nothing"\n'
        '[[hooks.Stop]]\ncommand = ["/bin/true"]\n'
    )
    file.chmod(0o600)
    lines = hooks(tmp_path).stdout.splitlines()
    assert lines[:3] == [
        "PreToolUse  /bin/true x",
        "  matcher Bash, 60 s, on error block",
        "  for exec_command, write_stdin",
    ]
    assert "  for no tool that is on offer now (those of MCP servers come later)" in lines
    assert "  for every tool" in lines
    file.write_text('[[hooks.PreToolUse]]\ncommand = ["./guard"]\n')
    refused = hooks(tmp_path)
    assert refused.returncode != 0
    assert "hooks.PreToolUse: ./guard" in refused.stderr
