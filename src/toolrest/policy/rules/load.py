"""Reads rules files: Starlark in which `prefix_rule`, `network_rule`, `host_executable` are known.

Every value is checked, and so is every example that a rule carries; an error names the file,
the line and what was wrong. Nothing is half loaded.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import starlark

from toolrest.answer import Answer
from toolrest.errors import ConfigError
from toolrest.policy.rules.rules import SPELLINGS, NetworkRule, PrefixRule, Rules

if TYPE_CHECKING:
    from starlark import Module

SECONDS = 2.0

_PRELUDE = """
def prefix_rule(
    pattern, decision="allow", match=[], not_match=[], justification=None, outside=False
):
    _list("pattern", pattern)
    _list("match", match)
    _list("not_match", not_match)
    _prefix_rule(pattern, decision, match, not_match, justification, outside)

def network_rule(host, protocol, decision, justification=None):
    _network_rule(host, protocol, decision, justification)

def host_executable(name, paths):
    _list("paths", paths)
    _host_executable(name, paths)

def _list(name, value):
    if type(value) != "list":
        fail(name + " must be a list, not " + type(value))
    for item in value:
        if type(item) not in ("string", "list"):
            fail(name + " must hold strings or lists of strings, not " + type(item))
"""
_PRELUDE_NAME = "<toolrest>"
_PROTOCOLS = {
    "http": "http",
    "https": "https",
    "https_connect": "https",
    "http-connect": "https",
    "socks5_tcp": "socks5_tcp",
    "socks5_udp": "socks5_udp",
}
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|[0-9a-f:.]+")


def parse_rules(text: str, name: str = "rules") -> Rules:
    """The rules of one file's text; raises ConfigError with the line at fault."""
    loader = _Loader(name)
    loader.evaluate(text)
    failed = loader.failed_example()
    if failed is not None:
        # Run again up to the rule at fault: only then is its line known.
        loader = _Loader(name, stop_at=failed)
        loader.evaluate(text)
    return loader.rules


def managed_rules(items: object, source: str = "requirements.toml") -> Rules:
    """The `[rules] prefix_rules` list of a managed file; it can only tighten."""
    rules = Rules()
    if not isinstance(items, list):
        raise ConfigError(f"{source}: rules.prefix_rules must be a list of tables")
    for place, item in enumerate(items, 1):
        try:
            _managed(item, f"{source}: rules.prefix_rules entry {place}", rules)
        except ValueError as error:
            raise ConfigError(f"{source}: rules.prefix_rules entry {place}: {error}") from None
    return rules


def _managed(item: object, source: str, rules: Rules) -> None:
    if not isinstance(item, Mapping) or not isinstance(item.get("pattern"), list):
        raise ValueError("it must be a table with a pattern list")
    decision = item.get("decision")
    if decision not in ("prompt", "forbidden"):
        raise ValueError(f"decision must be prompt or forbidden, not {decision!r}")
    pattern: list[Any] = []
    for token in item["pattern"]:
        if not isinstance(token, Mapping) or set(token) not in ({"token"}, {"any_of"}):
            raise ValueError("each pattern entry must be {token = …} or {any_of = […]}")
        any_of = token.get("any_of")
        alternatives = list(any_of) if isinstance(any_of, tuple) else any_of
        pattern.append(token.get("token", alternatives))
    for rule in _expand(pattern, SPELLINGS[decision], item.get("justification"), source):
        rules.add(rule)


class _Loader:
    """Evaluates one file and gathers what it declares."""

    def __init__(self, name: str, stop_at: tuple[int, str] | None = None) -> None:
        self.rules = Rules()
        self._name = name
        self._stop_at = stop_at
        self._count = 0
        self._examples: list[tuple[list[PrefixRule], list[list[str]], list[list[str]]]] = []

    def evaluate(self, text: str) -> None:
        """Run the file; raises ConfigError."""
        dialect = starlark.Dialect.extended()
        dialect.enable_load = False
        dialect.enable_f_strings = True
        standard = starlark.Globals.standard()
        module = starlark.Module()
        self._declare(module)
        end = time.monotonic() + SECONDS
        options = starlark.EvalOptions(
            check_cancelled=lambda: time.monotonic() > end, max_callstack_size=200
        )
        try:
            starlark.eval(module, starlark.parse(_PRELUDE_NAME, _PRELUDE, dialect), standard)
            ast = starlark.parse(self._name, text, dialect)
            starlark.eval_with(options, module, ast, standard)
        except starlark.StarlarkError as error:
            raise ConfigError(_located(str(error), self._name)) from None

    def _declare(self, module: Module) -> None:
        declared: dict[str, Callable[..., None]] = {
            "_prefix_rule": self._prefix_rule,
            "_network_rule": self._network_rule,
            "_host_executable": self._host_executable,
        }
        for name, function in declared.items():
            module.add_callable(name, function)

    def failed_example(self) -> tuple[int, str] | None:
        """The number of the first rule whose examples do not hold, and which one."""
        for number, (rules, match, not_match) in enumerate(self._examples, 1):
            alone = Rules(executables=self.rules.executables)
            for rule in rules:
                alone.add(rule)
            for example in not_match:
                if alone.matches(example):
                    return number, f"not_match example {shlex.join(example)!r} matches the rule"
            for example in match:
                if not alone.matches(example):
                    return number, f"match example {shlex.join(example)!r} does not match the rule"
        return None

    def _prefix_rule(
        self,
        pattern: Any,
        decision: Any,
        match: Any,
        not_match: Any,
        justification: Any,
        outside: Any,
    ) -> None:
        self._count += 1
        if self._stop_at is not None and self._stop_at[0] == self._count:
            raise ValueError(self._stop_at[1])
        verdict = SPELLINGS.get(decision) if isinstance(decision, str) else None
        if verdict is None:
            raise ValueError(f"decision must be allow, prompt or forbidden, not {decision!r}")
        if not isinstance(outside, bool) or (outside and verdict != Answer.ALLOW):
            raise ValueError("outside must be True or False, and True only where decision is allow")
        source = f"{self._name}, rule {self._count}"
        rules = _expand(pattern, verdict, justification, source, outside=outside)
        for rule in rules:
            self.rules.add(rule)
        self._examples.append((rules, _examples("match", match), _examples("not_match", not_match)))

    def _network_rule(self, host: Any, protocol: Any, decision: Any, justification: Any) -> None:
        if protocol not in _PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        verdict = Answer.DENY if decision == "deny" else SPELLINGS.get(decision)
        if verdict is None:
            raise ValueError(f"decision must be allow, prompt or deny, not {decision!r}")
        reason = _justification(justification)
        name = normal_host(host)
        self.rules.network.append(
            NetworkRule(name, _PROTOCOLS[protocol], verdict, reason, self._name)
        )

    def _host_executable(self, name: Any, paths: Any) -> None:
        if not isinstance(name, str) or not name or "/" in name or name in (".", ".."):
            raise ValueError(f"name must be a bare file name, not {name!r}")
        for path in paths:
            if not isinstance(path, str) or not path.startswith("/"):
                raise ValueError(f"paths must be absolute, not {path!r}")
            if os.path.basename(path) != name:
                raise ValueError(f"path {path!r} does not end in {name!r}")
        self.rules.executables[name] = frozenset(paths)


def normal_host(host: object) -> str:
    """A host name as network rules compare it; raises ValueError for anything more or less."""
    if not isinstance(host, str):
        raise ValueError(f"host must be a string, not {host!r}")
    name = host.strip().lower()
    if name.startswith("["):
        name, _, port = name[1:].partition("]")
        port = port.removeprefix(":")
    elif name.count(":") == 1:
        name, _, port = name.partition(":")
    else:
        port = ""
    name = name.rstrip(".")
    if (port and not port.isdecimal()) or not _HOST.fullmatch(name):
        raise ValueError(f"host must be a plain host name without scheme or path, not {host!r}")
    return name


def _expand(
    pattern: Sequence[Any],
    decision: Answer,
    justification: Any,
    source: str,
    *,
    outside: bool = False,
) -> list[PrefixRule]:
    """One rule for each alternative of the first token."""
    if not pattern:
        raise ValueError("pattern must not be empty")
    tokens = [_alternatives(token) for token in pattern]
    reason = _justification(justification)
    rest = tuple(tokens[1:])
    return [PrefixRule(program, rest, decision, reason, source, outside) for program in tokens[0]]


def _alternatives(token: Any) -> tuple[str, ...]:
    found = [token] if isinstance(token, str) else token
    if not isinstance(found, list) or not found or not all(isinstance(t, str) for t in found):
        raise ValueError(f"pattern must hold strings or non-empty lists of strings, not {token!r}")
    return tuple(found)


def _justification(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("justification must be a text that is not blank")
    return value


def _examples(name: str, values: Sequence[Any]) -> list[list[str]]:
    return [_example(name, value) for value in values]


def _example(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError as error:
            raise ValueError(f"{name} example {value!r} cannot be split: {error}") from None
    else:
        words = list(value)
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{name} example {value!r} is not a command")
    return words


_FRAME = re.compile(r"^  \* (.+):(\d+), in ", re.MULTILINE)
_ERROR = re.compile(
    r"^error: ([^\n]*(?:\n(?! *-->)[^\n]*)*)\n *--> (.+):(\d+):(\d+)$", re.MULTILINE
)
_PYTHON = re.compile(r"^(?:ValueError|TypeError|fail): ")


def _located(text: str, name: str) -> str:
    """Starlark's report as one line: file, line, what is wrong."""
    match = _ERROR.search(text)
    message = " ".join(match[1].split()) if match else text.strip().partition("\n")[0]
    frames = [line for file, line in _FRAME.findall(text) if file == name]
    line = match[3] if match and match[2] == name else (frames[-1] if frames else "")
    where = f"{name}:{line}" if line else name
    message = _PYTHON.sub("", message)
    if message == "Evaluation cancelled":
        message = f"evaluating it took more than {SECONDS:g} seconds"
    return f"{where}: {message}"
