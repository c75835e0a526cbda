"""Where the programs and commands of pages run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.machine import solid_ground


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder as a person has one: not in /tmp, of which commands have one of their own."""
    with TemporaryDirectory(dir=solid_ground()) as folder:
        yield Path(folder).resolve()
