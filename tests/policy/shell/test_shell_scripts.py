"""What bash starts is among what we saw, for whole scripts: compounds, documents, quoting, spoilt.

The only programs on the PATH are shims that write down how they were called. Nothing is run that
we do not claim to understand.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass, Judgement

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
SCRIPTS = {"/bin/bash": (15_000, 400), "/bin/dash": (5_000, 130)}
HOME = "/home/u"

NAMES = ["ls", "cat", "wc", "id", "make", "touch", "grep", "x", "y"]
WRAPPERS = ["env", "nice", "timeout", "nohup", "stdbuf", "xargs", "find", "sh", "bash"]
SHIM = """#!/bin/sh
printf '%s\\0' "${0##*/}" "$@" > "$SHIM_LOG/$$"
"""


@dataclass(frozen=True)
class Bench:
    """A folder of shims, a folder to stand in, and a folder for their notes."""

    shims: Path
    cwd: Path
    log: Path

    def run(self, shell: str, script: str) -> list[tuple[str, ...]]:
        """What the shell starts for this script, also later in the background."""
        for left in (*self.log.iterdir(), *self.cwd.iterdir()):
            # A file called `-rf` would come out of the next script's globs.
            if left.name not in ("a", "b"):
                left.unlink()
        own, lent = os.pipe()
        process = subprocess.Popen(
            [shell, *(["--norc"] if "bash" in shell else []), "-c", script],
            cwd=self.cwd,
            env={
                "PATH": str(self.shims),
                "SHIM_LOG": str(self.log),
                "LC_ALL": "C.UTF-8",
                "HOME": HOME,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_limit,
            start_new_session=True,
            pass_fds=(lent,),
        )
        os.close(lent)
        _ended(own)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(own)
        notes = [note.read_bytes().split(b"\0")[:-1] for note in self.log.iterdir()]
        return [tuple(os.fsdecode(word) for word in note) for note in notes if note]


def _ended(pipe: int) -> None:
    select.select([pipe], [], [], 3)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def build(base: Path) -> Bench:
    made = Bench(base / "shims", base / "cwd", base / "log")
    for folder in (made.shims, made.cwd, made.log):
        folder.mkdir(parents=True)
    for name in [*NAMES, "rm"]:
        (made.shims / name).write_text(SHIM)
    for name in WRAPPERS:
        real = "/bin/bash" if name in ("sh", "bash") else f"/usr/bin/{name}"
        (made.shims / name).write_text(f'{SHIM}exec {real} "$@"\n')
    for shim in made.shims.iterdir():
        shim.chmod(0o755)
    for name in ("a", "b"):
        (made.cwd / name).touch()
    return made


PIECES: dict[str, list[str]] = json.loads(
    (Path(__file__).parents[2] / "data" / "shell_pieces.json").read_text()
)
"""What scripts are put together from; `@` in a frame is a command, `%` a word."""
OPENINGS = ["cat <<", "cat << ", "cat a 3<<", "<<", "cat -n <<", "x <<", "x -a<<", "rm -rf<<"]
AFTER = [
    *[" | @", "; @", " && @", " >f", " # c", " a", " ~", "|@", "&", " || @", " <<<a", " \\\n", ")"],
    *[" /", " 2>&1 | @ >f", "&& @ # c", " a#b", " $(@)", " '\n'", " <<F"],
]
NASTY = "'\"\\$`!{}()[]*?~#^=;&|<>\n\t ,-+:@%\u00a0aE1"


class Scripts:
    """Random scripts: compounds and documents around simple commands, some of them spoilt."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __iter__(self) -> Iterator[str]:
        roll = self._random
        while True:
            script = self._script(2)
            if roll.random() < 0.35:
                script = self._spoilt(script)
            if len(script) < 400:
                yield script

    def _script(self, depth: int) -> str:
        roll = self._random
        parts = [self._part(depth)]
        while roll.random() < 0.3:
            parts += [roll.choice(PIECES["joints"]), self._part(depth)]
        return "".join(parts)

    def _part(self, depth: int) -> str:
        roll = self._random
        shape = roll.random()
        if not depth or shape < 0.35:
            return self._simple()
        if shape < 0.47:
            return self._document(depth)
        return self._fill(roll.choice(PIECES["frames"]), depth - 1)

    def _fill(self, frame: str, depth: int) -> str:
        roll = self._random
        made = ""
        for piece in frame:
            if piece == "@":
                made += self._simple() if roll.random() < 0.6 else self._script(depth)
            else:
                made += roll.choice(PIECES["words"]) if piece == "%" else piece
        return made

    def _simple(self) -> str:
        roll = self._random
        if roll.random() < 0.12:
            return roll.choice(PIECES["dangers"])
        words = [roll.choice(NAMES)]
        if roll.random() < 0.1:
            words[0] = roll.choice(["\\", "X=1 ", "command ", "X= ", "! ", "''", "2>f "]) + words[0]
        words += [
            roll.choice(PIECES["words"]) if roll.random() < 0.4 else "a"
            for _ in range(roll.randrange(3))
        ]
        if roll.random() < 0.12:
            words.insert(roll.randrange(len(words) + 1), roll.choice(PIECES["redirects"]))
        return roll.choice([" ", " ", " ", " ", "  ", "\t", " \\\n"]).join(words)

    def _document(self, depth: int) -> str:
        roll = self._random
        delimiter = roll.choice(PIECES["delimiters"] if roll.random() < 0.5 else ["E", "'E'"])
        end = delimiter.replace("\\", "").replace("'", "").replace('"', "")
        dash = "-" if roll.random() < 0.25 else ""
        lines = [roll.choice(PIECES["lines"]) for _ in range(roll.randrange(4))]
        body = "".join(self._fill(line, 0) + "\n" for line in lines)
        opening = roll.choice(OPENINGS)
        after = roll.choice(AFTER) if roll.random() < 0.5 else ""
        tabs = roll.choice(["", "\t"]) if dash else ""
        return (
            f"{opening}{dash}{delimiter}{self._fill(after, depth - 1)}\n{body}{tabs}{end}"
            + roll.choice(["", "\n"])
        )

    def _spoilt(self, script: str) -> str:
        roll = self._random
        for _ in range(roll.randrange(1, 3)):
            at = roll.randrange(len(script) + 1)
            script = script[:at] + roll.choice(NASTY) + script[at + roll.randrange(2) :]
        return script


def names_of(verdict: Judgement) -> set[str]:
    """The programs that we saw; what xargs starts may stand among its words alone."""
    segments = [segment for segment in verdict.segments if segment.argv]
    names = {segment.argv[0].rpartition("/")[2] for segment in segments}
    return names.union(*(segment.argv for segment in segments if segment.program == "xargs"))


def otherwise(verdict: Judgement, started: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """What was started with other words than those that we saw, where these are literal."""
    open_ended = {s.program for s in verdict.segments if s.marks}
    if any(s.program == "xargs" for s in verdict.segments):
        return []
    seen = {(s.program, *s.argv[1:]) for s in verdict.segments if s.argv}
    return [words for words in started if words[0] not in open_ended and words not in seen]


def destroys(words: tuple[str, ...]) -> bool:
    return words[:2] in (("rm", "-rf"), ("rm", "-r")) and not {HOME, f"{HOME}/", "/"}.isdisjoint(
        words
    )


def runs_a_shim(verdict: Judgement) -> bool:
    """True for `bash wc`: what stands in a file is not for us to see, and the shims are scripts."""
    return any(
        segment.program in ("sh", "bash", ".", "source", "eval", "xargs", "find")
        and not {*NAMES, *WRAPPERS, "rm"}.isdisjoint(segment.argv[1:])
        and not {"sh", "bash", ".", "source"}.isdisjoint(segment.argv)
        for segment in verdict.segments
    )


def wrong(bench: Bench, shell: str, script: str, verdict: Judgement) -> str:
    """What the shell did that we had not seen coming, or nothing."""
    if runs_a_shim(verdict):
        return ""
    started = bench.run(shell, script)
    names = names_of(verdict)
    unseen = [words for words in started if words[0] not in names or destroys(words)]
    changed = otherwise(verdict, started)
    return f"{script!r} started {unseen or changed}" if unseen or changed else ""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_starts_only_what_we_saw(shell: str, tmp_path: Path) -> None:
    if not os.access(shell, os.X_OK):
        pytest.skip(f"needs {shell}")
    bench = build(tmp_path)
    most = SCRIPTS[shell][0 if FULL else 1]
    ran, found = 0, []
    for _, script in zip(range(most), Scripts(20261115), strict=False):
        verdict = judge(script, cwd=str(bench.cwd), home=HOME)
        # dash knows no arithmetic commands; what it takes `((x))` for is what it runs.
        if verdict.kind < CommandClass.UNKNOWN and not ("dash" in shell and "((" in script):
            ran += 1
            found.append(wrong(bench, shell, script, verdict))
    assert [text for text in found if text] == []
    assert ran >= most * 0.3, f"only {ran} of {most} scripts were run"
