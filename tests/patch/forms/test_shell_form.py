"""Patches inside shell commands, against the recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from toolrest.patch import codex_grammar as grammar
from toolrest.patch import run as summary
from toolrest.patch.errors import PatchError
from toolrest.patch.files.os_files import OsFiles
from toolrest.patch.forms.shell_command import ImplicitPatch, ShellPatch, recognise
from toolrest.patch.overlay import OverlayView
from toolrest.patch.plan import verify
from toolrest.patch.run import run

Case: TypeAlias = dict[str, Any]
Tree: TypeAlias = dict[str, Any]

BODY = "*** Begin Patch\n*** Add File: out.txt\n+hi\n*** End Patch"
HEREDOC = f"apply_patch <<'EOF'\n{BODY}\nEOF"


def as_a_tool(found: ShellPatch, workdir: str) -> str:
    cwd = found.cwd(workdir)
    with OsFiles() as files:
        try:
            patch = grammar.parse(found.text)
            verify(patch, OverlayView(files), cwd)
        except PatchError as error:
            return summary.refused(error)
        if not patch.operations:
            return summary.EMPTY
        outcome = run(found.text, files, cwd)
    ran = summary.ran(outcome.exit_code, 0.0, outcome.stdout + outcome.stderr)
    return f"Wall time: 0.0000 seconds\nOutput:\n{ran}"


def test_recorded_commands(
    shell_case: Case,
    folder: Path,
    build: Callable[[Path, Tree], None],
    snapshot: Callable[[Path], Tree],
) -> None:
    for name in ("foo/sub", "foo bar"):
        (folder / name).mkdir(parents=True)
    build(folder, {"have.txt": "a\n"})
    before = snapshot(folder)
    args = shell_case.get("args", {})
    workdir = str(folder / args.get("workdir_suffix", "."))
    argv = [args.get("shell", "bash"), "-lc", shell_case["cmd"].replace("$W", str(folder))]
    try:
        found = recognise(argv)
    except ImplicitPatch as error:
        said: str | None = summary.refused(error)
    else:
        said = None if found is None else as_a_tool(found, workdir)
    assert (said is None) == (shell_case["kind"] == "shell")
    if said is not None:
        assert said.replace(str(folder), "$DIR") == shell_case["output"]
        created = {k: v for k, v in snapshot(folder).items() if k not in before}
        assert created == shell_case["created"]


@pytest.mark.parametrize(
    "argv",
    [
        ["apply_patch", BODY],
        ["applypatch", BODY],
        ["bash", "-c", HEREDOC],
        ["/bin/zsh", "-lc", HEREDOC],
        ["SH.exe", "-c", HEREDOC],
        ["pwsh", "-Command", HEREDOC],
        ["powershell.exe", "-NoProfile", "-command", HEREDOC],
        ["cmd", "/C", HEREDOC],
        ["bash", "-c", f"VAR=1 {HEREDOC}"],
        ["bash", "-c", HEREDOC.replace("apply_patch", "apply_patch -")],
    ],
)
def test_argument_vectors_that_are_patches(argv: list[str]) -> None:
    assert recognise(argv) == ShellPatch(BODY)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["ls"],
        ["apply_patch"],
        ["apply_patch", BODY, "more"],
        ["fish", "-c", HEREDOC],
        ["bash", "-x", HEREDOC],
        ["bash", "-C", HEREDOC],
        ["pwsh", "-NoLogo", "-Command", HEREDOC],
        ["bash", "-c", "apply_patch <<'EOF'\n\udcff"],
        ["bash", "-c", "sudo " + HEREDOC],
        ["bash", "-c", f"({HEREDOC}\n)"],
        ["bash", "-c", f"{{ {HEREDOC}\n}}"],
        ["bash", "-c", f"{HEREDOC}\n{HEREDOC}"],
    ],
)
def test_argument_vectors_that_are_not(argv: list[str]) -> None:
    assert recognise(argv) is None


def test_a_bare_patch_is_refused() -> None:
    for argv in ([BODY], ["bash", "-lc", BODY], ["bash", "-lc", f"<<EOF\n{BODY}\nEOF"]):
        with pytest.raises(ImplicitPatch):
            recognise(argv)


def test_extra_words_pass_behind_cd_only() -> None:
    patch = f"apply_patch extra <<'EOF'\n{BODY}\nEOF"
    assert recognise(["bash", "-c", f"cd 'a b' && X=1 {patch}"]) == ShellPatch(BODY, "a b")
    assert recognise(["bash", "-c", patch]) is None


def test_the_folder_is_joined_as_text() -> None:
    assert ShellPatch("", None).cwd("/w") == "/w"
    assert ShellPatch("", "").cwd("/w") == "/w"
    assert ShellPatch("", "../x").cwd("/w/y") == "/w/x"
    assert ShellPatch("", "/abs").cwd("/w") == "/abs"
