"""docs/compatibility-promise.md names the versions that files really have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from toolrest.agent.reports.exec_json import SCHEMA_VERSION
from toolrest.gate.approval.grants import VERSION
from toolrest.gate.approval.pending import PendingApproval
from toolrest.mcp.pins import _VERSION as PINS
from toolrest.wire.stored_keys import _VERSION as KEYS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compatibility-promise.md").read_text()


def test_the_versions_of_files_are_those_of_the_page() -> None:
    said = dict(re.findall(r"^\| `([\w./]+)` \| (\d+) \|", PAGE, re.MULTILINE))
    pending = PendingApproval.__dataclass_fields__["version"].default
    found = {"grants.json": VERSION, "mcp/pins.json": PINS, "approvals/": pending}
    assert said == {name: str(number) for name, number in {**found, "keys.json": KEYS}.items()}
    assert f"`schema_version` {SCHEMA_VERSION}" in PAGE


def test_every_stored_home_has_versions_that_the_page_promises_to_open() -> None:
    for home in (ROOT / "tests" / "data").glob("home-*"):
        for name, newest in (("grants.json", VERSION), ("mcp/pins.json", PINS)):
            assert 1 <= json.loads((home / name).read_text())["version"] <= newest
        journals = list((home / "sessions").rglob("*.jsonl"))
        assert journals
        for journal in journals:
            first = json.loads(journal.read_text().splitlines()[0])
            assert re.fullmatch(r"\d+\.\d+\.\d+.*", first["payload"]["cli_version"])
