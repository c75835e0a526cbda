"""Toolrest's own code cannot be changed from inside, nor programs be slipped to it (D-23)."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.machine import packages

pytestmark = pytest.mark.slow


class Person(Protocol):
    place: Path
    home: Path
    workspace: Path
    env: dict[str, str]

    def do(self, line: str, cwd: Path | None = None) -> str: ...
    def confined(self, *lines: str, **wish: Any) -> list[Any]: ...


def test_the_package_in_a_writable_root_is_read_only(person: Person) -> None:
    source = shlex.quote(packages().split(os.pathsep)[0] + "/toolrest")
    lib = person.workspace / "deep/lib"
    person.do(f"mkdir -p {lib} && cp -r {source} {lib}/toolrest && echo 1 > {lib}/free.py")
    person.env["PYTHONPATH"] = f"{lib}:" + packages()
    results = person.confined(
        f"echo evil >> {lib}/toolrest/__init__.py",
        f"rm -rf {lib}/toolrest",
        f"mv {lib}/toolrest {lib}/t2",
        f"mv {lib} {lib}2",
        "mv deep deep2",
        f"touch {lib}/toolrest/new.py",
        f"echo 2 > {lib}/free.py",
    )
    assert [result.code == 0 for result in results] == [False] * 6 + [True], results
    assert person.do(f"head -c 3 {lib}/toolrest/__init__.py") == '"""'


def test_programs_in_the_workspace_are_not_run(person: Person) -> None:
    marks = person.place / "marks"
    person.do(f"mkdir {marks} ws/bin")
    for name in ("bwrap", "git", "env", "sh", "setpriv", "true", "rg"):
        text = f"#!/bin/sh\\ntouch {marks}/{name}\\n"
        person.do(f"printf '{text}' > ws/bin/{name} && chmod +x ws/bin/{name}")
    person.env["PATH"] = f"{person.workspace}/bin:/usr/bin:/bin"
    (result,) = person.confined("echo fine")
    assert (result.text, result.backend) == ("fine\n", "bubblewrap")
    (result,) = person.confined("echo fine", backend="landlock")
    assert (result.text, result.backend) == ("fine\n", "landlock")
    assert person.do(f"ls {marks}") == ""


def test_a_workspace_inside_the_package_is_refused(person: Person) -> None:
    source = shlex.quote(packages().split(os.pathsep)[0] + "/toolrest")
    lib = person.place / "lib"
    person.do(f"mkdir {lib} && cp -r {source} {lib}/toolrest && mkdir {lib}/toolrest/ws")
    person.env["PYTHONPATH"] = f"{lib}:" + packages()
    for backend in ("bubblewrap", "landlock"):
        (result,) = person.confined("true", workspace=f"{lib}/toolrest/ws", backend=backend)
        assert "own" in result.refused or "part of Toolrest" in result.refused
