"""Which shell, and its arguments; PowerShell and cmd as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolrest.process.shells.shells import Shell, Shells, kind_of


@pytest.mark.parametrize(
    ("shell", "login", "argv"),
    [
        (Shell("bash", "/bin/bash"), True, ("/bin/bash", "-lc", "x")),
        (Shell("bash", "/bin/bash"), False, ("/bin/bash", "-c", "x")),
        (Shell("zsh", "/bin/zsh"), True, ("/bin/zsh", "-lc", "x")),
        (Shell("sh", "/bin/sh"), False, ("/bin/sh", "-c", "x")),
        (Shell("powershell", "pwsh"), True, ("pwsh", "-Command", "x")),
        (Shell("powershell", "pwsh"), False, ("pwsh", "-NoProfile", "-Command", "x")),
        (Shell("cmd", "cmd.exe"), True, ("cmd.exe", "/c", "x")),
        (Shell("cmd", "cmd.exe"), False, ("cmd.exe", "/c", "x")),
    ],
)
def test_argv(shell: Shell, login: bool, argv: tuple[str, ...]) -> None:
    assert shell.argv("x", login=login) == argv


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bash", "bash"),
        ("/usr/local/bin/zsh", "zsh"),
        ("/bin/sh", "sh"),
        ("pwsh", "powershell"),
        ("powershell.exe", "powershell"),
        ("C:\\Windows\\System32\\cmd.exe", "cmd"),
        ("/opt/pwsh.real.exe", "powershell"),
        ("bash.exe.old", "bash"),
        ("fish", None),
        ("/bin/bashful", None),
        ("", None),
        ("/", None),
    ],
)
def test_kind_of(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("bash", "zsh", "pwsh", "other"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "bash").write_text("not a program")
    return tmp_path


def test_the_login_shell_when_it_is_known(folder: Path) -> None:
    shells = Shells(path="/nowhere", passwd=str(folder / "zsh"))
    assert shells.default() == Shell("zsh", str(folder / "zsh"))


def test_the_usual_shell_otherwise(folder: Path) -> None:
    for passwd in (None, "/usr/bin/fish", str(folder / "other")):
        assert Shells(str(folder), passwd, "linux").default().kind == "bash"
        assert Shells(str(folder), passwd, "darwin").default().kind == "zsh"
        assert Shells(str(folder), passwd, "win32").default().kind == "powershell"
    usual = Shell("bash", "/bin/bash") if Path("/bin/bash").exists() else Shell("sh", "/bin/sh")
    assert Shells("/nowhere", None, "linux").default() == usual
    assert Shells("/nowhere", None, "win32").default() == Shell("cmd", "cmd.exe")


def test_by_name(folder: Path) -> None:
    shells = Shells(f"relative:{folder / 'plain'}:{folder}", str(folder / "zsh"), "linux")
    assert shells.named("fish") == Shell("sh", "/bin/sh", instead_of="fish")
    assert shells.named("bash") == Shell("bash", str(folder / "bash"))
    assert shells.named(str(folder / "bash")) == Shell("bash", str(folder / "bash"))
    assert shells.named("/no/such/zsh") == Shell("zsh", str(folder / "zsh"))
    assert Shells("/nowhere").named("bash") == Shell("bash", "/bin/bash")


def test_a_shell_that_is_not_there(folder: Path) -> None:
    (folder / "zsh").unlink()
    shells = Shells("/nowhere", str(folder / "zsh"), "linux")
    if not Path("/bin/zsh").exists():
        assert shells.named("zsh") == Shell("sh", "/bin/sh", instead_of="zsh")
        assert shells.default().path != str(folder / "zsh")
    # These lines are never handed to another kind of shell.
    for name, kind in (("pwsh", "powershell"), ("cmd", "cmd")):
        found = shells.named(name)
        assert (found.kind, found.path, found.known, found.missing) == (kind, name, False, True)


def test_never_from_a_folder_that_a_model_can_write(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    shells = Shells(f"{folder}:{link}", str(folder / "bash"), "linux", avoid=(str(folder),))
    assert shells.default() == Shell("bash", "/bin/bash")
    assert shells.named(str(folder / "bash")) == Shell("bash", "/bin/bash")
    zsh = shells.named(str(link / "zsh"))
    assert zsh.path in ("/bin/zsh", "/bin/sh")
