"""Launch of a server's program: its path, environment, and hashes of its scripts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolrest.mcp.errors import McpUnavailable
from toolrest.mcp.sources import kind_of
from toolrest.policy.paths.names import inside
from toolrest.process.command import Command
from toolrest.process.shells.environment import EnvironmentPolicy, build
from toolrest.sandbox.programs import find_program

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server

_SCRIPTS = (".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl", ".php", ".jar")
_FORCED = {"GIT_TERMINAL_PROMPT": "0", "NO_COLOR": "1"}


def command_of(
    server: Server, workspace: str, environ: Mapping[str, str], roots: Sequence[str]
) -> Command:
    """The command to confine and start; McpUnavailable when there is no such program.

    The server gets a small environment: the basics, the variables that `env_vars` names and what
    `env` sets. Keys of model providers are never given.
    """
    cwd = os.path.join(workspace, server.cwd) if server.cwd else workspace
    if not os.path.isdir(cwd):
        raise McpUnavailable(f"its working folder {cwd} (cwd) is not a folder")
    policy = EnvironmentPolicy(inherit="core", set=server.env)
    variables = build(policy, environ, forced=_FORCED).variables
    program = program_of(server.argv[0], cwd, variables.get("PATH", os.defpath), roots)
    return Command((program, *server.argv[1:]), cwd, variables)


def with_own_byte_code(command: Command, folder: str) -> Command:
    """The command with compiled Python files of its own, in a folder that no tool may write.

    Python takes a file in `__pycache__` for the source beside it, whatever is in it.
    """
    argv = command.argv
    if kind_of(argv[:1]) == "python":
        argv = (argv[0], "-X", f"pycache_prefix={folder}", *argv[1:])
    return replace(command, argv=argv, env={**command.env, "PYTHONPYCACHEPREFIX": folder})


def program_of(name: str, cwd: str, path: str, roots: Sequence[str]) -> str:
    """The absolute path of a program. A bare name is never found where a tool could write."""
    if "/" in name:
        program = os.path.join(cwd, name)
        if not os.access(program, os.X_OK) or os.path.isdir(program):
            raise McpUnavailable(f"its command {program} is not a program that can be run")
        return program
    found = find_program(name, roots, path)
    if found is not None:
        return found
    elsewhere = find_program(name, (), path)
    if elsewhere is not None:
        raise McpUnavailable(
            f"its command `{name}` is only found as {elsewhere}, which the tools of this session "
            "could have written; give the whole path if you mean it"
        )
    raise McpUnavailable(f"its command `{name}` is not found on PATH")


def writable_files(command: Command, roots: Sequence[str]) -> dict[str, str]:
    """Hashes of the programs and scripts that a command names and that lie where tools may write.

    A server runs with a network of its own, which a tool that changes its script must not gain.
    Its data (a database, a log) may change.
    """
    found: dict[str, str] = {}
    for argument in command.argv:
        path = os.path.realpath(os.path.join(command.cwd, argument))
        if any(inside(path, root) for root in roots) and _is_code(path):
            found[path] = _hash(path)
    return found


def _is_code(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    return path.endswith(_SCRIPTS) or os.access(path, os.X_OK)


def _hash(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError:
        return "unreadable"


def withheld_hint(output: str, server: Server, environ: Mapping[str, str]) -> str:
    """A hint at the withheld variables that the server's last output names."""
    given = {*server.env, *server.row.env_vars}
    named = [name for name in environ if len(name) > 3 and name in output and name not in given]
    if not named:
        return ""
    listed = ", ".join(sorted(named)[:3])
    return f" (not given to it: {listed}; list it in mcp_servers.{server.name}.env_vars if needed)"
