"""All rules for commands that are in force, from every source of rules."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from toolrest.answer import Answer
from toolrest.errors import ConfigError
from toolrest.policy.rules.amendment import is_banned
from toolrest.policy.rules.files import allow_line, load_file, rules_files
from toolrest.policy.rules.rules import PrefixRule, Rules


class RuleBook(NamedTuple):
    """The rules, the files they came from, and what a person should know about them."""

    rules: Rules
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    """Notices that a person should read once."""


def rule_book(
    home: str | None,
    projects: Sequence[str] = (),
    *,
    managed: Iterable[Mapping[str, Any]] = (),
    commands: Mapping[str, str] | None = None,
) -> RuleBook:
    """The user's files, those of trusted projects, `[rules]` and `[approvals.commands]`.

    A project can only tighten: what its files allow is left out, and a warning says so. One file
    that cannot be read is an error, wherever it comes from.
    """
    rules = Rules()
    folders = [] if home is None else [home]
    files = rules_files(folders)
    own = [(file, load_file(file)) for file in files]
    for _, loaded in own:
        rules.merge(loaded)
    warnings: list[str] = []
    for folder in projects:
        for file in rules_files([folder]):
            files.append(file)
            rules.merge(_tightening(file, warnings))
    rows = list(managed)
    if rows:
        from toolrest.policy.rules.load import managed_rules

        rules.merge(managed_rules(rows, "config.toml"))
    for text, say in (commands or {}).items():
        rules.add(_command_rule(text, say))
    once = tuple(filter(None, map(_inside_notice, own)))
    return RuleBook(rules, tuple(files), tuple(warnings), once)


def _inside_notice(own: tuple[str, Rules]) -> str | None:
    """For a file from before `outside`: its allow rules once meant outside the sandbox, too."""
    file, loaded = own
    allows = [
        r for group in loaded.by_program.values() for r in group if r.decision == Answer.ALLOW
    ]
    if not allows or any(rule.outside for rule in allows):
        return None
    first = loaded.allowed_prefixes()[0]
    return (
        f"{file}: its allow rules let commands run inside the sandbox; "
        f"for one that may run outside, too, write {allow_line(first, outside=True)}"
    )


def _tightening(file: str, warnings: list[str]) -> Rules:
    if os.path.realpath(file) != file:
        raise ConfigError(f"{file}: a project's rules may not be reached through a symlink")
    loaded = load_file(file)
    kept = Rules()
    dropped = 0
    for group in loaded.by_program.values():
        for rule in group:
            if rule.decision == Answer.ALLOW:
                dropped += 1
            else:
                kept.add(rule)
    denied = [rule for rule in loaded.network if rule.decision == Answer.DENY]
    dropped += len(loaded.network) - len(denied)
    kept.network += denied
    if dropped:
        warnings.append(
            f"{file}: {dropped} of its rules would allow something and are left out; "
            "a project can only tighten, so put them into your own rules folder"
        )
    return kept


def _command_rule(text: str, say: str) -> PrefixRule:
    where = f'approvals.commands."{text}"'
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{where}: not a command's beginning: {error}") from None
    if not words:
        raise ConfigError(f"{where}: name the first words of a command")
    if say == "allow" and is_banned(words):
        raise ConfigError(f"{where}: this would allow far more than one command")
    rest = tuple((word,) for word in words[1:])
    return PrefixRule(words[0], rest, Answer(say), source=where)
