"""Settings for every test: a home of its own, and property tests without a stopwatch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"

# A shared machine is no stopwatch; the default run is the same every time, the full run explores.
settings.register_profile(
    "quick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "full", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("full" if FULL else "quick")


@pytest.fixture
def full() -> bool:
    """Whether the long suites run whole."""
    return FULL


@pytest.fixture(autouse=True)
def toolrest_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Nobody's real settings take part in a test, and no test writes into a real home."""
    home = tmp_path_factory.mktemp("toolrest-home", numbered=True)
    monkeypatch.setenv("TOOLREST_HOME", str(home))
    for name in list(os.environ):
        if name.startswith("MEMO_") or (name.startswith("TOOLREST_") and name not in _KEPT):
            monkeypatch.delenv(name)
    return home


_KEPT = ("TOOLREST_HOME", "TOOLREST_TEST_FULL")
