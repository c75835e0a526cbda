"""What must hold for any command line: no surprise, no lower verdict, no second opinion."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.policy.effects import Risk
from toolrest.policy.rules.rules import Rules
from toolrest.policy.shell.budget import ParseBudget
from toolrest.policy.shell.parse import parse, parse_simple, parse_tree
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.outcome import Setting, outcome
from toolrest.policy.verdict.verdict import CommandClass, Judgement

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
MANY = settings(
    max_examples=5_000 if FULL else 500,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)

TABLE = Path(__file__).parents[2] / "data" / "commands.jsonl"
COMMANDS: list[str] = [json.loads(line)["command"] for line in TABLE.read_text().splitlines()]
SETTINGS = [
    Setting(mode, sandbox)
    for mode in ("untrusted", "on-failure", "on-request", "never", "auto", "strict")
    for sandbox in ("read-only", "workspace-write", "danger-full-access", "external-sandbox")
]
ORDER = {"allow": 0, "ask": 1, "deny": 2}

PIECES = """
ls cat rm -rf / ~ $x ${x} $(id) `id` 'a b' "$y" > >> < << <<< 2>&1 >/dev/null
| || & && ; ;; ( ) { } ! if then fi for in do done while case esac [[ ]] [ ] (( ))
sudo env timeout 5 xargs find -exec {} + bash -c eval git push -f curl sh A=1 cd ..
EOF \\ # \t '' " ' $ * ? ~root {a,b} <( >( function f() time trap ssh h : kill -1
""".replace("\n", " \n ").split(" ")
any_text = st.text(max_size=80)
any_script = st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join)
JOINTS = ["{0}; {1}", "{0} && {1}", "{0} || {1}", "{0} | {1}", "{0}\n{1}", "{0} & {1}"]
FRAMES = [
    "{0}; ( {1} )",
    "{0} && {{ {1}\n}}",
    "{0}; echo $( {1} )",
    '{0}\necho "$( {1} )"',
    "{0}; if {1}\nthen ls; fi",
    "( {0} ); {1}",
    "( {0}\n{1} )",
    "echo $( {0} ); {1}",
]


def verdict_of(command: str) -> Judgement:
    return judge(command, cwd="/home/u/proj", home="/home/u")


def is_broken(verdict: Judgement) -> bool:
    return any(
        s.rule in ("unknown.syntax", "unknown.skipped", "unknown.word") for s in verdict.segments
    )


def holds_document(command: str) -> bool:
    return "<<" in command


# Complete by themselves, so that something can follow them on the same line.
WHOLE = [c for c in COMMANDS if not is_broken(verdict_of(c)) and "#" not in c and c[-1] not in "&;"]


@pytest.mark.slow
@MANY
@given(any_text | any_script)
def test_nothing_makes_it_raise(text: str) -> None:
    verdict = verdict_of(text)
    assert "unknown.internal" not in {segment.rule for segment in verdict.segments}
    verdict.effects()
    judge(text.split(" "), cwd="/w", home="").effects()
    for setting in SETTINGS:
        outcome(verdict, Rules(), setting)


@pytest.mark.slow
@MANY
@given(st.sampled_from(WHOLE), st.sampled_from(WHOLE), st.sampled_from([*JOINTS, *FRAMES]))
def test_appending_never_lowers_the_verdict(base: str, more: str, joint: str) -> None:
    if holds_document(base) and "{0}\n" not in joint:
        joint = "{0}\n{1}"
    before, after = verdict_of(base), verdict_of(joint.format(base, more))
    assert after.kind >= before.kind
    assert after.effects().risk >= before.effects().risk
    for setting in SETTINGS:
        was, now = (outcome(v, Rules(), setting).answer for v in (before, after))
        assert ORDER[now] >= ORDER[was], (setting, was, now)


@pytest.mark.slow
@MANY
@given(st.sampled_from(WHOLE), any_text | any_script | st.sampled_from(COMMANDS))
def test_appending_a_line_of_anything_never_lowers_an_answer(base: str, more: str) -> None:
    before, after = verdict_of(base), verdict_of(f"{base}\n{more}")
    for setting in SETTINGS:
        was, now = (outcome(v, Rules(), setting).answer for v in (before, after))
        assert ORDER[now] >= ORDER[was], (setting, was, now)


STARTS = [
    "\\",
    "\\\n",
    "\\\n\\",
    "''",
    '""',
    "$E",
    "\n\\",
    "\t",
    "<f ",
    "2>&1 ",
    "Y=1 ",
    "! ",
    "# \\\n\\",
]


@MANY
@given(
    st.sampled_from([c for c in WHOLE if not holds_document(c)]),
    st.sampled_from(STARTS),
    st.sampled_from([c for c in WHOLE if c[0].isalpha()]),
)
def test_a_line_reads_the_same_wherever_it_begins(base: str, start: str, more: str) -> None:
    close, apart = (verdict_of(f"{base}\n{blank}{start}{more}") for blank in ("", " "))
    assert [s.argv for s in close.segments] == [s.argv for s in apart.segments]
    assert close.kind == apart.kind


@pytest.mark.parametrize(
    "script",
    [
        "echo hi\n\\rm -rf ~",
        "echo hi \n\\rm -rf ~",
        "echo hi\n\n\\rm -rf ~",
        "echo hi\n\\\nrm -rf ~",
        "echo a # b\\\n\\rm -rf ~",
        "echo 'a\n\\b'\n\\rm -rf ~",
        'echo "$(ls\n\\rm -rf ~)"',
        "cat <<E\n\\x\nE\n\\rm -rf ~",
        "X=1\n\\rm -rf ~",
        "if true; then echo a\n\\rm -rf ~\nfi",
    ],
)
def test_a_backslash_at_the_beginning_of_a_line_hides_nothing(script: str) -> None:
    assert ("rm", "-rf", "~") in [s.argv for s in verdict_of(script).segments]
    assert verdict_of(script).kind == CommandClass.DANGEROUS


@pytest.mark.parametrize(
    "command",
    [
        "time X=1 rm -rf ~",
        "time ! rm -rf ~",
        "time -p -- ! X=1 rm -rf ~",
        "coproc X=1 rm -rf ~",
        "env -- X=1 rm -rf ~",
        "sudo -- X=1 rm -rf ~",
        "timeout -- 5 rm -rf ~",
    ],
)
def test_a_wrapper_hides_no_danger(command: str) -> None:
    assert verdict_of(command).kind == CommandClass.DANGEROUS


@pytest.mark.parametrize("script", ["echo 'a\n\\b'", 'echo "a\n\\b"', "cat <<E\nx\n\\b\nE"])
def test_a_quoted_line_with_a_backslash_stays_a_text(script: str) -> None:
    assert len([s for s in verdict_of(script).segments if s.argv]) == 1
    assert " \\b" not in str(verdict_of(script).segments)


def test_many_lines_with_a_backslash_are_read_or_asked_about_but_soon() -> None:
    document = "cat > x.tex <<'E'\n" + "\\section{a}\n" * 5_000 + "E"
    assert verdict_of(document).kind < CommandClass.UNKNOWN
    assert verdict_of("ls\n" + "\\ls\n" * 5_000).kind == CommandClass.UNKNOWN


@MANY
@given(
    st.sampled_from([c for c in WHOLE if not holds_document(c)]), st.sampled_from(["$E", "$(ls)"])
)
def test_an_expansion_that_may_be_empty_hides_no_danger(base: str, expansion: str) -> None:
    before = verdict_of(base)
    if before.kind == CommandClass.DANGEROUS and base[-1] not in ")}'\"":
        assert verdict_of(f"{base} {expansion}").kind >= CommandClass.DANGEROUS


@pytest.mark.slow
@MANY
@given(any_script | st.sampled_from(COMMANDS))
def test_both_readers_agree(text: str) -> None:
    simple = parse_simple(text)
    if simple is None:
        return
    tree = parse_tree(text, ParseBudget())
    if not tree.problems:
        assert [(c.argv, c.op, c.marks) for c in tree.commands] == [
            (c.argv, c.op, c.marks) for c in simple.commands
        ]


@MANY
@given(any_text | any_script)
def test_safe_means_literal_and_reading_only(text: str) -> None:
    verdict = verdict_of(text)
    if verdict.kind == CommandClass.SAFE:
        assert verdict.effects().risk == Risk.READ
        assert not verdict.writes
        assert not verdict.connects
        assert not verdict.effects().runs_alone
        assert all(segment.literal for segment in verdict.segments)
        assert not parse(text).problems
    else:
        assert verdict.effects().runs_alone
