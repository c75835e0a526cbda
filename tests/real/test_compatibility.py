"""docs/compatibility.md says what the tests found, and of all tests that exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.real import (
    compatibility,
    test_clients,
    test_litellm,
    test_llama,
    test_servers,
    test_soak,
)
from tests.real.conftest import WIRES


def expected(module: Any) -> set[tuple[str, str]]:
    """The tests of a module with their parameters in the full run."""
    if module is test_llama:
        tests = [name for name in vars(module) if name.startswith("test_")]
        return {(test, wire) for test in tests for wire in test_llama.wires_of(test)}
    if module is test_litellm:
        return {("test_a_loop", f"{kind}-{wire}") for kind in module.KINDS for wire in WIRES}
    if module is test_clients:
        return {("test_a_client", name) for name in module.CLIENTS}
    if module is test_soak:
        return {("test_a_long_session", str(turns)) for turns in module.TURNS}
    return {("test_a_server", name) for name in module.SERVERS}


@pytest.mark.parametrize(
    "module", [test_llama, test_litellm, test_clients, test_servers, test_soak]
)
def test_the_page_has_a_row_for_every_test(module: Any) -> None:
    name = module.__name__.rsplit(".", 1)[1]
    assert compatibility.Results().cases(name) == expected(module)


def test_the_page_is_what_was_found() -> None:
    assert compatibility.PAGE.read_text() == compatibility.Results().page()


@pytest.mark.parametrize("test", [t for tests in compatibility.POINTS.values() for t in tests])
def test_the_tests_of_the_points_exist(test: str) -> None:
    file, _, name = test.partition("::")
    text = (compatibility.REPOSITORY / file).read_text()
    assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)
