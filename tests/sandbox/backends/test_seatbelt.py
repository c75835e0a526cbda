"""The macOS profile, as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolrest.sandbox.backends.seatbelt import arguments, profile
from toolrest.sandbox.policy import Network, SandboxPolicy


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / 'ws "(quoted)\\').mkdir()
    return tmp_path


def policy(base: Path, network: Network = "off") -> SandboxPolicy:
    return SandboxPolicy.build(
        str(base / 'ws "(quoted)\\'),
        str(base / "session"),
        hidden=["/home/u/.ssh"],
        exceptions=["/home/u/.ssh/public"],
        network=network,
    )


def balanced(text: str) -> bool:
    bare = re.sub(r'#?"[^"]*"', "", text)
    depth = 0
    for char in bare:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def test_everything_is_denied_first(base: Path) -> None:
    text, _ = profile(policy(base), "/private/tmp/x")
    lines = text.splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert balanced(text)


def test_paths_are_parameters_only(base: Path) -> None:
    given = policy(base)
    text, parameters = profile(given, "/private/tmp/x")
    assert "quoted" not in text
    assert given.workspace in parameters.values()
    assert set(re.findall(r'param "(\w+)"', text)) == set(parameters)


def test_what_is_taken_back_comes_after_what_is_given(base: Path) -> None:
    given = policy(base)
    text, parameters = profile(given, "/private/tmp/x")
    for name, value in parameters.items():
        text = text.replace(f'(param "{name}")', value)
    lines = text.splitlines()
    root = given.workspace
    order = [
        f"(allow file-write* (subpath {root}))",
        f"(deny file-write* (subpath {root}/.git/hooks))",
        f"(deny file-write-unlink (literal {root}/.git))",
        "(deny file-read* (subpath /home/u/.ssh))",
        "(allow file-read* (subpath /home/u/.ssh/public))",
    ]
    positions = [lines.index(line) for line in order]
    assert positions == sorted(positions)


@pytest.mark.parametrize("network", ["off", "allowlist", "on"])
def test_network(base: Path, network: Network) -> None:
    text, _ = profile(policy(base, network), "/t")
    assert ("(allow network-outbound)" in text) == (network == "on")
    assert balanced(text)


def test_the_command_line(base: Path) -> None:
    argv = arguments(("echo", "-p", "hi"), policy(base), "/t")
    assert argv[:2] == ("/usr/bin/sandbox-exec", "-p")
    assert argv[-4:] == ("--", "echo", "-p", "hi")
    assert all(word.startswith("-DPATH_") for word in argv[3:-4])
