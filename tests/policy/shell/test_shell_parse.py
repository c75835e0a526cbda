"""Reading scripts: words, redirections, structure, and what is not understood."""

from __future__ import annotations

import threading

import pytest
from tests.clock import assert_effort

from toolrest.policy.shell.parse import parse
from toolrest.policy.shell.script import BRACE, GLOB, SUBSTITUTION, TILDE, VARIABLE, Script
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass, Judgement


def argvs(script: Script) -> list[tuple[str, ...]]:
    return [simple.argv for simple in script.commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -l", [("ls", "-l")]),
        ("a && b || c; d | e\nf", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        ("echo 'x y' \"z w\" a'b'\"c\"", [("echo", "x y", "z w", "abc")]),
        ("echo a\\ b \\$x \"\\$y \\a\"", [("echo", "a b", "$x", "$y \\a")]),
        ("ls \\\n -l", [("ls", "-l")]),
        ("fi\\\nnd . -del\\\nete", [("find", ".", "-delete")]),
        ("'ls' \"-l\"", [("ls", "-l")]),
        ("ls a \\\n  2>&1 | wc", [("ls", "a"), ("wc",)]),
        ("a && ls a \\\n  2>out", [("a",), ("ls", "a")]),
        ("ls\\\n2>/dev/null", [("ls2",)]),
        ("echo a > out b", [("echo", "a", "b")]),
        ("> out ls -l", [("ls", "-l")]),
        ("a | b > out c", [("a",), ("b", "c")]),
        ("python3 - <<'PY'\nprint(1)\nPY\n", [("python3", "-")]),
        ("(a; b) | { c; }", [("a",), ("b",), ("c",)]),
        ("! a | b", [("a",), ("b",)]),
        ("echo $(a `b`) \"$(c)\" <(d)", [("b",), ("a", "`b`"), ("c",), ("d",),
            ("echo", "$(a `b`)", "$(c)", "<(d)")]),
        ("if a; then b; elif c; then d; else e; fi", [(x,) for x in "abcde"]),
        ("while a; do b; done; until c; do d; done", [(x,) for x in "abcd"]),
        ("for i in 1 $(a); do b $i; done", [("a",), ("b", "$i")]),
        ("case $(a) in x) b;; *) c;; esac", [("a",), ("b",), ("c",)]),
        ("f() { a; }; function g { b; }", [("a",), ("b",)]),
        ("A=$(a) B=1 b", [("a",), ("b",)]),
        ("export A=$(a) B", [("a",), ("export", "A=$(a)", "B")]),
        ("[ -f x ] && [[ $(a) ]]", [("test", "-f", "x"), ("a",), ()]),
        ("cat <<EOF\n$(a)\nEOF", [("a",), ("cat",)]),
        ("echo é “q” 'ü'", [("echo", "é", "“q”", "ü")]),
        ("", []),
        ("  \n\n", []),
    ],
)  # fmt: skip
def test_commands_are_found(text: str, expected: list[tuple[str, ...]]) -> None:
    script = parse(text)
    assert argvs(script) == expected
    assert script.problems == []


@pytest.mark.parametrize(
    ("word", "mark"),
    [
        ("plain", 0),
        ("'$x*~'", 0),
        ("\\*", 0),
        ("HEAD~1", 0),
        ("HEAD^", 0),
        ("stash@{0}", 0),
        ("a=b", 0),
        ("*.py", GLOB),
        ("a?", GLOB),
        ("[ab]", GLOB),
        ("~", TILDE),
        ("~/x", TILDE),
        ("a=~/x", TILDE),
        ("{a,b}", BRACE),
        ("{1..3}", BRACE),
        ("$x", VARIABLE),
        ('"$x"', VARIABLE),
        ("a${x}b", VARIABLE),
        ("$(ls)", SUBSTITUTION),
        ('"`ls`"', SUBSTITUTION),
    ],
)
def test_words_that_the_shell_changes_are_marked(word: str, mark: int) -> None:
    simple = parse(f"cmd {word}").commands[-1]
    kinds = GLOB | TILDE | BRACE | VARIABLE | SUBSTITUTION
    assert simple.mark(1) & kinds == mark
    assert simple.literal == (not mark)


@pytest.mark.parametrize("word", ["=ls", "^a", "$'a'", '$"a"', "a$"])
def test_words_that_some_shell_reads_otherwise_are_not_literal(word: str) -> None:
    assert not parse(f"cmd {word}").commands[-1].literal


@pytest.mark.parametrize(
    "text",
    [
        "ls 'unclosed",
        'ls "unclosed',
        "ls $(unclosed",
        "ls )",
        "ls &&",
        "ls ;; pwd",
        "if true; then ls",
        "! { ls; }",
        "ls 4<>file",
        "id -5>/dev/null",
        "sort 1>&\n2",
        "ls a\\\n#; rm -rf /",
        "ls | wc a\\\n#; rm -rf /",
        "ls && wc a\\\n#; rm -rf /",
        "{ ls; }#",
        "LANG=C\\\nls x",
        "ls 2>/dev/null\\\n''%",
        "ls \\ \n",
        "(ls)\\ ",
        "wc cat\n\\\n|id",
        "ls 2>& /dev/null",
        "ls <& /dev/null",
        "ls\r\npwd",
        "ls \x00",
        "ls \x1b[0m",
        "echo @(a|b)",
        "cat <<A <<B\na\nA\nb\nB",
        "ls \ud800",
    ],
)
def test_what_is_not_understood_is_said(text: str) -> None:
    assert parse(text).problems
    assert judge(text, cwd="/w").kind == CommandClass.UNKNOWN


def test_pipelines_know_whose_output_they_read() -> None:
    commands = parse("x; a | (b | c); d").commands
    assert [c.upstream for c in commands] == [-1, -1, 1, 1, -1]


def test_redirections_are_kept_except_the_quiet_ones() -> None:
    simple = parse("cmd 2>/dev/null >out 2>&1 <in").commands[0]
    assert [(r.kind, r.target) for r in simple.redirects] == [
        ("write", "/dev/null"),
        ("write", "out"),
        ("dup", "1"),
        ("read", "in"),
    ]
    assert parse("cmd >/dev/null 2>&1").commands[0].redirects == ()


def test_a_variable_counts_as_known_only_from_its_one_assignment_on() -> None:
    assert parse("A=x; $A").constants == {"A": "x"}
    for text in ("A=x; A=y; $A", "A=$(id); $A", "(A=x); $A", "A=x; read A; $A", "f && A=x; $A"):
        assert parse(text).constants == {}
    assert judge("A=ls; $A", cwd="/w").kind == CommandClass.RUNS
    assert judge("$A; A=ls", cwd="/w").kind == CommandClass.UNKNOWN


@pytest.mark.parametrize(
    "text",
    ["( " * 90 + "ls" + " )" * 90, "echo " + "$(" * 90 + ")" * 90, "x" * (1 << 20) + "x",
     "a|" * 5_001 + "$x", "$x;" * 100_000, "sudo " * 20 + "ls", "a=(" * 2_001],
)  # fmt: skip
def test_what_is_too_big_is_refused_and_not_guessed(text: str) -> None:
    kinds: list[CommandClass] = []
    assert_effort(lambda: kinds.append(judge(text, cwd="/w").kind), below=350)
    assert kinds == [CommandClass.REFUSED]


@pytest.mark.parametrize(
    "piece",
    ["[[ a ]] ", "((a)) ", "${", "$(", "`", "`a` ", "{", "{ ", "cat <<E\nx\nE\n", "cat <<E;",
     '"${', "a\n\\b", "<(", "case x in a) ", "$x|", "x=$x;", "rm $a; ", "for x in $y; do z; done; ",
     "ls;", "a=1;b=2;x=$x$a$b;rm $a $b; ", "eval '$x'; ", "bash -c 'x=$x; y'; "],
)  # fmt: skip
def test_what_takes_too_much_work_to_read_is_asked_about(piece: str) -> None:
    """On the tree before this some took minutes for 250 kB; now 200 ms are 20 million steps."""
    text = piece * (250_000 // len(piece))
    judge("ls $x", cwd="/w")
    kinds: list[CommandClass] = []
    assert_effort(lambda: kinds.append(judge(text, cwd="/w").kind), below=40)
    assert kinds[0] >= CommandClass.UNKNOWN


def test_the_budget_holds_for_all_scripts_of_a_command_line_together() -> None:
    """On the tree before this each nested script had as much time as the first."""
    scripts = [f"eval '$x{number} [[ a ]]'" for number in range(2_000)]
    assert judge(scripts[0], cwd="/w").segments[0].rule != "unknown.budget"
    rules = {segment.rule for segment in judge("; ".join(scripts), cwd="/w").segments}
    assert "unknown.budget" in rules


def test_scripts_nested_too_deep_are_refused() -> None:
    script = "rm -rf /"
    for _ in range(9):
        script = "eval " + "'" + script.replace("'", "'\\''") + "'"
    assert judge(script, cwd="/w").kind == CommandClass.REFUSED


@pytest.mark.parametrize("joint", ["; ", " && ", " || ", " | ", "\n", " 2>/dev/null; ", " 'x y'; "])
def test_ten_thousand_segments_take_less_than_200_ms(joint: str) -> None:
    """On a machine that takes 10 ms for a million empty steps; on others, as much longer."""
    script = joint.join(f"echo {n} a" for n in range(10_000)) + joint + "rm -rf /"
    judge("ls $x", cwd="/w")
    found: list[Judgement] = []
    assert_effort(lambda: found.append(judge(script, cwd="/w", home="/h")), below=20)
    assert found[0].kind == CommandClass.DANGEROUS
    assert len(found[0].segments) == 10_001


def test_threads_do_not_disturb_each_other() -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(100):
            got = argvs(parse(f"cat <<E$x\nE\necho $({number}) | wc -l"))
            if (str(number),) not in got:
                wrong.append(str(got))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
