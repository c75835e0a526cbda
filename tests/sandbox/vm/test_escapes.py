"""The escape suite in a machine: nothing is open that bubblewrap closes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.machine import NOBODY, require
from tests.sandbox.conftest import run_host
from tests.sandbox.test_escapes import INFO, MUST_FAIL, MUST_WORK, OWN_RUN

from toolrest.sandbox.vm.probe import BROKEN

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]
OTHERWISE = {"vscode_tasks": ("DENIED EACCES", "DENIED EROFS")}
"""Where the mode of an empty folder is looked at before the mount's."""


@pytest.fixture(scope="module")
def answer(furnish: Callable[[Path], Path], ground: Path, user: str) -> dict[str, Any]:
    """What the probes said in a machine, and what the host saw."""
    require("mounts")

    def prepare(base: Path) -> None:
        home = furnish(base / "home" / ".toolrest")
        if user == "user" and os.geteuid() == 0:
            for place, _, names in os.walk(home.parent):
                for path in (place, *(os.path.join(place, name) for name in names)):
                    os.chown(path, NOBODY, NOBODY)

    return run_host(ground, user, {"backend": "vm"}, prepare, seconds=200)


def test_nothing_is_open_that_bubblewrap_closes(answer: dict[str, Any]) -> None:
    rows = answer["rows"]
    # An orphan's end is seen in `test_session.py`: the host sees no process of the machine.
    inherent = {"hardlink_preexisting", "orphan_survives", *OWN_RUN}
    found = {name: rows.get(name, "missing") for name in MUST_FAIL if name not in inherent}
    wrong = {n: said for n, said in found.items() if not said.startswith(("DENIED", "N/A"))}
    assert wrong == {}


def test_only_what_doctor_prints_is_broken(answer: dict[str, Any]) -> None:
    broken = {name for name in MUST_WORK if answer["rows"].get(name) != "ALLOWED"}
    assert broken == BROKEN.keys() & set(MUST_WORK)


def test_choices_are_those_of_bubblewrap(answer: dict[str, Any]) -> None:
    for name, said in INFO.items():
        assert answer["rows"][name] in OTHERWISE.get(name, (said,)), name


def test_the_world_outside_is_untouched(answer: dict[str, Any]) -> None:
    changed = {Path(path).name for path in answer["changed"]}
    assert changed - {"accelerator.json"} == {"file"}  # Toolrest's own; and by its hard link
    assert answer["contacts"] == []
    assert answer["datagrams"] == 0
    assert not answer["signals"]
    assert not answer["survivor"]
    assert not answer["tmp"]
