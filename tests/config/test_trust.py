from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.config.loader import load
from toolrest.config.trust import distrust, revoke, trust, trust_of
from toolrest.config.write import set_value
from toolrest.errors import ConfigError

COMMENTED = """\
# my settings
model = "gpt-5"  # the good one

[tools]          # least privilege
disabled = [
    "shell",     # no
]

[projects."/somewhere"]
trust_level = "untrusted"  # never
"""


@pytest.fixture
def home(toolrest_home: Path) -> Path:
    return toolrest_home


@pytest.fixture
def file(home: Path) -> Path:
    return home / "config.toml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def test_trust_is_given_asked_and_taken_back(folder: Path, file: Path) -> None:
    assert trust_of(folder) is None
    assert trust(folder) == str(folder)
    assert trust_of(folder) == "trusted"
    assert tomllib.loads(file.read_text()) == {
        "projects": {str(folder): {"trust_level": "trusted"}}
    }
    revoke(folder)
    assert trust_of(folder) is None
    revoke(folder)
    assert trust_of(folder) is None


def test_comments_survive(folder: Path, file: Path) -> None:
    file.write_text(COMMENTED)
    trust(folder)
    set_value("tools.include_plan_tool", "false")
    set_value("model", "gpt-5.2")
    set_value("on_ask", "fail")
    text = file.read_text()
    for comment in ("# my settings", "# the good one", "# least privilege", "# no", "# never"):
        assert comment in text
    parsed = tomllib.loads(text)
    assert parsed["model"] == "gpt-5.2"
    assert parsed["on_ask"] == "fail"
    assert parsed["tools"] == {"disabled": ["shell"], "include_plan_tool": False}
    assert parsed["projects"]["/somewhere"]["trust_level"] == "untrusted"
    revoke(folder)
    assert "# never" in file.read_text()


def test_file_and_home_are_private(folder: Path, home: Path, file: Path) -> None:
    home.chmod(0o755)
    file.write_text("")
    file.chmod(0o644)
    trust(folder)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_missing_home_is_made(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    trust(folder, home=str(home))
    assert trust_of(folder, home=str(home)) == "trusted"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_the_nearest_entry_up_to_the_git_root_counts(folder: Path) -> None:
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    trust(folder)
    assert trust_of(inner) is None, "without a repository only the folder itself is trusted"
    (folder / ".git").mkdir()
    assert trust_of(inner) == "trusted"
    revoke(folder / "a")
    assert trust_of(folder / "a") == "untrusted"
    assert trust_of(inner) == "untrusted"
    assert trust_of(folder) == "trusted"
    (inner / ".git").write_text("gitdir: " + str(folder / ".git"))
    assert trust_of(inner) is None, "a repository of its own, wherever its .git file points"


def _git(*words: str | Path) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *map(str, words)],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repository(folder: Path) -> Path:
    """A trusted repository with one commit."""
    _git("init", "-q", folder)
    _git("-C", folder, "commit", "-q", "--allow-empty", "-m", "one")
    trust(folder)
    return folder


def test_trust_covers_the_worktrees_that_the_repository_names(
    repository: Path, tmp_path: Path
) -> None:
    worktree = tmp_path / "beside"
    _git("-C", repository, "worktree", "add", "-q", worktree)
    inner = worktree / "src"
    inner.mkdir()
    assert trust_of(worktree) == trust_of(inner) == "trusted"
    config = load(workspace=worktree, surface="cli")
    assert (config.trust_level, config.value.sandbox_mode) == ("trusted", "workspace-write")
    revoke(worktree)
    assert trust_of(worktree) == "untrusted", "its own entry comes first"
    assert trust_of(repository) == "trusted"
    distrust(repository)
    _git("-C", repository, "worktree", "add", "-q", tmp_path / "third")
    assert trust_of(tmp_path / "third") == "untrusted"


def test_a_worktree_that_moved_is_another_folder(repository: Path, tmp_path: Path) -> None:
    worktree = tmp_path / "beside"
    _git("-C", repository, "worktree", "add", "-q", worktree)
    worktree.rename(tmp_path / "moved")
    assert trust_of(tmp_path / "moved") is None, "the repository names another folder"
    _git("-C", repository, "worktree", "repair", tmp_path / "moved")
    assert trust_of(tmp_path / "moved") == "trusted"


def _unpacked(tmp_path: Path, files: Mapping[str, str]) -> Path:
    """A folder as an archive made it."""
    made, archive = tmp_path / "unpacked", tmp_path / "archive.tar"
    with tarfile.open(archive, "w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    made.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", made], check=True)
    return made


def _claims(victim: Path, worktree: Path, unpacked: Path) -> Iterator[dict[str, str]]:
    """Archives whose `.git` claims a repository that is not theirs."""
    admin = victim / ".git" / "worktrees" / worktree.name
    back = f"{unpacked}/.git\n"
    yield {".git": f"gitdir: {victim}/.git\n"}
    yield {".git": f"gitdir: {admin}\n"}
    # Git folders of its own, that call the victim's theirs.
    for own in ("fake/.git/worktrees/x", ".toolrest/worktrees/x"):
        yield {
            ".git": f"gitdir: {own}\n",
            f"{own}/HEAD": "ref: refs/heads/x\n",
            f"{own}/commondir": f"{victim}/.git\n",
            f"{own}/gitdir": back,
        }
    # A whole repository beside it, whose `.git/worktrees` points back: it is not trusted itself.
    yield {
        ".git": "gitdir: main/.git/worktrees/x\n",
        "main/.git/HEAD": "ref: refs/heads/main\n",
        "main/.git/worktrees/x/HEAD": "ref: refs/heads/x\n",
        "main/.git/worktrees/x/commondir": "../..\n",
        "main/.git/worktrees/x/gitdir": back,
    }
    # A `.git` folder with `worktrees` of its own says nothing about where it lies.
    yield {
        ".git/HEAD": "ref: refs/heads/x\n",
        ".git/commondir": f"{victim}/.git\n",
        ".git/gitdir": back,
        ".git/worktrees/x/HEAD": "ref: refs/heads/x\n",
        ".git/worktrees/x/commondir": f"{victim}/.git\n",
        ".git/worktrees/x/gitdir": back,
    }


@pytest.mark.parametrize("number", range(6))
def test_an_archive_cannot_claim_a_repository(
    repository: Path, tmp_path: Path, number: int
) -> None:
    worktree = tmp_path / "beside"
    _git("-C", repository, "worktree", "add", "-q", worktree)
    claims = list(_claims(repository, worktree, tmp_path / "unpacked"))
    assert len(claims) == 6
    made = _unpacked(tmp_path, {**claims[number], ".toolrest/config.toml": 'model = "theirs"\n'})
    assert trust_of(made) is None
    config = load(workspace=made, surface="cli")
    assert (config.trust_level, config.value.model) == (None, None)
    assert config.value.sandbox_mode == "read-only"


@pytest.mark.parametrize("name", ["gitdir", "commondir", "HEAD"])
def test_pointers_that_are_links_or_pipes_give_nothing(
    repository: Path, tmp_path: Path, name: str
) -> None:
    worktree = tmp_path / "beside"
    _git("-C", repository, "worktree", "add", "-q", worktree)
    file = repository / ".git" / "worktrees" / "beside" / name
    kept = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    assert trust_of(worktree) is None, "and it does not wait for a writer"
    file.unlink()
    if name != "HEAD":  # git's own may be a link
        (tmp_path / "elsewhere").write_bytes(kept)
        file.symlink_to(tmp_path / "elsewhere")
        assert trust_of(worktree) is None


def test_a_symlinked_git_entry_gives_nothing(repository: Path, tmp_path: Path) -> None:
    made = tmp_path / "unpacked"
    made.mkdir()
    (made / ".git").symlink_to(repository / ".git")
    assert trust_of(made) is None


def test_a_symlink_neither_gains_nor_keeps_trust(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert trust(link) == str(folder)
    other = tmp_path / "other"
    other.mkdir()
    link.unlink()
    link.symlink_to(other)
    assert trust_of(link) is None
    assert trust_of(other) is None


def test_an_entry_written_as_a_symlink_trusts_nothing(tmp_path: Path, file: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir()
    link.symlink_to(target)
    file.write_text(f'[projects."{link}"]\ntrust_level = "trusted"\n')
    assert trust_of(link) is None
    assert trust_of(target) is None


@pytest.mark.parametrize("name", ["no/such", "file"])
def test_only_a_folder_can_be_trusted(folder: Path, name: str, file: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(ConfigError, match="not a folder"):
        trust(folder / name)
    assert not file.exists()


@pytest.mark.parametrize(
    "name", ["a b", 'q"uote', "back\\slash", "dot.ted", "new\nline", "ünïcode"]
)
def test_odd_names_round_trip(folder: Path, name: str) -> None:
    odd = folder / name
    odd.mkdir()
    trust(odd)
    assert trust_of(odd) == "trusted"
    assert trust_of(folder) is None
    revoke(odd)
    assert trust_of(odd) is None


def test_a_name_that_toml_cannot_hold_is_an_error(folder: Path, file: Path) -> None:
    odd = os.fsencode(folder) + b"/\xff"
    os.mkdir(odd)
    with pytest.raises(ConfigError, match="cannot"):
        trust(os.fsdecode(odd))
    assert not file.exists()


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("modle", "x", "did you mean model?"),
        ("on_ask", "maybe", "choose deny"),
        ("hooks", "[]", "expected a table"),
        ("model.x", "1", "model is not a table"),
        ("tool_config.approval_policy", "none", "set the same thing differently"),
        ("model_family", "nope", "model_family: no model family is called"),
        ("model_families.x.like", "nope", "model_families.x.like: no model family"),
        ("max_parallel_calls", "0", "greater than or equal to 1"),
        ("read_roots", "['a']", "relative"),
    ],
)
def test_what_would_not_load_is_not_written(file: Path, key: str, value: str, part: str) -> None:
    before = 'model = "m"\napproval_policy = "untrusted"\n'
    file.write_text(before)
    with pytest.raises(ConfigError) as caught:
        set_value(key, value)
    assert part in str(caught.value)
    assert file.read_text() == before


def test_setting_what_was_broken_repairs_it(file: Path) -> None:
    file.write_text('on_ask = "maybe"  # hm\n')
    with pytest.raises(ConfigError, match="on_ask"):
        set_value("model", "x")
    set_value("on_ask", "deny")
    assert file.read_text() == 'on_ask = "deny"  # hm\n'


def test_a_linked_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    dotfile = tmp_path / "dotfiles.toml"
    dotfile.write_text("# mine\n")
    file.symlink_to(dotfile)
    set_value("model", "x")
    assert file.is_symlink()
    assert tomllib.loads(dotfile.read_text()) == {"model": "x"}


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_failed_write_leaves_the_old_file(
    file: Path, home: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(COMMENTED)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ConfigError, match="No space left"):
        set_value("model", "x")
    monkeypatch.undo()
    assert file.read_text() == COMMENTED
    assert sorted(path.name for path in home.iterdir()) == [".config.lock", "config.toml"]


def test_writers_wait_for_each_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    from toolrest.config import write

    monkeypatch.setattr(write, "LOCK_PATIENCE", 0.05)
    with open(home / ".config.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process"):
            set_value("model", "x")
    set_value("model", "x")


_keys = st.sampled_from(
    ["model", "tools.limits.a", 'tools.limits."b c"', "profiles.p.model", "tools.limits.model"]
)


def _starts() -> Iterator[str]:
    yield ""
    yield COMMENTED
    yield "tools = { limits = { a = 1 } }\n"
    yield "tools.limits.a = 1\n[agents]\nmax_agents = 3\n"
    yield "[tools.limits]\na = 1\n[agents]\nmax_agents = 3\n[tools]\ndisabled = []\n"
    yield "[profiles.p]\nmodel = 'x'\n\n[otel]\nenabled = false\n# end"
    yield "# only a comment"
    yield "\r\n# windows\r\nmodel = 'x'\r\n"


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from(list(_starts())), st.lists(st.tuples(_keys, st.integers(1, 99)), max_size=5))
def test_a_write_changes_that_key_and_nothing_else(
    home: Path, start: str, edits: list[tuple[str, int]]
) -> None:
    from toolrest.config.keys import flatten, parse_key

    file = home / "config.toml"
    file.write_bytes(start.encode())
    expected = flatten(tomllib.loads(start.replace("\r\n", "\n")))
    for key, number in edits:
        value: Any = f"m{number}" if parse_key(key)[-1] == "model" and key[0] != "t" else number
        set_value(key, str(value))
        expected[parse_key(key)] = value
    assert flatten(tomllib.loads(file.read_text())) == expected
    for line in start.splitlines():
        if line.lstrip().startswith("#"):
            assert line.strip() in file.read_text()
