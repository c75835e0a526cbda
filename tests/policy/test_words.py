"""Tools that declare nothing are classed by the whole words of their own name."""

from __future__ import annotations

import pytest

from toolrest.gate.tool.tool import Tool
from toolrest.policy.effects import Effects, Risk
from toolrest.policy.name_risk import name_risk


@pytest.mark.parametrize(
    ("name", "risk"),
    [
        ("read_file", Risk.READ),
        ("readFile", Risk.READ),
        ("HTTPGet", Risk.READ),
        ("list-things", Risk.READ),
        ("search2", Risk.READ),
        ("write_note", Risk.WRITE),
        ("get_and_delete", Risk.WRITE),
        ("run_search", Risk.EXECUTE),
        ("updateThenExec", Risk.EXECUTE),
        ("fs_remove_target", Risk.EXECUTE),
        ("gh_budget_wipe", Risk.EXECUTE),
        ("thread_kick", Risk.EXECUTE),
        ("listings_drop_table", Risk.EXECUTE),
        ("finder_trash", Risk.EXECUTE),
        ("toString", Risk.EXECUTE),
        ("constructor", Risk.EXECUTE),
        ("prerun", Risk.EXECUTE),
        ("", Risk.EXECUTE),
        ("reаd_file", Risk.EXECUTE),
        ("mcp__read__wipe", Risk.EXECUTE),
        ("read/wipe", Risk.EXECUTE),
        ("mcp__runner__get_item", Risk.READ),
        ("server/get_item", Risk.READ),
    ],
)
def test_the_strictest_whole_word_wins(name: str, risk: Risk) -> None:
    assert name_risk(name).risk == risk


def test_a_name_that_only_reads_still_asks_once() -> None:
    assert name_risk("get_item").asks_once
    assert not name_risk("write_item").asks_once
    assert name_risk("get_item").words == ("get",)


def test_words_never_lower_what_is_declared() -> None:
    class Declared(Tool):
        def __init__(self, name: str, risk: Risk | None) -> None:
            self.name, self.risk = name, risk

    unknown = Effects.unknown()
    assert Declared("read_file", Risk.CRITICAL).level(unknown) == Risk.CRITICAL
    assert Declared("read_file", None).level(Effects(runs=(("rm",),))) == Risk.EXECUTE
    assert Declared("exec_everything", None).level(unknown) == Risk.EXECUTE
    assert Declared("read_file", None).level(unknown) == Risk.READ
