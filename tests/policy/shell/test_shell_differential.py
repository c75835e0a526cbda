"""What bash really starts is what we saw: random lines that we would run unasked, run by bash.

The only programs on the PATH are shims that write down how they were called. A line that would
not be allowed unasked is never run.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass, Judgement, Segment

pytestmark = pytest.mark.slow

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
LINES = 6_000 if FULL else 700
BASH = next((p for p in ("/bin/bash", "/usr/bin/bash") if os.access(p, os.X_OK)), "")


def words(text: str) -> list[str]:
    return text.split()


PROGRAMS = words(
    "cat ls grep head tail wc sort uniq cut tr nl tac rev stat basename dirname find rg date sed"
    " git du diff file realpath sha256sum seq id uname whoami which tree fd jq paste comm od"
)
OTHERS = words("rm make python3 curl awk tee cp touch npm env timeout nice xargs stdbuf sh bash")
BUILTINS = frozenset(words("echo printf true false : pwd cd test [ [[ type wait exit dirs jobs"))
SHELL_WRAPPERS = frozenset(("time", "command", "builtin"))
SURE = frozenset(("echo", "true", ":", "pwd"))

SHIM = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" > "$SHIM_LOG/$$"
exit 0
"""


@dataclass(frozen=True)
class Bench:
    """A folder of shims, a folder to stand in, and a folder for their notes."""

    shims: Path
    cwd: Path
    log: Path

    def run(self, line: str) -> list[tuple[str, ...]]:
        """What bash starts for this line."""
        for note in self.log.iterdir():
            note.unlink()
        subprocess.run(
            [BASH, "--norc", "--noprofile", "-c", line],
            cwd=self.cwd,
            env={"PATH": str(self.shims), "SHIM_LOG": str(self.log), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
            preexec_fn=_limit,
        )
        notes = [note.read_bytes().split(b"\0")[:-1] for note in self.log.iterdir()]
        return [tuple(os.fsdecode(word) for word in note) for note in notes]


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "shims", tmp_path / "cwd", tmp_path / "log")
    for folder in (made.shims, made.cwd, made.log):
        folder.mkdir()
    for name in {*PROGRAMS, *OTHERS, "[", "x", "a", "b"}:
        shim = made.shims / name
        shim.write_text(SHIM)
        shim.chmod(0o755)
    for name in ("a", "b.py", "c d", "-delete", "--pre=sh", "e{x,y}", "src"):
        (made.cwd / name).touch()
    return made


def seen(verdict: Judgement) -> list[Segment]:
    """The programs that we say the shell itself starts."""
    found: list[Segment] = []
    inside = -1
    for segment in verdict.segments:
        if inside >= 0 and segment.depth > inside:
            continue
        inside = -1
        if not segment.argv or segment.program in SHELL_WRAPPERS:
            continue
        if segment.transparent or segment.program in ("xargs", "env"):
            inside = segment.depth
        if segment.program not in BUILTINS:
            found.append(segment)
    return found


PLAIN = words(
    "a b.py src x -n -l -la -5 -c -r -i -h --stat --oneline 1,5p +%F -name '*.py' \"a\" 'c' a'b'c"
    " \"a\"b HEAD~1 HEAD^ @{u} {} a#b a=b %1 '' -- - . .. / status log diff show branch a:b 10 002"
)
ODD = [
    *words(
        '*.py \\a #c ~ ~/x $x ${x} "$x" $(ls) `ls` {a,b} {1..2} =ls ^a -exec -delete --pre=sh -o'
        " 'a\\b' \"$\" a$ \\$x '$x' \"`\" !x a!b [a] [!a]* ? \\* a,b $'a' $\"a\" x=~ a:~ {a {a}b,c}"
        ' \'"\' "\'" é “q” a\\#b \\~ \\{a,b} "*" "~" -- --output=x a\\\\b'
    ),
    "a\\ b",
    '"a b"',
    "'c d'",
    "\\\nx",
    "a\\\nb",
    '"a\nb"',
    "'a\nb'",
    '"a\\\nb"',
    '"a\\"b"',
    '"a\\\\b"',
    '"\\$x"',
    '"\\a"',
    "a\u00a0b",
    "a\u2003b",
    "'\u2003'",
]
JOINTS = [
    "; ",
    ";",
    " ; ",
    " && ",
    "&&",
    " || ",
    "||",
    " | ",
    "|",
    "\n",
    " \n ",
    "\n\n",
    "\n\\",
    "\n\\\n",
    " & ",
    " |& ",
]
TAILS = [
    " 2>/dev/null", " >/dev/null", " 2>&1", " >/dev/null 2>&1", " </dev/null", " < a", " <a", " >x",
    " 2>x", " >&2", " &>/dev/null", " # note", " #", " \\\n", " 2> /dev/null", ">/dev/null",
    " <<< a", " <<E\na\nE", " ;", " ; ", " ;;", " &", " 1>&2", " >&-", " <&-", " 2>&1 -n",
]  # fmt: skip
NASTY = "'\"\\$`!{}()[]*?~#^=;&|<>\n\t ,-+.:/@%\r\x0b\u00a0\u2003a1"


class Lines:
    """Random command lines: mostly well-formed, some with a character changed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __iter__(self) -> Iterator[str]:
        while True:
            line = self._line(2)
            if self._random.random() < 0.35:
                line = self._spoiled(line)
            yield line

    def _line(self, depth: int) -> str:
        roll = self._random
        parts = [self._command(depth)]
        while roll.random() < 0.45:
            parts += [roll.choice(JOINTS), self._command(depth)]
        return "".join(parts)

    def _command(self, depth: int) -> str:
        roll = self._random
        if depth and roll.random() < 0.08:
            inner = self._line(depth - 1)
            frame = roll.choice(["({})", "( {} )", "{{ {}; }}", "! {}", "{{ {} ; }}", "time {}"])
            return frame.format(inner)
        names = PROGRAMS if roll.random() < 0.9 else [*OTHERS, *sorted(BUILTINS), *SHELL_WRAPPERS]
        words = [roll.choice(names)]
        if roll.random() < 0.05:
            words[0] = (
                roll.choice(["\\", "'", '"', "L=1 ", "LANG=C ", "command ", "env "]) + words[0]
            )
        words += [self._word() for _ in range(roll.randrange(4))]
        line = roll.choice([" ", " ", " ", "  ", "\t"]).join(words)
        return line + (roll.choice(TAILS) if roll.random() < 0.2 else "")

    def _word(self) -> str:
        roll = self._random
        return roll.choice(PLAIN if roll.random() < 0.85 else ODD)

    def _spoiled(self, line: str) -> str:
        roll = self._random
        for _ in range(roll.randrange(1, 3)):
            at = roll.randrange(len(line) + 1)
            line = line[:at] + roll.choice(NASTY) + line[at + roll.randrange(2) :]
        return line


SCRAPS = [
    *words("ls wc id cat a b x -l 1 2 # ' \" $ ( ) { } | & ; < > ! = ~ * ? [ ] , ^ % ` 2> && ||"),
    *words("e é - -- '' \"\" << EOF <<< @ + : . >/dev/null 2>&1 >&2 LANG=C #x \\ /dev/null"),
    *(["\\\n", "\\\n ", "\\\n#", "\n", "\t", "\\ ", " >/dev/null", "; ", "time "] * 2),
    *([" "] * 6),
]
HEADS = ["ls ", "wc ", "id ", "cat ", "ls|", "ls;", "(ls", "{ ls;", "LANG=C ls ", "ls 2>&1 "]


def scraps(seed: int) -> Iterator[str]:
    """A harmless beginning and then anything at all, character by character."""
    roll = random.Random(seed)
    while True:
        yield roll.choice(HEADS) + "".join(roll.choice(SCRAPS) for _ in range(roll.randrange(1, 8)))


def lines(seed: int) -> Iterator[str]:
    """Three whole lines, then one of scraps, and so on."""
    whole, odd = iter(Lines(seed)), scraps(seed)
    while True:
        yield next(whole)
        yield next(whole)
        yield next(whole)
        yield next(odd)


def surely_all(line: str, verdict: Judgement) -> bool:
    """True when nothing in the line can keep a later command from running.

    A file that is not there, or a builtin that fails, can.
    """
    if "||" in line or "!" in line or "&-" in line:
        return False
    return all(
        not s.reads and (s.program not in BUILTINS | SHELL_WRAPPERS or s.program in SURE)
        for s in verdict.segments
    )


def check(line: str, verdict: Judgement, started: list[tuple[str, ...]]) -> None:
    said = Counter(segment.argv for segment in seen(verdict))
    did = Counter(started)
    assert did <= said, f"{line!r} started {did - said}, we saw {said}"
    if surely_all(line, verdict):
        assert did == said, f"{line!r} did not start {said - did}"


@pytest.mark.timeout(600)
@pytest.mark.skipif(not BASH, reason="needs bash in /bin or /usr/bin")
def test_bash_starts_exactly_what_we_saw(bench: Bench) -> None:
    seed = 20261105
    allowed = 0
    for _, line in zip(range(LINES), lines(seed), strict=False):
        verdict = judge(line, cwd=str(bench.cwd), home="/home/u")
        if verdict.kind == CommandClass.SAFE:
            allowed += 1
            check(line, verdict, bench.run(line))
    assert allowed >= LINES * 0.3, f"only {allowed} of {LINES} lines were allowed"


@pytest.mark.timeout(600)
@pytest.mark.skipif(not BASH, reason="needs bash in /bin or /usr/bin")
def test_bash_starts_nothing_whose_name_we_did_not_see(bench: Bench) -> None:
    """Also of what is not proven harmless: the dangerous list can only know what was seen.

    Lines that write somewhere are left out, and those whose programs may start later.
    """
    ran = 0
    for _, line in zip(range(LINES), lines(20261115), strict=False):
        verdict = judge(line, cwd=str(bench.cwd), home="/home/u")
        if verdict.kind not in (CommandClass.TOUCHES, CommandClass.RUNS) or set("<>&") & set(line):
            continue
        ran += 1
        names = {segment.argv[0].rpartition("/")[2] for segment in verdict.segments if segment.argv}
        started = bench.run(line)
        assert {words[0] for words in started if words} <= names, f"{line!r} started {started}"
    assert ran >= LINES * 0.1, f"only {ran} of {LINES} lines were run"
