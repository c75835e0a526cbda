"""Rules files: what they may say, what they match, and errors that name file and line."""

from __future__ import annotations

import pytest

from toolrest.answer import Answer
from toolrest.errors import ConfigError
from toolrest.policy.rules.load import managed_rules, parse_rules
from toolrest.policy.rules.rules import Rules, spelled
from toolrest.policy.shell.script import VARIABLE


def decisions(rules: Rules, *argv: str) -> list[str]:
    return [spelled(match.decision) for match in rules.matches(argv)]


def test_a_rule_matches_commands_that_begin_with_its_tokens() -> None:
    rules = parse_rules('prefix_rule(["git", "push"], "prompt")')
    assert decisions(rules, "git", "push", "-f") == ["prompt"]
    assert decisions(rules, "git", "push") == ["prompt"]
    assert decisions(rules, "git") == []
    assert decisions(rules, "git", "pull") == []
    assert decisions(rules, "GIT", "push") == []


def test_alternatives_stand_at_one_place() -> None:
    rules = parse_rules('prefix_rule(pattern=[["npm", "yarn"], ["test", "run"]], decision="allow")')
    for first in ("npm", "yarn"):
        for second in ("test", "run"):
            assert decisions(rules, first, second, "x") == ["allow"]
    assert decisions(rules, "npm", "publish") == []
    assert decisions(rules, "pnpm", "test") == []


def test_every_matching_rule_is_returned_and_the_strictest_decides() -> None:
    rules = parse_rules(
        """
prefix_rule(["git"])
prefix_rule(["git", "push"], decision="forbidden", justification="release only from CI")
"""
    )
    assert rules.check(["git", "push", "x"]) == {
        "matchedRules": [
            {"prefixRuleMatch": {"matchedPrefix": ["git"], "decision": "allow"}},
            {
                "prefixRuleMatch": {
                    "matchedPrefix": ["git", "push"],
                    "decision": "forbidden",
                    "justification": "release only from CI",
                }
            },
        ],
        "decision": "forbidden",
    }
    assert rules.check(["ls"]) == {"matchedRules": []}


def test_the_language_is_starlark() -> None:
    rules = parse_rules(
        """
def allow(*names):
    for name in names:
        prefix_rule([name, f"{name}-check"], match = [f"{name} {name}-check all"])

allow("a", "b")
[prefix_rule(pattern = [x]) for x in ["c", "d"]]
"""
    )
    assert decisions(rules, "b", "b-check") == ["allow"]
    assert decisions(rules, "d") == ["allow"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("\nprefix_rule([])", 2, "pattern must not be empty"),
        ("prefix_rule(('a',))", 1, "pattern must be a list"),
        ("prefix_rule('a')", 1, "pattern must be a list"),
        ("prefix_rule([1])", 1, "strings"),
        ("prefix_rule([[]])", 1, "non-empty lists of strings"),
        ("prefix_rule([('a', 'b')])", 1, "strings or lists"),
        ("prefix_rule(['a'], 'ask')", 1, "decision must be allow, prompt or forbidden, not 'ask'"),
        ("prefix_rule(['a'], 3)", 1, "decision must be"),
        ("prefix_rule(['a'],\n  justification=' ')", 1, "justification"),
        ("x = 1\n\nprefix_rule(['a'], match=['b c'])", 3, "match example 'b c' does not match"),
        ("prefix_rule(['a'], not_match=['a c'])", 1, "not_match example 'a c' matches"),
        ("prefix_rule(['a'], match=[''])", 1, "is not a command"),
        ("prefix_rule(['a'], match=[[]])", 1, "is not a command"),
        ("prefix_rule(['a'], match=['a \"b'])", 1, "cannot be split"),
        ("prefix_rule(['a'], match='a')", 1, "match must be a list"),
        ("prefix_rule(['a'], wat=1)", 1, "wat"),
        ("prefix_rule(['a'", 1, "Parse error"),
        ("\n\nprefix_rule(nope)", 3, "nope"),
        ("load('x', 'y')", 1, "load"),
        ("def f():\n    prefix_rule(['a'], 'no')\n\nf()", 2, "decision"),
        ("x = 1 // 0", 1, ""),
        ("def f(n):\n    return f(n)\nf(1)", 2, ""),
        ("network_rule('http://a', 'http', 'allow')", 1, "host"),
        ("network_rule('*.a', 'http', 'allow')", 1, "host"),
        ("network_rule('a', 'ftp', 'allow')", 1, "protocol"),
        ("network_rule('a', 'http', 'maybe')", 1, "decision"),
        ("host_executable('a/b', ['/a/b'])", 1, "bare file name"),
        ("host_executable('a', ['a'])", 1, "absolute"),
        ("host_executable('a', ['/b'])", 1, "does not end in"),
    ],
)
def test_errors_name_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_rules(text, "/cfg/my.rules")
    message = str(caught.value)
    assert message.startswith(f"/cfg/my.rules:{line}: ")
    assert words in message
    assert "\n" not in message


@pytest.mark.slow
def test_a_file_that_never_ends_is_an_error() -> None:
    with pytest.raises(ConfigError, match="took more than"):
        parse_rules("def f():\n    for i in range(2000000000):\n        pass\nf()")


def test_absolute_programs_match_the_rules_of_their_name() -> None:
    text = """
prefix_rule(["git", "status"])
prefix_rule(["rm"], decision="forbidden")
prefix_rule(["tool"], decision="allow", match=["/opt/tool/bin/tool x"], not_match=["/tmp/tool x"])
host_executable("tool", ["/opt/tool/bin/tool"])
"""
    rules = parse_rules(text)
    assert decisions(rules, "/usr/bin/git", "status") == ["allow"]
    assert decisions(rules, "/tmp/git", "status") == []
    assert decisions(rules, "./git", "status") == []
    assert decisions(rules, "/tmp/rm", "x") == ["forbidden"]
    assert decisions(rules, "/opt/tool/bin/tool") == ["allow"]
    assert decisions(rules, "/usr/bin/tool") == []
    [match] = rules.matches(["/usr/bin/git", "status"])
    assert match.resolved_program == "/usr/bin/git"
    assert match.prefix == ("git", "status")
    assert rules.matches(["/usr/bin/git", "status"], resolve=False) == []
    assert rules.check(["/bin/rm"]) == {"matchedRules": []}


def test_words_that_are_not_literal_never_match_an_allow_rule() -> None:
    rules = parse_rules(
        'prefix_rule(["git", "log"])\nprefix_rule(["git", "push"], decision="forbidden")'
    )
    [match] = rules.matches(["git", "$X"], [0, VARIABLE])
    assert match.decision == Answer.ASK
    assert match.uncertain
    assert decisions(rules, "git", "log", "$X") == ["allow"]
    assert [m.decision for m in rules.matches(["git", "log", "$X"], [0, 0, VARIABLE])] == [
        Answer.ALLOW
    ]


def test_network_rules_know_hosts() -> None:
    rules = parse_rules(
        """
network_rule("Example.COM.:443", "https", "allow", justification="docs")
network_rule("[::1]:80", "http-connect", "deny")
network_rule("a.io", "http", "allow")
network_rule("a.io", "http", "forbidden")
network_rule("b.io", "socks5_tcp", "prompt")
"""
    )
    assert rules.hosts() == (("example.com",), ("::1", "a.io"))


def test_managed_rules_can_only_tighten() -> None:
    rules = managed_rules(
        [{"pattern": [{"token": "git"}, {"any_of": ["push", "fetch"]}], "decision": "prompt"}]
    )
    assert decisions(rules, "git", "fetch") == ["prompt"]
    for bad in (
        [{"pattern": [{"token": "git"}], "decision": "allow"}],
        [{"pattern": [{"token": "git"}]}],
        [{"pattern": ["git"], "decision": "prompt"}],
        [{"pattern": [], "decision": "prompt"}],
        [3],
        "x",
    ):
        with pytest.raises(ConfigError, match=r"requirements.toml: rules.prefix_rules"):
            managed_rules(bad)


def test_allowed_prefixes_are_listed_shortest_first() -> None:
    rules = parse_rules(
        'prefix_rule(["uv", ["run", "sync"]])\nprefix_rule(["ls"])\nprefix_rule(["x"], "prompt")'
    )
    assert rules.allowed_prefixes() == [("ls",), ("uv", "run"), ("uv", "sync")]
