"""A folder that nobody decided about: what an answer covers, and which folders take none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolrest.config.loader import load
from toolrest.config.new_folder import NewFolder, held_folder, new_folder
from toolrest.config.trust import distrust, trust


@pytest.fixture
def home(tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, somewhere else than their password entry says."""
    made = tmp_path / "home" / "me"
    made.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(made))
    return made


def made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def found(path: Path) -> NewFolder:
    folder = new_folder(load(workspace=path, surface="cli"))
    assert folder is not None
    return folder


def test_the_answer_covers_the_repository(home: Path) -> None:
    inner = made(home / "src" / "tea" / "lib")
    assert found(inner) == NewFolder(str(inner), (), "")
    made(home / "src" / "tea" / ".git")
    (home / "src" / "tea" / "AGENTS.md").write_text("Be brief.\n")
    (inner / ".mcp.json").write_text("{}")
    folder = found(inner)
    assert folder.path == str(home / "src" / "tea")
    assert folder.brings == (f"{folder.path}/AGENTS.md", f"{inner}/.mcp.json")
    assert folder.listed == "AGENTS.md, lib/.mcp.json"
    trust(folder.path)
    assert new_folder(load(workspace=inner, surface="cli")) is None


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (".", "it is a home folder"),
        ("..", "your home folder is in it"),
        ("/", "it is the whole system"),
        ("src", "you decided about {home}/src/tea on its own"),
    ],
)
def test_what_is_too_wide_takes_no_answer(home: Path, place: str, reason: str) -> None:
    distrust(made(home / "src" / "tea"))
    folder = found((home / place).resolve())
    assert folder.refusal == reason.format(home=home)
    assert folder.way == f"toolrest trust {(home / place).resolve()}"
    assert load(workspace=home / place, surface="cli").value.sandbox_mode == "read-only"


def test_the_home_of_the_password_entry_is_one_too(home: Path) -> None:
    own = os.path.realpath(os.path.expanduser(f"~{os.environ.get('USER', 'root')}"))
    if os.stat(own).st_uid != os.geteuid():
        own = "/root"
    assert found(Path(own)).refusal == "it is a home folder"


def test_a_home_that_is_a_repository_covers_nothing_else(home: Path) -> None:
    """Somebody's dotfiles: a folder below is asked about on its own."""
    made(home / ".git")
    inner = made(home / "src" / "tea")
    assert found(inner) == NewFolder(str(inner), (), "")
    assert found(home).refusal == "it is a home folder"


def test_a_repository_is_asked_about_even_if_a_folder_in_it_is_known(home: Path) -> None:
    root = home / "src" / "tea"
    trust(made(root / "vendor"))
    made(root / ".git")
    assert found(root) == NewFolder(str(root), (), "")
    assert new_folder(load(workspace=root / "vendor", surface="cli")) is None


def test_only_an_answer_holds_a_session_read_only(home: Path) -> None:
    root = made(home / "src" / "tea")
    assert held_folder(load(workspace=root, surface="cli")) is None, "nobody answered"
    distrust(root)
    config = load(workspace=root, surface="cli")
    assert held_folder(config) == NewFolder(str(root), (), "")
    assert config.untrusted_folder
    chosen = load(workspace=root, surface="cli", flags={"sandbox_mode": "read-only"})
    assert held_folder(chosen) is None
    assert not chosen.untrusted_folder
    trust(root)
    assert held_folder(load(workspace=root, surface="cli")) is None
