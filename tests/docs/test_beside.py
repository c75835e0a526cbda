"""The page beside Codex and Memo Code: whole rows, a known word, tests that exist."""

from __future__ import annotations

import re

from tests.machine import REPOSITORY as ROOT
from tests.test_mission import NAMED, missing_tests

PAGE = (ROOT / "docs" / "codex-and-memo.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| what ")
]


def test_every_row_is_whole_and_held_by_tests_that_exist() -> None:
    assert len(ROWS) > 60
    for what, theirs, ours, tests in ROWS:
        assert what
        assert theirs
        assert ours.startswith(("**same**", "**better**: ", "**not**: ")), what
        assert NAMED.search(tests), what
    assert missing_tests(PAGE) == []


def test_every_built_in_tool_of_theirs_has_a_row() -> None:
    named = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in ROWS)))
    theirs = (
        "read_file list_dir grep_files apply_patch exec_command write_stdin shell shell_command "
        "local_shell view_image update_plan request_user_input web_search webfetch get_memory "
        "spawn_agent send_input wait close_agent resume_agent read_skill test_sync_tool "
        "list_mcp_resources list_mcp_resource_templates read_mcp_resource"
    )
    assert set(theirs.split()) - named == set()
