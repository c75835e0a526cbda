"""The environment of a child: built from a policy, never simply inherited."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field

from toolrest.config.secrets import PROVIDER_KEYS, is_secret_name, is_secret_value

Inherit: TypeAlias = Literal["all", "core", "none"]

CORE = frozenset(
    [
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "USER",
        "USERNAME",
        "TMPDIR",
        "TEMP",
        "TMP",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
    ]
)
"""Variables that `inherit = "core"` keeps."""

_OWN = ("TOOLREST_*", "MEMO_*")
"""Toolrest's own settings, which no child gets."""

_PROVIDER_KEYS = frozenset(PROVIDER_KEYS)

_UNATTENDED = {
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
_PLAIN = {
    "NO_COLOR": "1",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
    "LC_CTYPE": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "COLORTERM": "",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "TOOLREST_CI": "1",
}


class EnvironmentPolicy(Struct, frozen=True):
    """Policy for the variables a child gets. Patterns know `*` and `?` and ignore case.

    `never` are names of variables that hold keys of configured model providers.
    """

    inherit: Inherit = "all"
    ignore_default_excludes: bool = False
    exclude: tuple[str, ...] = ()
    include_only: tuple[str, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    never: tuple[str, ...] = ()


class Environment(Struct, frozen=True):
    """A child's variables, and the names of those that were withheld."""

    variables: dict[str, str]
    withheld: tuple[str, ...]


def build(
    policy: EnvironmentPolicy,
    source: Mapping[str, str],
    *,
    never: Iterable[str] = (),
    forced: Mapping[str, str] | None = None,
) -> Environment:
    """Apply the policy to a source: inherit, excludes, set, include_only, then the forced ones.

    Keys of model providers, and the names in `never` (the variable that holds this session's own
    key), do not pass even when the policy sets them.
    """
    rule = (policy.inherit, policy.ignore_default_excludes, policy.exclude)
    kept = {name: value for name, value in source.items() if _inherited(name, *rule)}
    if not policy.ignore_default_excludes:
        kept = {name: value for name, value in kept.items() if not is_secret_value(value)}
    kept.update(policy.set)
    if policy.include_only:
        kept = {name: kept[name] for name in kept if matches(name, policy.include_only)}
    banned = _PROVIDER_KEYS.union(name.upper() for name in (*never, *policy.never))
    kept = {name: value for name, value in kept.items() if name.upper() not in banned}
    kept.update(forced or {})
    withheld = (name for name in source if name not in kept and not matches(name, _OWN))
    return Environment(kept, tuple(sorted(withheld)))


def forced(
    *,
    unified: bool,
    tty: bool = False,
    network: bool = False,
    thread_id: str | None = None,
) -> dict[str, str]:
    """Variables that every command gets whatever the policy is.

    `unified` is for exec_command, whose output is to be plain; without a terminal nothing may
    stop at a prompt that cannot be answered.
    """
    variables: dict[str, str] = {} if tty else {**_UNATTENDED, "PAGER": "cat"}
    if unified:
        variables.update(_PLAIN)
    if not network:
        variables["TOOLREST_SANDBOX_NETWORK_DISABLED"] = "1"
    if thread_id:
        variables["TOOLREST_THREAD_ID"] = thread_id
    return variables


def withhold(
    policy: EnvironmentPolicy, variables: Mapping[str, str], *, never: Iterable[str] = ()
) -> set[str]:
    """The names that this policy withholds from a child, wherever their values come from."""
    passed = build(policy, variables, never=never).variables
    return set(variables) - set(passed)


@lru_cache(maxsize=4096)
def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """True when a name matches one of the patterns as a whole."""
    return _matcher(patterns).match(name) is not None


@lru_cache(maxsize=4096)  # the same names come with every command of a session
def _inherited(name: str, inherit: Inherit, with_secrets: bool, exclude: tuple[str, ...]) -> bool:
    if inherit == "none" or (inherit == "core" and name.upper() not in CORE):
        return False
    if matches(name, _OWN):
        return False
    if not with_secrets and is_secret_name(name):
        return False
    return not matches(name, exclude)


@lru_cache(maxsize=64)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    if not patterns:
        return re.compile(r"(?!)")
    # `[` is an ordinary character in these patterns.
    globs = (fnmatch.translate(pattern.replace("[", "[[]")) for pattern in patterns)
    return re.compile("|".join(globs), re.IGNORECASE)
