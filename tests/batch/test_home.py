"""A task's home: the user's settings and rules, also where they are links."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import Bench, turn_of, worker

from toolrest.batch.tasks import home as home_module
from toolrest.batch.tasks.home import check_home, make_task_home
from toolrest.errors import ConfigError
from toolrest.testing import Call

RULE = 'prefix_rule(pattern=["touch"], decision="forbidden", justification="no new files here")\n'


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's home with rules."""
    (tmp_path / "user" / "rules").mkdir(parents=True)
    (tmp_path / "user" / "rules" / "mine.rules").write_text(RULE)
    return tmp_path / "user"


@pytest.fixture
def dotfiles(tmp_path: Path) -> Path:
    """Another folder with settings, to link to."""
    place = tmp_path / "dotfiles"
    (place / "rules").mkdir(parents=True)
    (place / "rules" / "forbid.rules").write_text(RULE)
    (place / "config.toml").write_text("")
    return place


def made(user: Path, written: tuple[Path, ...] = ()) -> dict[str, str]:
    """The files of a task's home and their text; none of them is a link."""
    roots = list(map(str, written))
    try:
        home = Path(make_task_home(str(user), str(user.parent / "state"), roots))
    except ConfigError as error:
        with pytest.raises(ConfigError, match=re.escape(str(error))):
            check_home(str(user), roots)
        raise
    check_home(str(user), roots)
    found = list(home.rglob("*"))
    assert not any(path.is_symlink() for path in found)
    return {str(path.relative_to(home)): path.read_text() for path in found if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("link", ["the folder", "a file"])
def test_a_rule_behind_a_link_forbids_in_a_task(
    bench: Callable[..., Bench], dotfiles: Path, link: str
) -> None:
    outputs: list[str] = []

    def reply(body: Any) -> Any:
        outputs[:] = [str(item["output"]) for item in body["input"] if "output" in item]
        return "done" if turn_of(body)[1] else [Call("exec_command", {"cmd": "touch made"})]

    here = bench(reply)
    rules = here.desk.home / "rules"
    if link == "the folder":
        rules.symlink_to(dotfiles / "rules")
    else:
        rules.mkdir()
        target = os.path.relpath(dotfiles / "rules" / "forbid.rules", rules)
        (rules / "forbid.rules").symlink_to(target)
    here.tasks(1)
    here.run()
    assert len(outputs) == 1
    assert "no new files here" in outputs[0]


def test_what_links_lead_to_is_copied_and_brought_up_to_date(user: Path, dotfiles: Path) -> None:
    (user / "config.toml").symlink_to("../dotfiles/config.toml")
    (user / "prompts").symlink_to(dotfiles / "prompts")
    (dotfiles / "prompts" / "deep").mkdir(parents=True)
    (dotfiles / "prompts" / "deep" / "a.md").write_text("a")
    (user / "rules" / "more.rules").symlink_to("../../dotfiles/rules/forbid.rules")
    (user / "rules" / "again.rules").symlink_to("mine.rules")
    rules = {f"rules/{name}.rules": RULE for name in ("mine", "more", "again")}
    assert made(user) == rules | {"config.toml": "", "prompts/deep/a.md": "a"}
    for path in (dotfiles / "prompts" / "deep", dotfiles / "prompts"):  # as a package store has it
        path.chmod(0o555)
    assert made(user) == rules | {"config.toml": "", "prompts/deep/a.md": "a"}
    (user / "config.toml").unlink()
    (user / "config.toml").write_text("# mine")
    (user / "rules" / "more.rules").unlink()
    del rules["rules/more.rules"]
    assert made(user) == rules | {"config.toml": "# mine", "prompts/deep/a.md": "a"}


@pytest.mark.parametrize("name", ["config.toml", "work.config.toml", "rules", "rules/link"])
def test_a_setting_whose_link_leads_nowhere_is_named(user: Path, name: str) -> None:
    if name == "rules":
        (user / "rules" / "mine.rules").unlink()
        (user / "rules").rmdir()
    (user / name).symlink_to("/nowhere")
    with pytest.raises(ConfigError) as caught:
        made(user)
    message = f"{user / name} is a link to /nowhere, which is not there"
    assert message in str(caught.value)
    (user / name).unlink()
    (user / name).symlink_to((user / name).name)
    with pytest.raises(ConfigError, match="which is not there"):
        made(user)


@pytest.mark.parametrize("wrong", ["to nowhere", "to a workspace", "to a writable root"])
def test_no_batch_starts_without_the_users_rules(
    bench: Callable[..., Bench], dotfiles: Path, wrong: str
) -> None:
    here = bench(worker(1))
    rules = here.desk.home / "rules"
    rules.symlink_to("/nowhere" if wrong == "to nowhere" else dotfiles / "rules")
    here.tasks(1, **({"cd": str(dotfiles)} if wrong == "to a workspace" else {}))
    roots = f'sandbox_workspace_write.writable_roots=["{dotfiles}"]'
    ran = here.run(*(("-c", roots) if wrong == "to a writable root" else ()))
    assert ran.code == 2
    assert f"toolrest: {rules} " in ran.err
    assert here.results() == {}
    assert here.server.requests == []


def test_links_to_nowhere_that_are_no_settings_are_left_out(user: Path) -> None:
    (user / "skills" / "a").mkdir(parents=True)
    (user / "skills" / "a" / "old").symlink_to("/nowhere")
    (user / "rules" / ".#mine.rules").symlink_to("me@here.1:2")  # Emacs has it open
    (user / "sessions").symlink_to("/nowhere")
    assert made(user) == {"rules/mine.rules": RULE}


def test_a_rules_file_that_cannot_be_read_is_named(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open, rule = os.open, str(user / "rules" / "mine.rules")

    def refused(path: Any, *more: Any, **options: Any) -> int:
        if path == rule:
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *more, **options)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ConfigError, match=r"cannot read .*mine\.rules.*Permission denied"):
        made(user)


@pytest.mark.parametrize("inner", [False, True])
def test_a_link_into_a_folder_that_tools_may_write_is_refused(
    user: Path, dotfiles: Path, inner: bool
) -> None:
    (user / "more.config.toml").symlink_to(dotfiles / "config.toml")
    assert "more.config.toml" in made(user, (dotfiles / "rules", user))
    (user / "rules" / "mine.rules").unlink()
    (user / "rules").rmdir()
    (user / "rules").symlink_to(dotfiles / "rules")
    written = dotfiles / "rules" / "project" if inner else dotfiles
    written.mkdir(exist_ok=True)
    with pytest.raises(ConfigError, match="where tools of a task may write"):
        made(user, (written,))


@pytest.mark.parametrize("target", ["..", "../..", "../rules"])
def test_links_that_lead_back_end(user: Path, target: str) -> None:
    (user / "rules" / "loop").symlink_to(target)
    with pytest.raises(ConfigError, match="leads back to a folder that it lies in"):
        made(user)


def test_links_to_very_many_files_are_refused(
    user: Path, dotfiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_module, "_MOST_FILES", 3)
    (user / "own").mkdir()
    for number in range(5):
        (user / "own" / str(number)).write_text("")
    (user / "rules" / "more").symlink_to(dotfiles)
    with pytest.raises(ConfigError, match="lead to more than 3 files"):
        made(user)
