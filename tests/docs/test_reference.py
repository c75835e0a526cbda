"""The pages that are made from code are what the code says; `TOOLREST_WRITE_DOCS=1` writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest
from tests.docs import api_page, cli_page, events_page, settings_page
from tests.machine import REPOSITORY as ROOT

import toolrest
from toolrest.events import Event

WRITE = os.environ.get("TOOLREST_WRITE_DOCS") == "1"
FOLDER = ROOT / "docs" / "reference"
PAGES = {
    "api.md": api_page.page,
    "cli.md": cli_page.page,
    "events.md": events_page.page,
    "settings.md": settings_page.page,
}


@pytest.mark.parametrize(("name", "made"), PAGES.items())
def test_a_page_is_what_the_code_says(name: str, made: Callable[[], str]) -> None:
    if WRITE:
        (FOLDER / name).write_text(made())
    assert (FOLDER / name).read_text() == made(), (
        "run: TOOLREST_WRITE_DOCS=1 .venv/bin/pytest -n 0 tests/docs"
    )


def test_every_public_name_is_on_a_page() -> None:
    api, events = ((FOLDER / name).read_text() for name in ("api.md", "events.md"))
    named = {*re.findall(r"^### (\w+)$", api, re.MULTILINE), "__version__"}
    named |= set(re.findall(r"^`(\w+)`\. ", events, re.MULTILINE))
    assert [name for name in toolrest.__all__ if name not in named] == []


def test_every_loaded_event_is_on_the_page() -> None:
    page = (FOLDER / "events.md").read_text()
    seen = [Event]
    for kind in seen:
        seen += kind.__subclasses__()
    ours = {kind.type for kind in seen if kind.__module__.startswith("toolrest.")} - {"event"}
    assert len(ours) > 10
    assert [kind for kind in ours if f"\n## {kind}\n" not in page] == []
