"""The policy is built from the launcher's values, followed once, and then fixed (S6)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.errors import ConfigError
from toolrest.policy.paths.policy import PathPolicy
from toolrest.sandbox.environment import confined_env
from toolrest.sandbox.kernel import landlock_rules as landlock
from toolrest.sandbox.policy import SandboxPolicy


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    made = tmp_path / "ws"
    made.mkdir()
    return made


def build(ws: Path, **values: object) -> SandboxPolicy:
    return SandboxPolicy.build(str(ws), str(ws.parent / "session"), **values)  # type: ignore[arg-type]


def test_links_are_followed_once(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(ws)
    (ws / "sub").mkdir()
    policy = build(tmp_path / "link", writable_roots=["sub", str(tmp_path / "link/../ws")])
    assert policy.workspace == str(ws)
    assert policy.roots == (str(ws), f"{ws}/sub")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("/")
    assert policy.roots == (str(ws), f"{ws}/sub")


def test_roots_by_mode(ws: Path) -> None:
    assert build(ws, mode="read-only", writable_roots=["/usr"]).roots == ()
    assert build(ws).roots == (str(ws),)
    assert "/tmp" in build(ws, tmp="host").roots
    assert "/tmp" not in build(ws).roots
    assert build(ws).confines
    assert not build(ws, mode="danger-full-access").confines
    assert not build(ws, mode="external").confines


def test_missing_roots_are_named(ws: Path) -> None:
    policy = build(ws, writable_roots=["/does/not/exist"])
    assert policy.roots == (str(ws),)
    assert policy.dropped == ("/does/not/exist",)


@pytest.mark.parametrize("root", ["/proc", "/proc/self", "/sys", "/dev/shm"])
def test_some_places_cannot_be_roots(ws: Path, root: str) -> None:
    with pytest.raises(ConfigError, match="writable_roots"):
        build(ws, writable_roots=[root])


def test_bad_values_are_named(ws: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="workspace"):
        SandboxPolicy.build(str(tmp_path / "none"), str(tmp_path / "s"))
    with pytest.raises(ConfigError, match="NUL"):
        build(ws, writable_roots=["a\0b"])
    with pytest.raises(ConfigError, match=r"sandbox\.require"):
        build(ws, require=("everything",))
    with pytest.raises(ConfigError, match="lies in"):
        SandboxPolicy.build(str(ws), str(tmp_path))


def test_the_session_folder_is_private(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    policy = SandboxPolicy.build(str(ws), str(tmp_path / "open"))
    assert stat.S_IMODE(os.stat(policy.session_dir).st_mode) == 0o700


def test_the_same_rules_as_the_file_tools(ws: Path, tmp_path: Path) -> None:
    (ws / ".env").write_text("x")
    paths = PathPolicy(str(ws), hidden=["*.pem"])
    policy = SandboxPolicy.from_paths(paths, str(tmp_path / "session"))
    assert policy.roots == paths.writable_roots
    assert str(ws / ".env") in policy.hidden
    assert str(ws / ".codex") in policy.protected
    reading = PathPolicy(str(ws), mode="read-only")
    assert SandboxPolicy.from_paths(reading, str(tmp_path / "session")).roots == ()


@given(st.lists(st.sampled_from(["..", ".", "a", "/", "link", "/proc/self/cwd"]), max_size=6))
def test_no_spelling_adds_a_root(parts: list[str]) -> None:
    """However a folder is named, only what the launcher listed is a root."""
    policy = SandboxPolicy(workspace="/ws", session_dir="/s", roots=("/ws",))
    path = os.path.normpath(os.path.join("/ws", *parts))
    assert (policy.in_root(path) is not None) == (path == "/ws" or path.startswith("/ws/"))
    assert policy.in_root("/ws-evil") is None


def test_variables(ws: Path, tmp_path: Path) -> None:
    policy = build(ws, cache_dir=str(tmp_path / "cache"))
    given_ = {
        "A": "1",
        "SSH_AUTH_SOCK": "/x",
        "UV_CACHE_DIR": str(ws / "uv"),
        "PIP_CACHE_DIR": "/home/u/.cache/pip",
        "TMPDIR": "/somewhere",
    }
    env = confined_env(given_, policy, "bubblewrap", "/tmp")
    assert env["A"] == "1"
    assert env["TMPDIR"] == env["TMP"] == "/tmp"
    assert "SSH_AUTH_SOCK" not in env
    assert env["UV_CACHE_DIR"] == str(ws / "uv")
    assert env["PIP_CACHE_DIR"] == str(tmp_path / "cache/pip")
    assert "CARGO_HOME" not in env
    online = build(ws, cache_dir=str(tmp_path / "cache"), network="on")
    assert confined_env({}, online, "bubblewrap", "/tmp")["CARGO_HOME"].endswith("cache/cargo")
    assert "TOOLREST_SANDBOX_NETWORK_DISABLED" not in confined_env({}, online, "x", "/tmp")


def test_landlock_rules_leave_out_what_is_hidden(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folders of thousands of other tests lie beside this one's: no list is too long here.
    monkeypatch.setattr(landlock, "_MOST_RULES", 10**6)
    for name in ("home/.ssh", "home/.config/gh", "home/.config/app", "home/docs"):
        (tmp_path / name).mkdir(parents=True)
    hidden = [str(tmp_path / "home/.ssh"), str(tmp_path / "home/.config/gh")]
    policy = build(ws, hidden=hidden)
    rules = landlock.rules(policy, str(tmp_path / "tmp"))
    assert rules[0] == (str(ws), landlock.WRITE)
    assert not landlock.WRITE & (landlock.MAKE_BLOCK | landlock.MAKE_CHAR)
    granted = dict(rules)
    assert granted["/"] == landlock.READ_DIR
    readable = {path for path, mask in granted.items() if mask & landlock.READ_FILE}
    for place in hidden:
        assert not any(place == path or place.startswith(path + "/") for path in readable)
    assert str(tmp_path / "home/docs") in readable
    assert str(tmp_path / "home/.config/app") in readable
    assert "/usr" in readable
    assert "/dev" not in readable


@pytest.mark.slow
def test_landlock_keeps_the_system_readable_beside_a_crowded_folder(
    ws: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    for number in range(3000):
        (home / f"file{number}").touch()
    policy = build(ws, hidden=[str(home / ".ssh")])
    readable = {
        path
        for path, mask in landlock.rules(policy, str(tmp_path / "tmp"))
        if mask & landlock.READ_FILE
    }
    assert {"/usr", "/etc"} <= readable


def test_landlock_keeps_a_read_only_workspace_readable_beside_a_crowded_folder(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders around it used to be granted first, and the list was cut before it."""
    monkeypatch.setattr(landlock, "_MOST_RULES", 300)
    crowd = ws.parent / "crowd"
    (crowd / "hidden").mkdir(parents=True)
    for number in range(1000):
        (ws.parent / f"a{number}").touch()
    policy = build(ws, hidden=[str(crowd / "hidden")], mode="read-only")
    granted = dict(landlock.rules(policy, str(tmp_path / "tmp")))
    assert granted[str(ws)] & landlock.READ_FILE
    assert granted["/usr"] & landlock.READ_FILE
