"""`toolrest policy` and `toolrest grants`, as a user at a terminal uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolrest.answer import Answer
from toolrest.cli.app import app
from toolrest.config.trust import trust
from toolrest.gate.approval.grants import Grants, stored_grants
from toolrest.gate.decision.decide import Decider, Decision
from toolrest.policy.grants.key import GrantKey


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trusted folder to stand in."""
    folder = tmp_path / "work"
    folder.mkdir()
    trust(folder)
    monkeypatch.chdir(folder)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def check(*words: str) -> dict[str, Any]:
    result = run("policy", "check", "--json", *words)
    assert result.exit_code == 0, result.output
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


@pytest.mark.parametrize(
    ("words", "verdict", "risk"),
    [
        (["--", "git diff | head"], "allow", "read"),
        (["--", "touch x"], "allow", "write"),
        (["--", "make"], "allow", "execute"),
        (["-a", "untrusted", "--", "make"], "ask", "execute"),
        (["-a", "required", "--", "ls"], "ask", "read"),
        (["-s", "read-only", "--", "touch x"], "ask", "write"),
        (["-a", "never", "-s", "read-only", "--", "touch x"], "deny", "write"),
        (["--", "git push --force"], "ask", "critical"),
        (["-a", "never", "--", "git push --force"], "deny", "critical"),
        (["-a", "dangerous", "--", "git push --force"], "allow", "critical"),
        (["--", "echo", "a; reboot"], "allow", "read"),
        (["--", "echo a; reboot"], "ask", "critical"),
    ],
)
def test_check_gives_verdict_and_risk(
    work: Path, words: list[str], verdict: str, risk: str
) -> None:
    told = check(*words)
    assert (told["verdict"], told["risk"]) == (verdict, risk)


def test_check_names_every_segment_and_what_decided(work: Path, toolrest_home: Path) -> None:
    (toolrest_home / "rules").mkdir()
    (toolrest_home / "rules" / "own.rules").write_text(
        'prefix_rule(["make", "deploy"], decision="forbidden", justification="ask Ann")'
    )
    told = check("--", "ls; timeout 5 make deploy; npm t")
    assert told["verdict"] == "deny"
    assert "ask Ann" in told["reason"]
    assert [(row["command"][0], row["row"]) for row in told["segments"]] == [
        ("ls", "safe"),
        ("timeout", "safe"),
        ("make", "rule"),
        ("npm", "sandboxed"),
    ]
    text = run("policy", "check", "--", "make deploy").stdout
    assert text.startswith("deny")
    assert "own.rules" in text


def test_check_shows_no_control_characters(work: Path) -> None:
    text = run("policy", "check", "--", "make", "\x1b[2J\u202e").stdout
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "⟨ESC⟩" in text


def test_check_knows_grants(work: Path, toolrest_home: Path) -> None:
    key = GrantKey("run", ("make", "x"), exact=True)
    Grants(str(toolrest_home)).remember([key], "user")
    assert check("-a", "untrusted", "--", "make x")["verdict"] == "allow"
    assert check("-a", "untrusted", "--", "make x y")["verdict"] == "ask"
    assert check("-a", "strict", "--", "make x")["verdict"] == "ask"


def test_a_broken_rules_file_stops_the_check(work: Path, toolrest_home: Path) -> None:
    (toolrest_home / "rules").mkdir()
    (toolrest_home / "rules" / "x.rules").write_text("prefix_rule(")
    result = run("policy", "check", "--", "ls")
    assert result.exit_code != 0


def test_show_tells_values_and_sources(work: Path) -> None:
    told = json.loads(run("policy", "show", "--json", "-a", "never").stdout)
    assert told["settings"]["approval_policy"] == {"value": "never", "source": "flag"}
    assert told["table"]["critical"] == "deny"
    text = run("policy", "show", "-c", 'approvals.tools.webfetch="deny"').stdout
    assert "approvals.tools" in text
    assert "approval_policy" in text


def test_explain_tells_the_rule_and_the_choices(work: Path) -> None:
    arguments = json.dumps({"path": "a.txt", "content": "x"})
    told = json.loads(run("policy", "explain", "-a", "untrusted", "write_file", arguments).stdout)
    assert (told["verdict"], told["rule"], told["risk"]) == ("ask", "table.write", "write")
    assert [choice["scope"] for choice in told["choices"]] == ["once", "session", "project", "user"]
    bad = json.loads(run("policy", "explain", "write_file", "{}").stdout)
    assert (bad["verdict"], bad["rule"]) == ("deny", "input_invalid")


@pytest.mark.slow
@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("mode", ["on-request", "never", "untrusted"])
def test_canaries_are_held(work: Path, mode: str) -> None:
    result = run("policy", "test", "--json", "-a", mode)
    rows = json.loads(result.stdout)
    assert result.exit_code == 0, rows
    states = {row["name"]: row["state"] for row in rows}
    assert "RAN" not in states.values()
    loose = {"a tool that declares nothing"} if mode == "never" else set()
    assert {name for name, state in states.items() if state != "held"} == loose


@pytest.mark.slow
def test_a_gate_that_lets_a_canary_run_fails_the_test(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decider, "decide", lambda *_: Decision(Answer.ALLOW, "broken"))
    result = run("policy", "test")
    assert result.exit_code == 1
    assert "RAN     a tool that declares nothing" in result.stdout


@pytest.mark.slow
def test_own_denials_are_canaries_too(work: Path, toolrest_home: Path) -> None:
    (toolrest_home / "rules").mkdir()
    (toolrest_home / "rules" / "own.rules").write_text(
        'prefix_rule(["npm", "publish"], decision="forbidden")'
    )
    rows = json.loads(
        run("policy", "test", "--json", "-c", 'approvals.tools.read_file="deny"').stdout
    )
    names = [row["name"] for row in rows if row["state"] == "held"]
    assert "rule npm publish" in names


def test_grants_are_listed_and_taken_back(work: Path, toolrest_home: Path) -> None:
    assert run("grants", "list").stdout == ""
    grants = Grants(str(toolrest_home), project=str(work))
    grants.remember([GrantKey("write", ("/w/\x1b[2Ja",))], "user", "apply_patch")
    grants.remember([GrantKey("run", ("make",), str(work))], "project")
    text = run("grants", "list").stdout
    assert "\x1b" not in text
    assert f'commands that start with ["make"], in "{work}" and below' in text
    rows = json.loads(run("grants", "list", "--json").stdout)
    assert [row["scope"] for row in rows] == ["user", "project"]
    assert "revoked" in run("grants", "revoke", rows[0]["id"][:8]).stdout
    assert [grant.scope for grant in stored_grants(str(toolrest_home))] == ["project"]
    assert run("grants", "revoke").exit_code == 2
    assert run("grants", "revoke", "zzz").exit_code != 0
    run("grants", "revoke", "--project", str(work))
    assert stored_grants(str(toolrest_home)) == []
