"""AGENTS.md: which files count, in which order, how much of them, and what is never read."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolrest import Toolrest
from toolrest.agent.conversation.prompt import ProjectDocs, agents_text, opening_for, project_files
from toolrest.policy.modes import MODES
from toolrest.policy.paths.policy import PathPolicy


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "outside" / "repo"
    (root / "src" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    return root


def text(home: Path, cwd: Path, **options: object) -> str:
    policy = PathPolicy(str(cwd), toolrest_home=str(home))
    return agents_text(str(home), policy, ProjectDocs(**options))  # type: ignore[arg-type]


def test_from_the_root_down_to_the_folder(repo: Path, toolrest_home: Path) -> None:
    (repo.parent / "AGENTS.md").write_text("never: above the root")
    (repo / "AGENTS.md").write_text("root")
    (repo / "src" / "deep" / "AGENTS.md").write_text("deep")
    (repo / "src" / "AGENTS.md").write_text("  \n")
    assert text(toolrest_home, repo / "src" / "deep") == "root\n\ndeep"
    assert text(toolrest_home, repo / "src") == "root"


def test_the_users_own_comes_first(repo: Path, toolrest_home: Path) -> None:
    (repo / "AGENTS.md").write_text("project")
    (toolrest_home / "AGENTS.md").write_text("\nmine\n")
    assert text(toolrest_home, repo) == "mine\n\n--- project-doc ---\n\nproject"
    (toolrest_home / "AGENTS.override.md").write_text("really mine")
    assert text(toolrest_home, repo).startswith("really mine\n\n---")
    assert text(toolrest_home, repo, enabled=False) == "really mine"


def test_one_file_a_folder_by_rank(repo: Path, toolrest_home: Path) -> None:
    (repo / "CLAUDE.md").write_text("fallback")
    assert text(toolrest_home, repo) == ""
    assert text(toolrest_home, repo, fallbacks=("GEMINI.md", "CLAUDE.md")) == "fallback"
    (repo / "AGENTS.md").write_text("plain")
    assert text(toolrest_home, repo, fallbacks=("CLAUDE.md",)) == "plain"
    (repo / "AGENTS.override.md").write_text("override")
    assert text(toolrest_home, repo) == "override"


def test_without_a_root_only_the_folder_itself(tmp_path: Path, toolrest_home: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "a" / "AGENTS.md").write_text("parent")
    (inner / "AGENTS.md").write_text("here")
    assert text(toolrest_home, inner, root_markers=("no-such-marker",)) == "here"
    assert text(toolrest_home, inner, root_markers=()) == "here"


def test_the_budget_is_for_all_files_together(repo: Path, toolrest_home: Path) -> None:
    (repo / "AGENTS.md").write_text("a" * 10)
    (repo / "src" / "AGENTS.md").write_text("é" * 10)
    assert text(toolrest_home, repo / "src", max_bytes=13) == "a" * 10 + "\n\né\ufffd"
    assert text(toolrest_home, repo / "src", max_bytes=10) == "a" * 10
    assert text(toolrest_home, repo / "src", max_bytes=0) == ""


def test_a_link_to_a_secret_is_not_followed(
    repo: Path, tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / ".env").write_text("KEY=verysecret")
    (repo / "AGENTS.md").symlink_to(repo / ".env")
    assert text(toolrest_home, repo) == ""
    (repo / "AGENTS.md").unlink()
    (repo / "real.md").write_text("fine")
    (repo / "AGENTS.md").symlink_to("real.md")
    assert text(toolrest_home, repo) == "fine"


def test_folders_and_pipes_are_no_files(repo: Path) -> None:
    import os

    (repo / "AGENTS.override.md").mkdir()
    os.mkfifo(repo / "AGENTS.md")
    assert list(project_files(str(repo), ProjectDocs())) == []


@pytest.mark.parametrize("policy", MODES)
def test_every_mode_is_explained_to_the_model(policy: str, tmp_path: Path) -> None:
    rest = Toolrest(tmp_path, approval_policy=policy)
    assert f"approval_policy is {policy}. " in opening_for(rest).permissions()
