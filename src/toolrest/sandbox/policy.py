"""The sandbox policy: what commands may touch, built from the launcher's settings and then fixed.

Nothing here comes from a model: roots are followed through their symlinks once, when the session
starts, and a command's working folder never adds one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from toolrest.config.schema.security import Control as Control
from toolrest.config.schema.security import SandboxSettings
from toolrest.errors import ConfigError, os_words
from toolrest.policy.paths.hidden import home_folders
from toolrest.policy.paths.names import inside, unique
from toolrest.policy.paths.policy import PathPolicy
from toolrest.policy.paths.protected import ProtectedPlaces
from toolrest.private_files import make_private

Mode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access", "external"]
Network: TypeAlias = Literal["off", "allowlist", "on"]
Tmp: TypeAlias = Literal["private", "host"]
Hides: TypeAlias = Callable[[str], Callable[[str], bool] | None]

CONTROLS: tuple[Control, ...] = get_args(Control)
REQUIRED = SandboxSettings.require
"""What a backend must enforce to be used at all, unless the launcher asks for more."""

_NEVER_ROOTS = ("/proc", "/sys", "/dev")


def host_tmp_folders(*, slash_tmp: bool = True, tmpdir: bool = True) -> tuple[str, ...]:
    """Where the host keeps temporary files, for sessions that share them."""
    named = os.environ.get("TMPDIR", "") if tmpdir else ""
    return (*(("/tmp",) if slash_tmp else ()), *((named,) if named else ()))  # noqa: S108


class SandboxPolicy(Struct, frozen=True):
    """The confinement of one session. Make it with `SandboxPolicy.build`.

    `session_dir` is a 0700 folder of this session, hidden from it: the private `/tmp` lives
    there. `cache_dir` is where toolchains put their caches; it may be shared between sessions.
    """

    workspace: str
    session_dir: str
    mode: Mode = "workspace-write"
    roots: tuple[str, ...] = ()
    tool_roots: tuple[str, ...] = ()
    """Where commands of this session or of another may write, whatever its mode: no program that
    Toolrest itself runs is taken from there."""
    read_roots: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    network: Network = "off"
    allowed_hosts: tuple[str, ...] = ()
    tmp: Tmp = "private"
    cache_dir: str | None = None
    require: tuple[Control, ...] = REQUIRED
    dropped: tuple[str, ...] = ()
    """Roots that were asked for and are not there."""
    hides: Hides | None = None
    """Which names of a folder are hidden, for those that come after the session's start."""

    @classmethod
    def build(
        cls,
        workspace: str,
        session_dir: str,
        *,
        mode: Mode = "workspace-write",
        writable_roots: Sequence[str] = (),
        read_roots: Sequence[str] | None = None,
        hidden: Sequence[str] = (),
        exceptions: Sequence[str] = (),
        protected: Sequence[str] | None = None,
        network: Network = "off",
        allowed_hosts: Sequence[str] = (),
        tmp: Tmp = "private",
        host_tmp: Sequence[str] | None = None,
        cache_dir: str | None = None,
        require: Iterable[Control] = REQUIRED,
    ) -> SandboxPolicy:
        """Check the launcher's values, follow their symlinks once, and fix them.

        `protected` None means the built-in places of every root, `host_tmp` None all of the
        host's folders for temporary files.
        """
        home = _folder(workspace, "workspace")
        asked = [home, *(_absolute(root, "writable_roots", home) for root in writable_roots)]
        if tmp == "host" and mode == "workspace-write":
            asked += host_tmp_folders() if host_tmp is None else host_tmp
        granted, dropped = _roots(asked) if mode == "workspace-write" else ((), ())
        session = _private(session_dir, "session_dir", granted)
        cache = None if cache_dir is None else _private(cache_dir, "cache_dir", granted)
        return cls(
            workspace=home,
            session_dir=session,
            mode=mode,
            roots=granted,
            tool_roots=unique((*granted, *asked)),
            read_roots=None
            if read_roots is None
            else unique((home, *(_absolute(path, "read_roots", home) for path in read_roots))),
            hidden=_real_places(hidden, "hidden", home),
            exceptions=_real_places(exceptions, "exceptions", home),
            protected=_protected(protected, granted),
            network=network,
            allowed_hosts=tuple(allowed_hosts),
            tmp=tmp,
            cache_dir=cache,
            require=_controls(require),
            dropped=dropped,
        )

    @classmethod
    def from_paths(
        cls,
        paths: PathPolicy,
        session_dir: str,
        *,
        network: Network = "off",
        allowed_hosts: Sequence[str] = (),
        tmp: Tmp = "private",
        host_tmp: Sequence[str] | None = None,
        cache_dir: str | None = None,
        require: Iterable[Control] = REQUIRED,
        external: bool = False,
    ) -> SandboxPolicy:
        """The same rules that the file tools obey, for the sandbox.

        With `external` something else confines, and programs are started as they are.
        """
        roots = paths.writable_roots if paths.mode == "workspace-write" else ()
        built = cls.build(
            paths.workspace,
            session_dir,
            mode="external" if external else paths.mode,
            writable_roots=roots,
            read_roots=paths.read_roots,
            hidden=paths.hidden_paths() if paths.mode != "danger-full-access" else (),
            exceptions=paths.shown,
            protected=[place for root in roots for place in paths.protected_paths(root)],
            network=network,
            allowed_hosts=allowed_hosts,
            tmp=tmp,
            host_tmp=host_tmp,
            cache_dir=cache_dir,
            require=require,
        )
        tool_roots = unique((*built.tool_roots, *paths.tool_roots))
        built = replace(built, tool_roots=tool_roots)
        return replace(built, hides=paths.hidden_names) if built.confines else built

    @property
    def confines(self) -> bool:
        """False when the user's settings let commands run unconfined."""
        return self.mode in ("read-only", "workspace-write")

    def without_list(self) -> SandboxPolicy:
        """The same policy; no network where it has a list of hosts."""
        return replace(self, network="off") if self.network == "allowlist" else self

    def in_root(self, path: str) -> str | None:
        """The innermost writable root that holds this real path, or None."""
        found = [root for root in self.roots if inside(path, root)]
        return max(found, key=len) if found else None

    def shown_root(self, path: str) -> str | None:
        """The same where a sandbox has a root of its own: read-only mode shows the workspace."""
        if self.roots:
            return self.in_root(path)
        return self.workspace if inside(path, self.workspace) else None


def _absolute(path: str, key: str, base: str) -> str:
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ConfigError(f"{key}: a path may not be empty or contain a NUL character")
    try:
        return os.path.realpath(os.path.join(base, os.path.expanduser(text)))
    except OSError as error:
        raise ConfigError(f"{key}: cannot follow {text}: {os_words(error)}") from None


def _folder(path: str, key: str) -> str:
    real = _absolute(path, key, os.getcwd())
    if not os.path.isdir(real):
        raise ConfigError(f"{key}: {path} is not a folder")
    return real


def _roots(asked: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The real folders among those asked for, outermost first, and those that are missing."""
    real = unique(os.path.realpath(path) for path in asked if path.startswith("/"))
    for path in real:
        if any(inside(path, place) for place in _NEVER_ROOTS):
            raise ConfigError(f"writable_roots: no sandbox can make {path} writable")
    there = sorted((path for path in real if os.path.isdir(path)), key=_depth)
    return tuple(there), tuple(path for path in real if not os.path.isdir(path))


def _depth(path: str) -> tuple[int, str]:
    return path.rstrip("/").count("/"), path


def _private(path: str, key: str, roots: Sequence[str]) -> str:
    """A folder of ours: created 0700 when missing, refused when a root lies inside."""
    real = _absolute(path, key, os.getcwd())
    make_private(real)
    info = os.lstat(real)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise ConfigError(f"{key}: {real} must be a folder that belongs to you")
    for root in roots:
        if inside(root, real):
            raise ConfigError(f"{key}: the writable root {root} lies in {real}; choose another")
    if info.st_mode & 0o077:
        os.chmod(real, 0o700)
    return real


def _real_places(places: Sequence[str], key: str, base: str) -> tuple[str, ...]:
    """Masks sit on real objects: a link is masked by masking what it points at."""
    return unique(sorted(_absolute(place, key, base) for place in places))


def _protected(places: Sequence[str] | None, roots: Sequence[str]) -> tuple[str, ...]:
    """Absolute and normalised, but not followed: the entry itself is what is protected."""
    if places is None:
        built_in = ProtectedPlaces(roots=roots, homes=home_folders())
        places = [place for root in roots for place in built_in.within(root)]
    return unique(os.path.normpath(place) for place in places)


def _controls(names: Iterable[Control]) -> tuple[Control, ...]:
    chosen = unique(names)
    for name in chosen:
        if name not in CONTROLS:
            raise ConfigError(f"sandbox.require: {name!r} is not one of {', '.join(CONTROLS)}")
    return tuple(name for name in CONTROLS if name in chosen)
