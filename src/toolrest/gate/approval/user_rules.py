"""The user's rules, overrides and grants, as a session has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolrest.answer import Answer
from toolrest.config.trust import git_root
from toolrest.errors import ConfigError
from toolrest.policy.modes import network_of
from toolrest.policy.paths.names import inside
from toolrest.private_files import is_first_time

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.approval.memory import Memory
    from toolrest.policy.rules.book import RuleBook
    from toolrest.policy.rules.overrides import Overrides
    from toolrest.policy.rules.rules import Rules
    from toolrest.running.confinement import Confinement


class SessionRules:
    """Rules, overrides and memory of one session, made when they are first needed.

    A child session shares its parent's grants, but has its own approval policy.
    """

    def __init__(
        self, config: Config, workspace: str, session_id: str, parent: SessionRules | None = None
    ) -> None:
        self._config = config
        self._workspace = workspace
        self._session_id = session_id
        self._parent = parent
        if _has_rules(config):
            self._check()  # Now, so that a file that cannot be used stops the start.

    def _check(self) -> None:
        _, denied = self.rules.hosts()
        settings = self._config.value
        if denied and network_of(settings) == "on":
            raise ConfigError(
                f"a network_rule denies {denied[0]}, but with sandbox_workspace_write."
                "network_access = true commands reach every host; list the hosts they need in "
                "tool_security.allowed_network_domains instead"
            )

    def confined(self, confinement: Confinement) -> Confinement:
        """The confinement of commands, with the hosts that network rules allow and deny."""
        allowed, denied = self.rules.hosts()
        if self._config.value.tool_security.allowed_network_domains is not None:
            allowed = ()  # the list is a ceiling: rules take hosts away from it, and add none
        if not (allowed or denied):
            return confinement
        opened = confinement.network == "off" and bool(allowed)
        return replace(
            confinement,
            network="allowlist" if opened else confinement.network,
            allowed_hosts=(*confinement.allowed_hosts, *allowed),
            denied_hosts=denied,
        )

    @cached_property
    def book(self) -> RuleBook:
        """The rules in force and where they came from."""
        return rules_of(self._config)

    def warnings(self) -> tuple[str, ...]:
        """Warnings about the rules in force; some are given once a home."""
        if not _has_rules(self._config):
            return ()
        once = (text for text in self.book.once if is_first_time(self._config.home, text))
        return (*self.book.warnings, *once)

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return self.book.rules

    @cached_property
    def memory(self) -> Memory:
        """The memory of approvals. Without the user's files no grant outlives the session."""
        from toolrest.gate.approval.grants import Grants, GrantScope
        from toolrest.gate.approval.memory import Memory

        config, workspace = self._config, self._workspace
        project = git_root(workspace) or workspace
        home = config.home if config.from_files else None
        grants = (
            Grants(home, project=project, session=self._session_id)
            if self._parent is None
            else self._parent.memory.grants
        )
        mode = config.value.approval_policy
        if not config.from_files:
            return Memory(grants, mode, workspace, project)
        scopes: tuple[GrantScope, ...] = ("session", "project", "user")
        return Memory(grants, mode, workspace, project, scopes, _Saver(config.home, self))

    @cached_property
    def overrides(self) -> Overrides | None:
        """The user's overrides for single tools, servers and folders."""
        given = self._config.value.approvals
        if not (given.tools or given.mcp_servers or given.paths):
            return None
        from toolrest.policy.rules.overrides import Overrides

        paths = {absolute(path, self._workspace): value for path, value in given.paths.items()}
        tables = (given.tools, given.mcp_servers, paths)
        return Overrides(
            *({key: Answer(value) for key, value in table.items()} for table in tables)
        )


def _has_rules(config: Config) -> bool:
    settings = config.value
    in_home = config.from_files and os.path.isdir(os.path.join(config.home, "rules"))
    in_settings = settings.rules.prefix_rules or settings.approvals.commands
    return bool(in_home or config.rules_folders or in_settings)


def rules_of(config: Config) -> RuleBook:
    """The rules in force: the user's, those of trusted projects, and those of the settings.

    Without the user's files (`default_config`) only those of the settings.
    """
    from toolrest.policy.rules.book import rule_book

    settings = config.value
    managed = [
        {
            "pattern": [
                {name: value for name, value in token.given().items() if value is not None}
                for token in row.pattern
            ],
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


class _Saver(Struct, frozen=True):
    """Adds a prefix to the user's rules file and to the rules in force."""

    home: str
    known: SessionRules

    def __call__(self, prefix: Sequence[str], outside: bool) -> str:
        from toolrest.policy.rules.files import append_allow
        from toolrest.policy.rules.rules import PrefixRule

        file = append_allow(self.home, prefix, outside=outside)
        rest = tuple((token,) for token in prefix[1:])
        self.known.rules.add(
            PrefixRule(prefix[0], rest, Answer.ALLOW, source=file, outside=outside)
        )
        return file


def absolute(path: str, workspace: str) -> str:
    """A folder or file of `approvals.paths`; relative ones are the workspace's."""
    return os.path.realpath(os.path.join(workspace, os.path.expanduser(path)))


def kept_from_writing(config: Config, workspace: str) -> tuple[str, ...]:
    """Paths in a writable root that no tool or program may write.

    Those that `approvals.paths` denies, and settings of folders in it that are trusted themselves.
    """
    settings = config.value
    found = [
        absolute(path, workspace)
        for path, value in settings.approvals.paths.items()
        if value == "deny"
    ]
    for folder, project in settings.projects.items():
        if project.trust_level == "trusted" and folder != workspace and os.path.isdir(folder):
            found.append(os.path.join(folder, ".toolrest"))
    roots = [workspace, *config.value.sandbox_workspace_write.writable_roots]
    return tuple(path for path in found if any(inside(path, os.path.realpath(r)) for r in roots))
