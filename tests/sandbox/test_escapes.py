"""The escape suite: one probe for each row of the matrix, by its name.

Under bubblewrap nothing that must fail succeeds (but for hard links that were there before) and
nothing that must work is broken. Under Landlock exactly those rows are open that doctor prints.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.sandbox.kernel.landlock_rules import BROKEN, open_rows

World = Callable[..., dict[str, Any]]

_DECORATED = re.compile(r'^@probe\("(deny|func|info)"\)\ndef (\w+)\(', re.MULTILINE)
_SOURCES = sorted((Path(__file__).parent / "inside").glob("*.py"))
KINDS = {name: kind for path in _SOURCES for kind, name in _DECORATED.findall(path.read_text())}
MUST_FAIL = sorted(name for name, kind in KINDS.items() if kind == "deny")
MUST_WORK = sorted(name for name, kind in KINDS.items() if kind == "func")
OWN_RUN = {"git_symlink"}
INFO = {
    "env_secret": "DENIED unset",
    "fill_tmp_50mb": "ALLOWED",
    "fork_200": "ALLOWED",
    "git_head": "ALLOWED",
    "git_nested": "ALLOWED",
    "mcp_json": "DENIED EEXIST",
    "mem_256mb": "ALLOWED",
    "memfd_exec": "ALLOWED",
    "ppid_environ": "DENIED absent",
    "ptrace_child": "ALLOWED",
    "read_outside_0600": "ALLOWED",
    "read_ssh_key": "DENIED EACCES",
    "userfaultfd_user": "DENIED EPERM",
    "vm_readv_child": "ALLOWED",
    "vscode_tasks": "DENIED EROFS",
    "write_tmp": "ALLOWED",
    "ws_bashrc": "ALLOWED",
}


def outcome(world: World, user: str, backend: str, name: str) -> str:
    """What the probe said, corrected by what the host saw."""
    if name in OWN_RUN:
        answer = world(user, backend=backend, workspace="linked", roots=[], only=[name])
    else:
        answer = world(user, backend=backend)
    if "refused" in answer:
        return "DENIED refused"
    said = str(answer["rows"].get(name, "DENIED nothing"))
    if name == "orphan_survives":
        return "ALLOWED" if answer["survivor"] else "DENIED KILLED"
    return said


def test_every_row_of_the_matrix_has_its_probe() -> None:
    assert len(KINDS) == 126
    assert len(MUST_WORK) == 10
    assert set(INFO) == {name for name, kind in KINDS.items() if kind == "info"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUST_FAIL)
def test_bubblewrap_leaves_nothing_open(world: World, user: str, name: str) -> None:
    got = outcome(world, user, "bubblewrap", name)
    if name == "hardlink_preexisting":
        assert got == "ALLOWED"  # inherent: doctor counts such files
    else:
        assert got.startswith(("DENIED", "N/A")), got


@pytest.mark.parametrize("name", MUST_WORK)
def test_bubblewrap_breaks_nothing(world: World, user: str, name: str) -> None:
    assert outcome(world, user, "bubblewrap", name) == "ALLOWED"


@pytest.mark.parametrize("name", sorted(INFO))
def test_bubblewrap_choices(world: World, user: str, name: str) -> None:
    assert outcome(world, user, "bubblewrap", name) == INFO[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", MUST_FAIL)
def test_landlock_leaves_open_what_doctor_prints(world: World, user: str, name: str) -> None:
    got = outcome(world, user, "landlock", name)
    if name in open_rows():
        assert got == "ALLOWED"
    else:
        assert got.startswith(("DENIED", "N/A")), got


@pytest.mark.parametrize("name", MUST_WORK)
def test_landlock_breaks_what_doctor_prints(world: World, user: str, name: str) -> None:
    works = outcome(world, user, "landlock", name) == "ALLOWED"
    assert works == (name not in BROKEN)


def test_the_world_outside_is_untouched(world: World, user: str) -> None:
    answer = world(user, backend="bubblewrap")
    assert [Path(path).name for path in answer["changed"]] == ["file"]  # by its hard link
    assert answer["contacts"] == []
    assert answer["datagrams"] == 0
    assert not answer["signals"]
    assert not answer["tmp"]


def test_nothing_is_left_in_the_workspace(world: World, user: str) -> None:
    left = set(world(user, backend="bubblewrap")["left"])
    assert not left & {".codex", ".agents", ".vscode", ".mcp.json", ".envrc", ".toolrest"}


def test_landlock_keeps_messages_inside(world: World, user: str) -> None:
    answer = world(user, backend="landlock")
    assert answer["contacts"] == []
    assert answer["datagrams"] == 0
    assert not answer["signals"]


@pytest.mark.slow
def test_read_only_mode_writes_nothing(world: World, user: str, backend: str) -> None:
    answer = world(user, backend=backend, mode="read-only", roots=[])
    assert answer["rows"], answer
    assert answer["rows"]["write_ws"].startswith("DENIED")
    assert answer["rows"]["hardlink_preexisting"].startswith("DENIED")
    assert answer["rows"]["read_passwd"] == "ALLOWED"
    if backend == "bubblewrap":
        assert answer["changed"] == []


@pytest.mark.slow
def test_without_a_sandbox_the_probes_do_succeed(world: World, user: str) -> None:
    rows = world(user, backend="none")["rows"]
    allowed = [name for name in MUST_FAIL if rows.get(name) == "ALLOWED"]
    assert len(allowed) >= (80 if user == "root" else 50), sorted(set(MUST_FAIL) - set(allowed))
    assert all(rows[name] == "ALLOWED" for name in MUST_WORK)
