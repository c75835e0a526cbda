"""What a session knows of the user's own rules, overrides and earlier answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolrest.config.trust import git_root
from toolrest.gate.grants import Grants
from toolrest.gate.memory import Memory
from toolrest.policy.names import inside
from toolrest.policy.overrides import Overrides
from toolrest.policy.rule_book import RuleBook, rule_book
from toolrest.policy.rules import Decision, PrefixRule

if TYPE_CHECKING:
    from toolrest.config import Config


@dataclass(frozen=True, slots=True)
class Remembered:
    """Rules, overrides and memory of one session."""

    book: RuleBook
    memory: Memory
    overrides: Overrides | None


def rules_of(config: Config) -> RuleBook:
    """The rules in force: the user's, those of trusted projects, and those of the settings.

    Without files of the user's (`Config.default`) only the settings speak.
    """
    settings = config.value
    managed = [
        {
            "pattern": [token.model_dump(exclude_none=True) for token in row.pattern],
            "decision": row.decision,
            "justification": row.justification,
        }
        for row in settings.rules.prefix_rules
    ]
    return rule_book(
        config.home if config.from_files else None,
        config.rules_folders,
        managed=managed,
        commands=settings.approvals.commands,
    )


def remembered(config: Config, workspace: str, session_id: str) -> Remembered:
    """What counts in a session in this workspace.

    Without files of the user's nothing is kept for longer than the session.
    """
    book = rules_of(config)
    project = git_root(workspace) or workspace
    memory = Memory(
        Grants(config.home if config.from_files else None, project=project, session=session_id),
        config.value.approval_policy,
        workspace,
        project,
    )
    if config.from_files:
        memory.scopes = ("session", "project", "user")
        memory.save_rule = _Saver(config.home, book)
    return Remembered(book, memory, _overrides(config, workspace))


@dataclass(frozen=True, slots=True)
class _Saver:
    """Puts a prefix into the user's rules file and in force."""

    home: str
    book: RuleBook

    def __call__(self, prefix: Sequence[str]) -> str:
        from toolrest.policy.rules_files import append_allow

        file = append_allow(self.home, prefix)
        rest = tuple((token,) for token in prefix[1:])
        self.book.rules.add(PrefixRule(prefix[0], rest, Decision.ALLOW, source=file))
        return file


def _overrides(config: Config, workspace: str) -> Overrides | None:
    said = config.value.approvals
    if not (said.tools or said.mcp_servers or said.paths):
        return None
    paths = {absolute(path, workspace): say for path, say in said.paths.items()}
    return Overrides(said.tools, said.mcp_servers, paths)


def absolute(path: str, workspace: str) -> str:
    """A folder or file of `approvals.paths`; relative ones are the workspace's."""
    return os.path.realpath(os.path.join(workspace, os.path.expanduser(path)))


def kept_from_writing(config: Config, workspace: str) -> tuple[str, ...]:
    """What `approvals.paths` denies inside a writable root: no tool and no program may write it."""
    said = config.value.approvals.paths
    found = (absolute(path, workspace) for path, say in said.items() if say == "deny")
    roots = [workspace, *config.value.sandbox_workspace_write.writable_roots]
    return tuple(path for path in found if any(inside(path, os.path.realpath(r)) for r in roots))
