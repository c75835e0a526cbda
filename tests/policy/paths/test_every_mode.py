"""Hidden and protected paths hold in every mode; the user's `paths.unhide` makes exceptions.

Every test here failed before D-62 was built: full access wrote all of it, and nothing could be
taken off the list.
"""

from __future__ import annotations

from typing import Any

import pytest

from toolrest.errors import ConfigError, Rejected


def test_full_access_writes_neither_hidden_nor_protected_names(places: Any) -> None:
    """Failed before: only Toolrest's own home was closed."""
    full = places.policy(mode="danger-full-access")
    (places.workspace / ".env").write_text("A=1")
    protected = [".git/config", ".vscode/tasks.json", "deep/.envrc", places.home / ".bashrc"]
    protected += [places.outside / "repo/.git/hooks/pre-commit", places.outside / ".mcp.json"]
    for path in protected:
        assert "is protected" in full.write_denied(path), path
    for path in (".env", places.home / ".ssh/id", places.home / ".ssh/new"):
        assert "hidden" in full.write_denied(path), path
    for path in ("/etc/x", places.outside / "repo/.git/HEAD", places.home / "notes"):
        assert full.write_denied(path) is None, path


def test_a_link_is_no_way_around_in_full_access(places: Any) -> None:
    """Failed before: links were not followed up in that mode."""
    full = places.policy(mode="danger-full-access")
    (places.workspace / "way").symlink_to(places.home)
    assert "is protected" in full.write_denied("way/.bashrc")
    with pytest.raises(Rejected):
        full.write_bytes("way/.ssh/id", b"")


def test_what_was_approved_may_write_a_protected_name_but_nothing_hidden(places: Any) -> None:
    """Failed before: an approval opened hidden places too."""
    approved = places.policy().let_out()
    assert approved.write_denied(".vscode/tasks.json") is None
    assert "hidden" in approved.write_denied(places.home / ".ssh/id")


def test_unhide_takes_names_off_both_lists_but_never_our_home(places: Any) -> None:
    """Failed before: there was no such setting."""
    (places.workspace / ".env").write_text("A=1")
    (places.workspace / ".env.local").write_text("B=1")
    (places.home / ".ssh" / "known_hosts").write_text("h")
    unhide = (".env", "~/.ssh/known_hosts", ".vscode", "~/.toolrest/**", "~/.toolrest")
    files = places.policy(unhide=unhide)
    assert files.read_bytes(".env") == b"A=1"
    assert files.read_bytes(places.home / ".ssh/known_hosts") == b"h"
    assert files.write_denied(".env") is None
    assert files.write_denied("sub/.vscode/tasks.json") is None
    for path in (".env.local", places.home / ".ssh/id", places.home / ".toolrest/config.toml"):
        assert files.read_denied(path), path
    assert str(places.workspace / ".env") not in files.hidden_paths()
    assert str(places.workspace / ".vscode") not in files.protected_paths(str(places.workspace))
    assert files.shown == (str(places.home / ".ssh/known_hosts"),)


def test_unhide_beats_the_users_own_globs(places: Any) -> None:
    """Failed before: there was no such setting."""
    files = places.policy(hidden=("private",), unhide=("private/open",))
    assert "hidden" in files.read_denied("private/x")
    assert files.read_denied("private/open/x") is None
    with pytest.raises(ConfigError, match=r"paths\.unhide"):
        places.policy(unhide=("[z-a]",))
