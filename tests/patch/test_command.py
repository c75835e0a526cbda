"""The command line of `apply_patch`: arguments, stdin, streams and exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.machine import packages

from toolrest.patch.command import main

PATCH = "*** Begin Patch\n*** Add File: é.txt\n+hi\n*** End Patch"
OK = "Success. Updated the following files:\nA é.txt\n"
LAST = "Invalid patch: The last line of the patch must be '*** End Patch'\n"
FIRST = "Invalid patch: The first line of the patch must be '*** Begin Patch'\n"
USAGE = "Usage: apply_patch 'PATCH'\n       echo 'PATCH' | apply_patch\n"
ONE = "Error: apply_patch accepts exactly one argument.\n"
FLAG = "--codex-run-as-apply-patch"
NEEDS = f"Error: {FLAG} requires a UTF-8 PATCH argument.\n"


@pytest.mark.parametrize(
    ("argv", "stdin", "code", "stdout", "stderr"),
    [
        (["apply_patch", PATCH], b"", 0, OK, ""),
        (["/usr/bin/applypatch", PATCH], b"ignored", 0, OK, ""),
        (["apply_patch"], PATCH.encode(), 0, OK, ""),
        (["apply_patch"], b"", 2, "", USAGE),
        (["apply_patch", PATCH, "x"], b"", 2, "", ONE),
        (["apply_patch", "--", PATCH], b"", 2, "", ONE),
        (["apply_patch", ""], PATCH.encode(), 1, "", LAST),
        (["apply_patch", "--help"], b"", 1, "", FIRST),
        (
            ["apply_patch", "\udcff"],
            b"",
            1,
            "",
            "Error: apply_patch requires a UTF-8 PATCH argument.\n",
        ),
        (
            ["apply_patch"],
            b"\xff",
            1,
            "",
            "Error: Failed to read PATCH from stdin.\nstream did not contain valid UTF-8\n",
        ),
        (["toolrest", FLAG, PATCH], b"", 0, OK, ""),
        (["toolrest", FLAG, PATCH, "more"], b"", 0, OK, ""),
        (["toolrest", FLAG], PATCH.encode(), 1, "", NEEDS),
        (["toolrest", FLAG, "\udcff"], b"", 1, "", NEEDS),
        (["apply_patch", FLAG], b"", 1, "", FIRST),
        (["apply_patch", FLAG, PATCH], b"", 2, "", ONE),
        (
            ["apply_patch", "*** Begin Patch\n*** End Patch"],
            b"",
            1,
            "",
            "No files were modified.\n",
        ),
    ],
)
def test_invocation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    stdin: bytes,
    code: int,
    stdout: str,
    stderr: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    out, err = io.BytesIO(), io.BytesIO()
    assert main(argv, io.BytesIO(stdin), out, err) == code
    assert (out.getvalue().decode(), err.getvalue().decode()) == (stdout, stderr)
    assert (tmp_path / "é.txt").exists() == (code == 0)


def command(
    cwd: Path | bytes, *arguments: str | bytes, stdin: bytes = b""
) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        # Not the environment's own: told to read ASCII, Python itself fails to start from one whose
        # path is not.
        [os.path.realpath(sys.executable), "-m", "toolrest.patch", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": packages()},
    )
    return done.returncode, done.stdout, done.stderr


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    assert command(tmp_path, PATCH.encode()) == (0, OK.encode(), b"")
    assert command(tmp_path, stdin=PATCH.encode()) == (0, OK.encode(), b"")
    assert (tmp_path / "é.txt").read_text() == "hi\n"
    assert command(tmp_path, b"\xff")[0] == 1


def test_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    patch = "*** Begin Patch\n*** Delete File: no\n*** End Patch"
    code, _, stderr = command(folder, patch)
    assert (code, stderr) == (1, b"Failed to delete file " + folder + b"/no\n")


def test_the_working_directory_is_the_physical_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    patch = "*** Begin Patch\n*** Delete File: no\n*** End Patch"
    real = os.path.realpath(tmp_path / "real")
    assert command(tmp_path / "link", patch)[2].decode() == f"Failed to delete file {real}/no\n"


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    # A child is started there and removes the folder before it becomes the command.
    code = (
        "import os, sys; os.rmdir(os.getcwd()); from toolrest.patch.command import script; script()"
    )
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, PATCH], cwd=tmp_path / "gone", capture_output=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "Error: Failed to determine current directory.\nNo such file or directory (os error 2)\n"
    )


def test_nobody_listens(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "toolrest.patch", PATCH],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    assert (tmp_path / "é.txt").exists()


def test_it_starts_without_the_slow_modules() -> None:
    code = (
        "import __future__, sys, errno, itertools; known = set(sys.modules); "
        "import toolrest.patch.command; "
        "print(sorted(m for m in set(sys.modules) - known if not m.startswith('toolrest')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
