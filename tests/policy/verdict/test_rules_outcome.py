"""From a verdict, rules, mode and sandbox to one requirement, with its exact words."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.policy.rules.amendment import saved_message
from toolrest.policy.rules.load import parse_rules
from toolrest.policy.rules.rules import Rules
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import (
    ExecMode,
    Outcome,
    Requirement,
    SandboxMode,
    Setting,
    escalation_refused,
    outcome,
)

NONE = Rules()
ASKS = Setting("untrusted", "workspace-write")
DEFAULT = Setting("on-request", "workspace-write")


def decide(
    command: str | list[str],
    rules: str | Rules = NONE,
    setting: Setting = DEFAULT,
    prefix: list[str] | None = None,
) -> Outcome:
    verdict = judge(command, cwd="/home/u/proj", home="/home/u")
    table = parse_rules(rules) if isinstance(rules, str) else rules
    return outcome(verdict, table, setting, prefix_rule=prefix)


def require(
    command: str | list[str],
    rules: str | Rules = NONE,
    setting: Setting = DEFAULT,
    prefix: list[str] | None = None,
) -> Requirement:
    return decide(command, rules, setting, prefix).requirement


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        # never, on-failure, untrusted, on-request, auto, strict
        ("ls", "allow allow allow allow allow ask"),
        ("echo hi", "allow allow allow allow allow allow"),
        ("make", "allow allow ask allow ask ask"),
        ("touch x", "allow allow ask allow ask ask"),
        ("touch /opt/x", "deny allow ask ask ask ask"),
        ("curl https://a.io", "deny allow ask ask ask ask"),
        ("git status", "allow allow allow allow allow ask"),
        ("$X", "deny ask ask ask ask ask"),
        ("rm -rf /", "deny ask ask ask ask ask"),
        ("( " * 90 + "ls" + " )" * 90, "deny deny deny deny deny deny"),
    ],
)
def test_modes_in_the_sandbox(command: str, answers: str) -> None:
    modes: list[ExecMode] = ["never", "on-failure", "untrusted", "on-request", "auto", "strict"]
    got = [decide(command, setting=Setting(mode, "workspace-write")).answer for mode in modes]
    assert got == answers.split()


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        # read-only, workspace-write, danger-full-access, external-sandbox
        ("ls", "allow allow allow allow"),
        ("git log", "allow allow ask allow"),
        ("make", "allow allow allow allow"),
        ("touch x", "ask allow allow allow"),
        ("echo x > /tmp/y", "ask allow allow allow"),
        ("touch /opt/x", "ask ask allow allow"),
        ("curl https://a.io", "ask ask allow allow"),
        ("curl http://localhost:1/", "allow allow allow allow"),
        ("$X", "ask ask ask ask"),
        ("rm -rf /", "ask ask ask ask"),
    ],
)
def test_sandboxes_on_request(command: str, answers: str) -> None:
    sandboxes: list[SandboxMode] = [
        "read-only",
        "workspace-write",
        "danger-full-access",
        "external-sandbox",
    ]
    got = [decide(command, setting=Setting("on-request", box)).answer for box in sandboxes]
    assert got == answers.split()


def test_git_without_a_sandbox_runs_where_nothing_asks() -> None:
    full = Setting("never", "danger-full-access")
    assert decide("git status", setting=full).answer == "allow"
    assert decide("git status", setting=replace(full, mode="untrusted")).answer == "ask"


def test_the_network_may_be_on() -> None:
    assert decide("curl https://a.io", setting=replace(DEFAULT, network=True)).answer == "allow"


@pytest.mark.parametrize("command", ["ls", "echo hi", "git status", "make"])
def test_leaving_the_sandbox_always_asks(command: str) -> None:
    setting = replace(DEFAULT, permissions="require_escalated")
    assert decide(command, setting=setting).answer == "ask"
    program = command.split()[0]
    assert decide(command, f'prefix_rule(["{program}"])', setting).answer == "ask"
    rule = f'prefix_rule(["{program}"], outside=True)'
    assert require(command, rule, setting) == Requirement(Answer.ALLOW, bypass_sandbox=True)


def test_forbidden_by_a_rule_with_its_words() -> None:
    argv = ["bash", "-lc", "ls && git push 'a b'"]
    shown = """`bash -lc 'ls && git push '"'"'a b'"'"''`"""
    rules = 'prefix_rule(["git"], decision="forbidden")\n'
    longer = 'prefix_rule(["git", "push"], decision="forbidden"{})'
    assert require(argv, rules + longer.format("")) == Requirement(
        Answer.DENY, f"{shown} rejected: policy forbids commands starting with `git push`"
    )
    reason = longer.format(', justification="ask Ann"')
    assert require(argv, rules + reason) == Requirement(Answer.DENY, f"{shown} rejected: ask Ann")


def test_asked_by_a_rule_with_its_words() -> None:
    rule = 'prefix_rule(["make"], decision="prompt"{})'
    assert require("make x", rule.format("")) == Requirement(
        Answer.ASK, "`make x` requires approval by policy"
    )
    assert require("make x", rule.format(', justification="slow"')) == Requirement(
        Answer.ASK, "`make x` requires approval: slow"
    )
    never = replace(DEFAULT, mode="never")
    assert require("make x", rule.format(""), never) == Requirement(
        Answer.DENY, "approval required by policy, but AskForApproval is set to Never"
    )


def test_dangerous_commands_are_blocked_where_nothing_asks() -> None:
    never = replace(DEFAULT, mode="never")
    found = require("reboot", setting=never)
    assert found.answer == "deny"
    assert found.reason == "`reboot` rejected: blocked by policy"
    assert found.detail == "power_off: reboot stops the machine"
    found = require("rm -rf /", setting=never)
    assert found.answer == "deny"
    assert found.reason == "rm -f style commands are not permitted. Use a safer approach"


def test_what_would_ask_is_forbidden_in_never_and_says_why() -> None:
    never = replace(DEFAULT, mode="never")
    for command, why in (
        ("$X", "which program '$X' is"),
        ("touch /opt/x", "outside the writable roots"),
        ("curl https://a.io", "network_access = true"),
    ):
        found = require(command, setting=never)
        assert found.answer == "deny"
        assert found.reason == "approval required by policy, but AskForApproval is set to Never"
        assert why in found.detail


def test_an_allow_rule_lifts_ordinary_commands() -> None:
    assert require("make x", 'prefix_rule(["make"])', ASKS) == Requirement(Answer.ALLOW)
    assert require("make x", 'prefix_rule(["make"], outside=True)', ASKS) == Requirement(
        Answer.ALLOW, bypass_sandbox=True
    )
    assert decide("make x; npm x", 'prefix_rule(["make"])', ASKS).answer == "ask"


@pytest.mark.parametrize(
    ("command", "bypass"),
    [
        ("make a && make b", True),
        ("make a | make b", True),
        ("make a | head", False),
        ("ls; make a", False),
        ("make $X", False),
        ("make a > out", False),
        ("X=1 make a", False),
        ("LANG=C make a", False),
        ("make a &", False),
        ("for i in 1; do make a; done", False),
        ("timeout 5 make a", False),
        ("(make a)", True),
    ],
)
def test_the_sandbox_is_left_only_when_rules_allow_every_command(
    command: str, bypass: bool
) -> None:
    found = require(command, 'prefix_rule(["make"], outside=True)')
    assert found.answer == "allow"
    assert found.bypass_sandbox == bypass
    inside = require(command, 'prefix_rule(["make"])')
    assert (inside.answer, inside.bypass_sandbox) == ("allow", False)


def test_a_rule_that_does_not_say_outside_lets_nothing_leave() -> None:
    """Fails on trees in which every allow rule left the sandbox."""
    for command, row in (("touch /opt/x", "write.outside"), ("curl https://a.io", "network.off")):
        program = command.split()[0]
        found = decide(command, f'prefix_rule(["{program}"])')
        assert (found.answer, found.decided[0].row) == ("ask", row)
        out = decide(command, f'prefix_rule(["{program}"], outside=True)')
        assert (out.answer, out.requirement.bypass_sandbox) == ("allow", True)
    # One of two rules says it, and the strictest decides as ever.
    both = 'prefix_rule(["make"])\nprefix_rule(["make", "x"], outside=True)'
    assert require("make x", both).bypass_sandbox
    assert not require("make y", both).bypass_sandbox


def test_an_allowed_command_still_may_not_write_elsewhere_through_the_shell() -> None:
    rule = 'prefix_rule(["make"])'
    assert decide("make > /tmp/log", rule, ASKS).answer == "allow"
    assert decide("make > /opt/log", rule, DEFAULT).answer == "ask"
    assert decide("make > /etc/passwd", rule, DEFAULT).answer == "ask"
    assert decide("make > $X", rule, DEFAULT).answer == "ask"


def test_a_short_allow_rule_does_not_lift_the_dangerous_list() -> None:
    for command, short, spelled in (
        ("rm -rf /", '["rm"]', '["rm", "-rf", "/"]'),
        ("git push --force", '["git", "push"]', '["git", "push", "--force"]'),
    ):
        assert decide(command, f"prefix_rule({short})").answer == "ask"
        assert decide(command, f"prefix_rule({spelled}, outside=True)").answer == "allow"
    assert decide("echo x > /dev/sda", 'prefix_rule(["echo", "x"])').answer == "ask"


def test_rules_reach_into_wrappers_and_scripts() -> None:
    deny = 'prefix_rule(["git", "push"], decision="forbidden")'
    for command in (
        "git push",
        "timeout 5 git push",
        "sudo git push",
        "bash -c 'git push'",
        "echo $(git push)",
        "for x in 1; do git push; done",
        "find . -exec git push ;",
        "/usr/bin/git push",
    ):
        assert decide(command, deny).answer == "deny", command
    assert decide("git $VERB", deny).answer == "ask"
    assert decide("git pull", deny).answer == "allow"


def test_an_allow_rule_covers_what_the_command_runs() -> None:
    rule = 'prefix_rule(["uv", "run", "pytest"])'
    for command in (
        "uv run pytest -q",
        "uv run pytest tests/a.py -k x",
        "cd app && uv run pytest",
        "uv run pytest | head -5",
        "timeout 60 uv run pytest",
        "NO_COLOR=1 uv run pytest",
        "uv run pytest 2>&1 | tail -20",
    ):
        assert decide(command, rule, ASKS).answer == "allow", command
    for command in ("uv run python x.py", "pytest", "uv run pytest; make", "sudo uv run pytest"):
        assert decide(command, rule, ASKS).answer == "ask", command
    assert decide("uv run rm -rf /", 'prefix_rule(["uv", "run"])', ASKS).answer == "ask"


def amendment(found: Requirement) -> tuple[str, ...] | None:
    assert found.answer != "deny"
    return found.amendment


def test_what_may_be_remembered() -> None:
    assert amendment(require("ls && make x", setting=ASKS)) == ("make", "x")
    assert amendment(require("make x", setting=ASKS, prefix=["make"])) == ("make",)
    assert amendment(require("make x; npm t", setting=ASKS, prefix=["make"])) == ("make", "x")
    for banned in (["bash", "-c"], ["python3"], ["sudo"], ["make", ""], []):
        assert amendment(require("make x", setting=ASKS, prefix=banned)) == ("make", "x")
    for command in ("python3", "git", "make $X", "$X", "rm -rf /", "git push -f"):
        assert amendment(require(command, setting=ASKS)) is None, command


def test_nothing_is_offered_where_a_rule_asks() -> None:
    rule = 'prefix_rule(["make"], decision="prompt")'
    assert amendment(require("npm t; make x", rule, ASKS, ["npm"])) is None


def test_what_to_remember_after_a_run_that_the_sandbox_stopped() -> None:
    assert amendment(require("make x")) == ("make", "x")
    assert amendment(require("make x", 'prefix_rule(["make"])')) is None


def test_each_segment_says_what_decided() -> None:
    found = decide("ls; make x > /opt/y", 'prefix_rule(["make"])')
    assert [(d.row, d.decision.value) for d in found.decided] == [
        ("safe", "allow"),
        ("write.outside", "ask"),
    ]
    json = found.decided[1].to_json()
    assert json["command"] == ["make", "x"]
    assert json["kind"] == "runs"
    assert json["matchedRules"] == [
        {"prefixRuleMatch": {"matchedPrefix": ["make"], "decision": "allow"}}
    ]


def test_asking_to_leave_the_sandbox_is_refused_where_nobody_could_be_asked() -> None:
    assert escalation_refused("on-request", "cannot") is None
    assert escalation_refused("never", "should not") == (
        "approval policy is Never; reject command — you should not ask for escalated permissions "
        "if the approval policy is Never"
    )
    assert escalation_refused("untrusted", "cannot") == (
        "approval policy is UnlessTrusted; reject command — you cannot ask for escalated "
        "permissions if the approval policy is UnlessTrusted"
    )


def test_the_model_is_told_what_was_saved() -> None:
    assert saved_message(["uv", 'a "b"']) == 'Approved command prefix saved:\n- ["uv", "a \\"b\\""]'


def test_doing_nothing_needs_nothing() -> None:
    assert require("") == Requirement(Answer.ALLOW)
    assert require("# only a comment") == Requirement(Answer.ALLOW)


def test_an_allow_rule_covers_no_variables_set_for_the_command() -> None:
    """A variable may make it another command: `LD_PRELOAD=./x.so make` would run unasked."""
    rules = 'prefix_rule(pattern=["make"], outside=True)'
    assert decide("make", rules, ASKS).answer == "allow"
    assert decide("LD_PRELOAD=./x.so make", rules, ASKS).answer == "ask"


def test_making_the_git_folder_of_a_root_leaves_the_sandbox(tmp_path: Path) -> None:
    """Its hooks come with it, and the sandbox keeps the name closed."""
    verdict = judge(
        "mkdir .git", cwd=str(tmp_path), writable_roots=(str(tmp_path),), home="/home/u"
    )
    assert outcome(verdict, NONE, DEFAULT).answer == "ask"
    (tmp_path / ".git").mkdir()
    assert outcome(verdict, NONE, DEFAULT).answer == "allow"


def test_a_rule_for_a_dangerous_command_covers_no_file_of_the_shell() -> None:
    rule = 'prefix_rule(pattern=["git", "reset", "--hard"])'
    assert decide("git reset --hard", rule, ASKS).answer == "allow"
    assert decide("git reset --hard > out", rule, ASKS).answer == "ask"


def test_what_an_allowed_command_runs_writes_no_file_of_the_shell() -> None:
    rule = 'prefix_rule(pattern=["bash"])'
    assert decide("bash -c 'make'", rule, ASKS).answer == "allow"
    assert decide("bash -c 'make > out'", rule, ASKS).answer == "ask"
