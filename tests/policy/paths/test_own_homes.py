"""Toolrest's homes: all that a user may have are hidden, since each may hold keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolrest.policy.paths.policy import PathPolicy


def test_the_usual_home_is_hidden_where_another_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`toolrest setup` stores keys there; with TOOLREST_HOME elsewhere it used to be readable."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("TOOLREST_HOME", str(tmp_path / "other"))
    policy = PathPolicy(tmp_path / "work", toolrest_home=tmp_path / "third")
    for home in ("user/.toolrest", "other", "third"):
        assert policy.hidden_rule(str(tmp_path / home / "keys.json")), home
