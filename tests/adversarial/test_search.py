"""ripgrep runs confined: what is swapped under it leads to nothing hidden. Failed before."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.adversarial.conftest import SECRET, Range

from toolrest import Toolrest
from toolrest.tools.files.grep_files import GrepFiles
from toolrest.tools.files.ripgrep import Ripgrep


def looks(folder: Path, body: str) -> GrepFiles:
    """A `grep_files` whose ripgrep is a script of ours, to see what ripgrep could see."""
    path = folder / "rg"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return GrepFiles(Ripgrep(str(path)))


async def seen(range_: Range, body: str, **settings: Any) -> str:
    """What a script in the place of ripgrep says on its standard error."""
    tool = looks(range_.outside.parent, f"({body}) >&2; exit 2")
    async with Toolrest(range_.workspace, tools=[tool], override=True, **settings) as rest:
        return (await rest.call("grep_files", {"pattern": "x"})).text


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("mode", ["workspace-write", "read-only", "danger-full-access"])
async def test_a_link_to_a_hidden_place_leads_nowhere_failed_before(
    range_: Range, mode: str
) -> None:
    """As if a command had put it there between ripgrep's look and its read."""
    home = Path(os.environ["HOME"])
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "id_test").write_text(SECRET)
    range_.file("sub/.env", SECRET)
    range_.file("plain", "to be seen")
    range_.link("astray", home / ".ssh")
    text = await seen(range_, "cat astray/id_test sub/.env plain", sandbox_mode=mode)
    assert "to be seen" in text
    assert SECRET not in text


@pytest.mark.needs("landlock")
async def test_a_link_to_a_hidden_place_leads_nowhere_with_landlock_failed_before(
    range_: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrest.sandbox.confine.bwrap_programs", lambda _roots: [])
    home = Path(os.environ["HOME"])
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "id_test").write_text(SECRET)
    range_.file("plain", "to be seen")
    range_.link("astray", home / ".ssh")
    text = await seen(range_, "cat plain astray/id_test")
    assert "to be seen" in text
    assert SECRET not in text


@pytest.mark.needs("sandbox")
async def test_ripgrep_can_write_and_reach_nothing_failed_before(range_: Range) -> None:
    text = await seen(range_, f"echo x > made; echo x > {range_.outside}/made; cat /dev/tcp/1/1")
    assert not (range_.workspace / "made").exists()
    range_.unharmed()
    assert text


async def test_without_any_sandbox_a_search_still_works_and_is_judged(
    range_: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain container: no namespaces, no Landlock. Commands are refused there; looking is not."""
    monkeypatch.setattr("toolrest.sandbox.confine.bwrap_programs", lambda _roots: [])
    monkeypatch.setattr("toolrest.sandbox.kernel.landlock_rules.abi", lambda: 0)
    range_.file(".env", "needle")
    found = range_.file("a.txt", "needle")
    async with Toolrest(range_.workspace) as rest:
        output = await rest.call("grep_files", {"pattern": "needle"})
        refused = await rest.call("exec_command", {"cmd": "true", "login": False})
    assert output.text == str(found)
    assert refused.failure is not None


async def test_a_search_of_a_shared_temporary_folder_works(range_: Range, tmp_path: Path) -> None:
    """Commands have a `/tmp` of their own; a file tool looks at the real one."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "a.txt").write_text("needle")
    async with Toolrest(range_.workspace) as rest:
        output = await rest.call("grep_files", {"pattern": "needle", "path": str(other)})
    assert output.text == str(other / "a.txt")
