"""`exec` in a folder that is not trusted: read-only, which is said first and counted last."""

from __future__ import annotations

from typing import Any

import pytest

from toolrest.config.trust import trust
from toolrest.testing import Call

WAY = "(`toolrest trust`, or -s workspace-write)"
HEADER = f"read-only: this folder is not trusted {WAY}"


def command(cmd: str) -> Call:
    return Call("exec_command", {"cmd": cmd, "login": False})


def writes(name: str) -> Call:
    return Call("write_file", {"file_path": name, "content": "x"})


MIXED = [
    [writes("cart.py")],
    [command("touch made")],
    [writes("../beside.py")],  # not in a trusted folder either
    [command("curl http://example.org")],
    [writes(".git/hooks/pre-commit")],
    [command("ls")],
    "done",
]


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_it_says_so_first_and_counts_last(desk: Any, serve: Any) -> None:
    (desk.workspace / ".git" / "hooks").mkdir(parents=True)
    serve(MIXED)
    ran = desk.run("exec", "go")
    lines = ran.err.splitlines()
    assert (ran.code, ran.out, lines[1]) == (0, "done\n", HEADER)
    assert lines[-1] == f"toolrest: 2 calls were denied: this folder is not trusted {WAY}"
    serve(MIXED)
    ran = desk.run("exec", "--json", "go")
    assert ran.lines[0]["untrusted_folder"] is True
    assert (ran.result["denied_untrusted"], len(ran.result["denials"])) == (2, 5)
    assert not (desk.workspace / "cart.py").exists()


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("policy", ["on-request", "never"])
def test_what_the_sandbox_blocked_counts_too(desk: Any, serve: Any, policy: str) -> None:
    serve([[command('python3 -c \'open("made", "w")\'')], [writes("cart.py")], "done"])
    ran = desk.run("exec", "-a", policy, "go")
    lines = ran.err.splitlines()
    assert lines[1] == HEADER
    assert lines[-1] == f"toolrest: 2 calls were denied: this folder is not trusted {WAY}"


def test_one_call_is_one(desk: Any, serve: Any) -> None:
    serve([[writes("cart.py")], "done"])
    ran = desk.run("exec", "go")
    assert ran.err.endswith(f"toolrest: 1 call was denied: this folder is not trusted {WAY}\n")


@pytest.mark.slow
def test_nothing_is_said_where_it_is_not_the_reason(desk: Any, serve: Any) -> None:
    """Trusted, or chosen: by a flag, by the settings, by the session that goes on."""
    for words in (("-s", "read-only"), ("-c", 'sandbox_mode="read-only"')):
        serve([[writes("cart.py")], "done"])
        ran = desk.run("exec", *words, "go")
        assert "trusted" not in ran.err
        serve([[writes("cart.py")], "done"])
        ran = desk.run("exec", *words, "--json", "go")
        assert ran.lines[0]["untrusted_folder"] is False
        assert (ran.result["denied_untrusted"], len(ran.result["denials"])) == (0, 1)
    serve(["done"])
    ran = desk.run("exec", "-s", "workspace-write", "go")
    assert "trusted" not in ran.err
    serve(["done"])
    assert HEADER in desk.run("exec", "go").err
    serve(["on"])
    trust(desk.workspace)
    ran = desk.run("exec", "--last", "on")
    assert "trusted" not in ran.err


@pytest.mark.slow
def test_a_session_that_goes_on_says_it_again(desk: Any, serve: Any) -> None:
    serve(["done", "on"])
    assert HEADER in desk.run("exec", "go").err
    assert HEADER in desk.run("exec", "--last", "on").err


def test_a_run_that_did_not_begin_has_the_count(desk: Any) -> None:
    ran = desk.run("exec", "--json", "-c", "no_such=1", "go")
    assert ran.result["denied_untrusted"] == 0
