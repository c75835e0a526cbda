"""The workspace, path policy and network of a session, from its settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolrest.errors import ConfigError
from toolrest.gate.approval.user_rules import kept_from_writing
from toolrest.policy.paths.policy import PathPolicy

if TYPE_CHECKING:
    from toolrest.config import Config, Settings


def default_workspace(path: str | os.PathLike[str] | None) -> str:
    """The given folder, else the current one; it must exist."""
    try:
        workspace = os.path.realpath(path if path is not None else os.getcwd())
    except FileNotFoundError:
        raise ConfigError("the current folder is gone; change to another, or name one") from None
    if not os.path.isdir(workspace):
        raise ConfigError(f"the workspace {workspace} is not a folder")
    return workspace


def path_policy(config: Config, workspace: str, exceptions: tuple[str, ...] = ()) -> PathPolicy:
    """The one path policy of a session: for its file tools, and compiled into its sandbox."""
    settings = config.value
    return PathPolicy(
        workspace,
        mode=settings.sandbox_mode,
        writable_roots=settings.sandbox_workspace_write.writable_roots,
        read_roots=settings.read_roots,
        hidden=settings.hidden_paths,
        unhide=settings.paths.unhide,
        toolrest_home=config.home,
        exceptions=exceptions,
        protected=kept_from_writing(config, os.path.realpath(workspace)),
        max_file_size=settings.tool_security.max_file_access_size,
        shared_tmp=shared_tmp(settings),
    )


def tool_roots(config: Config) -> tuple[str, ...]:
    """Where this session's tools may write, or those of another one in the same folder."""
    roots = config.value.sandbox_workspace_write.writable_roots
    workspace = os.path.realpath(config.workspace or os.getcwd())
    paths = (os.path.join(workspace, os.path.expanduser(root)) for root in roots)
    return (workspace, *map(os.path.realpath, paths))


def shared_tmp(settings: Settings) -> tuple[str, ...] | None:
    """The host's folders for temporary files that commands may write; None if they are private."""
    if settings.sandbox_tmp == "private":
        return None
    from toolrest.sandbox.policy import host_tmp_folders

    roots = settings.sandbox_workspace_write
    return host_tmp_folders(
        slash_tmp=not roots.exclude_slash_tmp, tmpdir=not roots.exclude_tmpdir_env_var
    )
