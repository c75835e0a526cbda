"""Grant keys of commands: which keys a command line needs, and whether grants cover it.

A grant covers a prefix only where further words cannot turn the command into something else;
everywhere else it covers exactly these words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from toolrest.answer import Answer
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.paths.names import inside
from toolrest.policy.rules.amendment import is_banned
from toolrest.policy.shell.words import wordset
from toolrest.policy.verdict.outcome import Granted, Outcome
from toolrest.policy.verdict.verdict import CommandClass, Segment

_BY_ITSELF = wordset(
    "pytest ruff mypy pyright pylint flake8 black isort bandit tox nox tsc eslint prettier"
    " jest vitest mocha rspec phpunit ctest shellcheck clang-format clang-tidy golangci-lint"
)
"""Programs that check, test or format: whatever follows are their files and options."""

_PYTHON = dict.fromkeys(("python", "python3"), "-m")
_RUNNERS = _PYTHON | {
    "uv": "run",
    "poetry": "run",
    "pdm": "run",
    "hatch": "run",
    "pipenv": "run",
    "bundle": "exec",
    "npm": "run",
    "pnpm": "run",
    "yarn": "run",
    "bun": "run",
}
"""Programs that run the one named after this word."""

_VERBS = {
    "cargo": wordset("test build check clippy fmt doc bench nextest"),
    "go": wordset("test build vet fmt list"),
    "git": wordset("add commit switch tag mv"),
    "npm": wordset("test ci"),
    "pnpm": wordset("test"),
    "yarn": wordset("test"),
    "bun": wordset("test"),
    "uv": wordset("sync lock"),
    "poetry": wordset("check lock"),
    "dotnet": wordset("test build"),
    "mvn": wordset("test compile verify"),
    "gradle": wordset("test build check"),
    "swift": wordset("test build"),
    "mix": wordset("test compile"),
    "npx": _BY_ITSELF,
    "uvx": _BY_ITSELF,
}
"""Programs with verbs, and the verbs whose options and operands stay within them."""


def grant_words(argv: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The words of a command that a grant keeps, and whether nothing may follow them."""
    whole = tuple(argv)
    prefix = _prefix(whole)
    if prefix is None or is_banned(prefix):
        return whole, True
    return prefix, False


def _prefix(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    program = argv[0]
    if program in _BY_ITSELF:
        return argv[:1]
    second = argv[1] if len(argv) > 1 else ""
    if second and _RUNNERS.get(program) == second:
        third = argv[2] if len(argv) > 2 else ""
        # A module of Python, like a program, may be one that runs anything at all.
        known = third in _BY_ITSELF if program in _PYTHON else _is_own(third)
        return argv[:3] if known else None
    return argv[:2] if second in _VERBS.get(program, ()) else None


def _is_own(word: str) -> bool:
    return bool(word) and word[0].isalnum() and not is_banned((word,))


_OPEN = "\0"
"""Stands for words that only the shell knows: no stored word is like it."""


def _unresolved(segment: Segment) -> str:
    return ""


class RunsHow(NamedTuple):
    """How a command line is run, as far as its keys depend on it.

    `resolve` gives the path of the file that a command executes, empty where there is none to
    name; `shell` is what runs the line, empty for an argument vector.
    """

    outside: bool
    resolve: Callable[[Segment], str] = _unresolved
    shell: str = ""


def command_need(segment: Segment, how: RunsHow) -> GrantKey:
    """The key that one command needs, its words as far as they are literal."""
    words = segment.argv
    if segment.marks:
        first = next(place for place, mark in enumerate(segment.marks) if mark)
        words = (*words[:first], _OPEN)
    file = how.resolve(segment)
    return GrantKey("run", words, "", True, how.outside, file, how.shell)


def granted_by(covers: Callable[[GrantKey, Sequence[str]], bool], how: RunsHow) -> Granted:
    """For `outcome`: whether a grant covers a command where it runs."""

    def granted(segment: Segment) -> bool:
        return covers(command_need(segment, how), segment.cwds)

    return granted


def command_keys(found: Outcome, how: RunsHow, *, workspace: str) -> tuple[GrantKey, ...]:
    """The keys that would let this command line through next time; none if nothing would.

    What a command runs in turn belongs to it inside the sandbox, and has a key of its own outside.
    A key counts in the workspace, or in the folder elsewhere that the command runs in.
    """
    keys: dict[GrantKey, None] = {}
    depth = -1
    for decided in found.decided:
        segment = decided.segment
        inner = depth >= 0 and segment.depth > depth and segment.kind <= CommandClass.RUNS
        if inner and not how.outside:
            continue
        depth = -1
        if decided.decision == Answer.ALLOW:
            continue
        key = _key(segment, workspace, how)
        if decided.by_rule or key is None:
            return ()
        keys[key] = None
        depth = segment.depth
    return tuple(keys)


def _key(segment: Segment, workspace: str, how: RunsHow) -> GrantKey | None:
    root = _root(segment.cwds, workspace)
    if root is None or not segment.argv or segment.kind > CommandClass.RUNS or segment.assigns:
        return None
    words, exact = grant_words(segment.argv)
    if any(segment.marks[: len(words)]) or (exact and not segment.literal):
        return None
    return GrantKey("run", words, root, exact, how.outside, how.resolve(segment), how.shell)


def _root(cwds: Sequence[str], workspace: str) -> str | None:
    if cwds and all(inside(cwd, workspace) for cwd in cwds):
        return workspace
    return cwds[0] if len(cwds) == 1 else None
