"""Environment variables of a confined command, on top of what the session allows.

Pointers to host services are taken away (their sockets do not answer anyway, and a clean "not
set" fails faster and clearer), temporary files and toolchain caches are sent to private folders
that can be written, and the command may see that it is confined.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from toolrest.policy.paths.names import unique
from toolrest.process.shells.shells import kind_of
from toolrest.sandbox.policy import SandboxPolicy

HOST_SERVICES: tuple[str, ...] = (
    "CONTAINER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DISPLAY",
    "DOCKER_HOST",
    "GNOME_KEYRING_CONTROL",
    "GPG_AGENT_INFO",
    "KRB5CCNAME",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "TMUX",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
)
"""Variables that lead to a socket or a credential of the host."""

CACHES: tuple[tuple[str, str], ...] = (
    ("BUN_INSTALL_CACHE_DIR", "bun"),
    ("CCACHE_DIR", "ccache"),
    ("COMPOSER_CACHE_DIR", "composer"),
    ("DENO_DIR", "deno"),
    ("GOCACHE", "go-build"),
    ("GRADLE_USER_HOME", "gradle"),
    ("NPM_CONFIG_CACHE", "npm"),
    ("NUGET_PACKAGES", "nuget"),
    ("PIP_CACHE_DIR", "pip"),
    ("PRE_COMMIT_HOME", "pre-commit"),
    ("SCCACHE_DIR", "sccache"),
    ("UV_CACHE_DIR", "uv"),
    ("YARN_CACHE_FOLDER", "yarn"),
)
"""Build and package caches that a tool insists on writing to."""

DOWNLOADS: tuple[tuple[str, str], ...] = (("CARGO_HOME", "cargo"), ("GOMODCACHE", "go-mod"))
"""Downloaded sources. Without a network they stay where they are: those can be read, and an
empty folder in their place would only make an offline build fail."""


def confined_env(
    env: Mapping[str, str], policy: SandboxPolicy, backend: str, tmp: str
) -> dict[str, str]:
    """The variables inside, from those that the session's environment policy lets through."""
    result = {name: value for name, value in env.items() if name not in HOST_SERVICES}
    if policy.tmp == "private":
        result |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), tmp)
    if policy.cache_dir is not None:
        redirected = CACHES if policy.network == "off" else (*CACHES, *DOWNLOADS)
        for name, folder in redirected:
            if not _writable(result.get(name), policy):
                result[name] = os.path.join(policy.cache_dir, folder)
        result.setdefault("UV_LINK_MODE", "copy")  # the cache is another mount: no hard links
    # A root below the top of its repository is another mount than that top.
    result.setdefault("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1")
    result["TOOLREST_SANDBOX"] = backend
    if policy.network == "off":
        result["TOOLREST_SANDBOX_NETWORK_DISABLED"] = "1"
    return result


STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def for_other_root(
    env: Mapping[str, str], policy: SandboxPolicy, path: str, shells: Sequence[str]
) -> dict[str, str]:
    """The variables where programs are not the host's: its `path` first, a home that is there."""
    result = {name: value for name, value in env.items() if name not in ("PWD", "OLDPWD")}
    home = result.get("HOME", "")
    if not home or policy.in_root(os.path.realpath(home)) is None:
        result["HOME"] = "/tmp"  # noqa: S108
    folders = (*path.split(":"), *result.get("PATH", "").split(":"))
    result["PATH"] = ":".join(unique(filter(None, folders)))
    return result | {"SHELL": shells[0]}


def with_shell(argv: tuple[str, ...], shells: Sequence[str]) -> tuple[str, ...]:
    """The command with a shell that is there, where it names one of the host's by its path."""
    kind = kind_of(argv[0]) if argv[0].startswith("/") else None
    if kind not in ("bash", "zsh", "sh") or argv[0] in shells:
        return argv  # PowerShell's lines mean nothing to these
    same = [path for path in shells if kind_of(path) == kind]
    return (same or [shells[-1]])[0], *argv[1:]


def _writable(value: str | None, policy: SandboxPolicy) -> bool:
    """Whether the user's own choice already works."""
    return value is not None and policy.in_root(os.path.realpath(value)) is not None
