"""`toolrest sandbox`: a command's own exit code, and what a shell says where there is none."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access"])
def test_the_exit_code_is_the_commands_or_a_shells(desk: Any, mode: str) -> None:
    plain = desk.workspace / "plain.txt"
    plain.write_text("no program")
    plain.chmod(0o644)

    def code(*argv: str) -> tuple[int, str]:
        ran = desk.run("sandbox", "-s", mode, "--", *argv)
        return ran.code, ran.err

    assert code("true") == (0, "")
    assert code("sh", "-c", "exit 7") == (7, "")
    assert code("sh", "-c", "kill -9 $$") == (137, "")
    missing, words = code("no-such-program", "argument")
    assert missing == 127
    assert words.startswith("toolrest: ")
    assert "no-such-program: not found" in words
    refused, words = code("./plain.txt")
    assert refused == 126
    assert "./plain.txt: Permission denied" in words


@pytest.mark.needs("sandbox")
def test_the_arguments_arrive_as_they_were_typed(desk: Any) -> None:
    odd = ["a b", "$HOME", "`true`", "'", "-e", "", "*"]
    ran = desk.run("sandbox", "--", "printf", "[%s]", *odd)
    assert (ran.code, ran.out) == (0, "".join(f"[{word}]" for word in odd))
