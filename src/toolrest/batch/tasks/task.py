"""Tasks of a batch: the lines of a file, checked before anything runs."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from toolrest.errors import ConfigError

_OPTIONS = {
    "cd": "--cd",
    "model": "--model",
    "sandbox": "--sandbox",
    "approval": "--ask-for-approval",
    "profile": "--profile",
    "tools": "--tools",
    "output_schema": "--output-schema",
    "max_turns": "--max-turns",
    "max_tool_calls": "--max-tool-calls",
    "max_tokens": "--max-tokens",
    "timeout": "--timeout",
}
"""Fields of a task that are options of `exec`."""
_PATHS = ("cd", "output_schema")
_TEXTS = ("repo", "commit", "image", "check")
_NUMBERS = ("max_cost", "check_timeout")
STORED_ONLY = (*_TEXTS, *_NUMBERS)
"""Fields that need a store: what they bring has a place only there."""
_LIMITS = ("max_turns", "max_tool_calls", "max_tokens", "timeout")
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_REVISION = re.compile(r"[A-Za-z0-9_][\w./@^~+-]{0,200}")


class BatchTask(Struct):
    """One line of the file: what `exec` is asked, where, and what counts as done."""

    id: str
    prompt: str
    folder: str | None
    """The workspace of `cd`; None where it is made of `repo`, or empty."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of `exec` by their field, without `cd` and the limits."""
    limits: dict[str, float] = field(default_factory=dict)
    repo: str | None = None
    commit: str | None = None
    image: str | None = None
    check: str | None = None
    check_timeout: float = 600.0
    max_cost: float | None = None

    @property
    def key(self) -> str:
        """A name for files: the id where it can be one, and part of its hash where it cannot."""
        if _PLAIN.fullmatch(self.id):
            return self.id
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", self.id).lstrip(".")[:80]
        return f"{plain}-{hashlib.sha256(self.id.encode()).hexdigest()[:12]}"

    @property
    def prompt_hash(self) -> str:
        """Part of the prompt's hash: whether a result is for this prompt."""
        return hashlib.sha256(self.prompt.encode()).hexdigest()[:16]

    def hash_with(self, overrides: Sequence[str]) -> str:
        """Part of the hash of all that the task says, and of the settings of a run."""
        said = json.dumps([msgspec.to_builtins(self), *overrides], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def arguments(self) -> list[str]:
        """The options of `exec`, the limits among them, for a task that starts."""
        words = [word for name in self.options for word in (_OPTIONS[name], self.options[name])]
        return words + limit_arguments(self.limits)


def limit_arguments(limits: dict[str, float]) -> list[str]:
    """The options of `exec` for what is left of a task's limits."""
    shown = {
        name: str(int(value) if value == int(value) else value) for name, value in limits.items()
    }
    return [word for name, value in shown.items() for word in (_OPTIONS[name], value)]


def read_tasks(path: str) -> Iterator[BatchTask]:
    """The tasks of a file; ConfigError names the line that is none."""
    seen: set[str] = set()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            task = _task(line, f"{path}, line {number}", str(number))
            if task.key in seen:  # another id may have been made to have the same name for files
                raise ConfigError(f"{path}, line {number}: the id {task.id!r} is there twice")
            seen.add(task.key)
            yield task


def _task(line: str, where: str, number: str) -> BatchTask:
    try:
        values: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("prompt"), str):
        raise ConfigError(f"{where}: a task is an object with a `prompt`")
    unknown = values.keys() - _OPTIONS.keys() - {"id", "prompt", *STORED_ONLY}
    if unknown:
        raise ConfigError(f"{where}: there is no option {sorted(unknown)[0]!r}")
    values = {name: value for name, value in values.items() if value is not None}
    for name, value in values.items():
        if isinstance(value, str) and _SURROGATE.search(value):
            raise ConfigError(f"{where}: `{name}` has half a character (a lone surrogate)")
        if isinstance(value, str) and "\0" in value and name not in ("id", "prompt"):
            raise ConfigError(f"{where}: `{name}` has a NUL character")
    if isinstance(values.get("id"), bool | list | dict):
        raise ConfigError(f"{where}: the `id` must be a text or a number")
    if not str(values.get("id", number)):
        raise ConfigError(f"{where}: the `id` is empty")
    _check_values(values, where)
    options = {
        # Tasks run in a folder of ours.
        name: os.path.abspath(str(values[name])) if name in _PATHS else str(values[name])
        for name in _OPTIONS
        if name in values and name != "cd" and name not in _LIMITS
    }
    return BatchTask(
        str(values.get("id", number)),
        values["prompt"],
        _folder(values),
        options,
        {name: float(values[name]) for name in _LIMITS if name in values},
        _repository(values.get("repo")),
        values.get("commit"),
        values.get("image"),
        values.get("check"),
        values.get("check_timeout", 600.0),
        values.get("max_cost"),
    )


def _folder(values: dict[str, Any]) -> str | None:
    if "cd" not in values and ("repo" in values or "image" in values):
        return None
    return os.path.abspath(str(values.get("cd") or "."))


def _repository(repo: str | None) -> str | None:
    """A repository as any process names it: a path is one of the folder of who reads the tasks."""
    return os.path.abspath(repo) if repo is not None and os.path.exists(repo) else repo


def _number(value: str | float) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _checked(name: str, value: Any, where: str) -> Any:
    """The value of a field, a number where it is one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{where}: `{name}` must be a text or a number")
    if name in _TEXTS and not isinstance(value, str):
        raise ConfigError(f"{where}: `{name}` must be a text")
    if name not in (*_NUMBERS, *_LIMITS):
        return value
    number = _number(value)
    if not 0 < number < math.inf:
        raise ConfigError(f"{where}: `{name}` must be a number above 0")
    return number


def _check_values(values: dict[str, Any], where: str) -> None:
    for name in sorted(values.keys() - {"id", "prompt"}):
        values[name] = _checked(name, values[name], where)
    if "repo" in values and "cd" in values:
        raise ConfigError(f"{where}: give `cd` or `repo`, not both")
    if "commit" in values and "repo" not in values:
        raise ConfigError(f"{where}: `commit` needs a `repo`")
    if "repo" in values and (values["repo"].startswith("-") or not values["repo"]):
        raise ConfigError(f"{where}: `repo` is a URL or a folder")
    if "commit" in values and not _REVISION.fullmatch(values["commit"]):
        raise ConfigError(f"{where}: `commit` is a commit, a branch or a tag")
