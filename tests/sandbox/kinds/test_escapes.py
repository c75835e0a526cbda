"""The escape probes of tests/sandbox/inside, in every kind of sandbox."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.sandbox.kinds.kinds import KINDS
from tests.sandbox.test_escapes import MUST_FAIL, MUST_WORK, OWN_RUN

from toolrest.sandbox.backends import gvisor
from toolrest.sandbox.backends.container import engine as container
from toolrest.sandbox.kernel.landlock_rules import BROKEN, open_rows

World = Callable[..., dict[str, Any]]
ROWS = [name for name in MUST_FAIL if name not in OWN_RUN]
OPEN: dict[str, set[str]] = {name: {"hardlink_preexisting"} for name in KINDS}
OPEN["landlock"] |= set(open_rows())
OPEN["docker"] |= set(container.OPEN)
OPEN["gvisor"] |= set(gvisor.OPEN)
FAILS: dict[str, set[str]] = {name: set() for name in KINDS}
FAILS["landlock"] |= set(BROKEN)


def test_escapes(
    kind: str,
    user: str,
    settings: dict[str, Any],
    world: World,
    record_property: Callable[[str, str], None],
) -> None:
    """Escape probes that are stopped, and those that are not"""
    options = settings.get("sandbox", {})
    wish = {"container": options} if kind == "docker" else {"rootfs": options.get("rootfs")}
    if kind == "vm":
        pytest.skip("vm: tests/sandbox/vm/test_escapes.py has its probes")
    if kind == "docker" and user == "user" and os.geteuid() == 0:
        pytest.skip("podman is set up for root alone here")
    answer = world(user, backend=kind, **wish)
    rows = answer.get("rows")
    assert rows, answer
    survivor = {"orphan_survives"} if answer["survivor"] else set()
    allowed = {name for name in ROWS if rows.get(name) == "ALLOWED"} - {"orphan_survives"}
    found = allowed | survivor
    broken = {name for name in MUST_WORK if rows.get(name) != "ALLOWED"}
    stopped = f"{len(ROWS) - len(found)} of {len(ROWS)}"
    record_property("cell", stopped)
    assert found <= OPEN[kind], " ".join(sorted(found - OPEN[kind]))
    assert broken <= FAILS[kind], {name: rows.get(name) for name in broken}
    # What it says it did to files outside, it did not.
    assert [os.path.basename(path) for path in answer["changed"]] in ([], ["file"])
    before, after = answer["rights"]
    assert before == after or kind == "landlock"
    assert answer["contacts"] == []
    assert not answer["signals"]
