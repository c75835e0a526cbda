"""Grants: remembered approvals, in memory for the session, in one file for longer.

The file is `$TOOLREST_HOME/grants.json`: a folder that no tool and no sandboxed program can
write. It is read again whenever it has changed, so that a revoked grant ends at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolrest.errors import ConfigError
from toolrest.policy.grants.key import GrantKey
from toolrest.policy.paths.names import inside
from toolrest.private_files import make_private, reason, write_all

GrantScope: TypeAlias = Literal["session", "project", "user"]
FILE = "grants.json"
VERSION = 1
MAX_BYTES = 4 << 20


class Grant(Struct, frozen=True):
    """One remembered approval: its key, scope, project, time and session."""

    key: GrantKey
    scope: GrantScope
    project: str = ""
    tool: str = ""
    created: int = 0
    session: str = ""

    @property
    def id(self) -> str:
        """A short id; the same grant made twice has the same one."""
        text = json.dumps([self.key.to_json(), self.scope, self.project], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """The grant as it is stored."""
        return {
            "key": self.key.to_json(),
            "scope": self.scope,
            "project": self.project,
            "tool": self.tool,
            "created": self.created,
            "session": self.session,
        }

    @staticmethod
    def from_json(data: object) -> Grant:
        """A stored grant; ValueError for anything that `to_json` does not write."""
        if not isinstance(data, Mapping) or data.get("scope") not in ("project", "user"):
            raise ValueError("a stored grant needs the scope project or user")
        texts = [data.get(name) for name in ("project", "tool", "session")]
        created = data.get("created")
        if not all(isinstance(text, str) for text in texts) or not isinstance(created, int):
            raise ValueError("project, tool and session must be texts and created a number")
        if bool(data["project"]) != (data["scope"] == "project"):
            raise ValueError("a grant names a project exactly when it is for one")
        key = GrantKey.from_json(data.get("key"))
        return Grant(key, data["scope"], data["project"], data["tool"], created, data["session"])


class Grants:
    """The grants that count for one session; without a `home` only its own."""

    def __init__(self, home: str | None, *, project: str = "", session: str = "") -> None:
        self._file = None if home is None else os.path.join(home, FILE)
        self._project = project
        self._session = session
        self._own: dict[GrantKey, Grant] = {}
        self._stored: tuple[Grant, ...] = ()
        self._seen: tuple[int, ...] | None = None
        self.problem: str | None = None
        """The reason why the stored grants do not count, if they do not."""

    def covering(self, need: GrantKey, cwds: Sequence[str] = ()) -> Grant | None:
        """The grant that covers this need, if there is one."""
        exact = self._own.get(need)
        if exact is not None and need.kind != "run":
            return exact
        for grant in (*self._own.values(), *self._for_here()):
            if grant.key.covers(need, cwds):
                return grant
        return None

    def covers_all(self, needs: Sequence[GrantKey], cwds: Sequence[str] = ()) -> Grant | None:
        """The last of the grants that together cover all needs; None if one is not covered."""
        found: Grant | None = None
        for need in needs:
            found = self.covering(need, cwds)
            if found is None:
                return None
        return found

    def remember(self, keys: Sequence[GrantKey], scope: GrantScope, tool: str = "") -> None:
        """Store a grant for each key. Raises ConfigError, and stores none, if that fails."""
        project = self._project if scope == "project" else ""
        if scope == "project" and not project:
            raise ConfigError("this session has no project, so it cannot store a project grant")
        made = [Grant(key, scope, project, tool, int(time.time()), self._session) for key in keys]
        if scope == "session":
            self._own |= {grant.key: grant for grant in made}
            return
        if self._file is None:
            raise ConfigError("this session has no TOOLREST_HOME to store a grant in")
        with _locked(self._file):
            old = read_grants(self._file)
            known = {grant.id for grant in old}
            _write(self._file, [*old, *(grant for grant in made if grant.id not in known)])

    def listed(self) -> list[Grant]:
        """Every grant that counts here, the session's own first."""
        return [*self._own.values(), *self._for_here()]

    def _for_here(self) -> list[Grant]:
        self._refresh()
        return [g for g in self._stored if g.scope == "user" or g.project == self._project]

    def _refresh(self) -> None:
        if self._file is None:
            return
        try:
            status = os.lstat(self._file)
            seen: tuple[int, ...] = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            seen = ()
        if seen == self._seen:
            return
        self._seen, self._stored, self.problem = seen, (), None
        try:
            self._stored = tuple(read_grants(self._file))
        except ConfigError as error:
            self.problem = str(error)


def stored_grants(home: str) -> list[Grant]:
    """Every grant on disk, of all projects."""
    return read_grants(os.path.join(home, FILE))


def revoke(home: str, chosen: Sequence[str]) -> list[Grant]:
    """Revoke the grants with these ids (or beginnings of one); returns them.

    Raises ConfigError when an id fits none or several; then all stay.
    """
    file = os.path.join(home, FILE)
    with _locked(file):
        grants = read_grants(file)
        gone = {_the_one(grants, wanted).id for wanted in chosen}
        _write(file, [grant for grant in grants if grant.id not in gone])
    return [grant for grant in grants if grant.id in gone]


def revoke_all(home: str, project: str | None = None) -> list[Grant]:
    """Revoke every stored grant, or those of one project; returns them."""
    file = os.path.join(home, FILE)
    with _locked(file):
        grants = read_grants(file)
        gone = [grant for grant in grants if project is None or grant.project == project]
        if gone:
            _write(file, [grant for grant in grants if grant not in gone])
    return gone


def _the_one(grants: Sequence[Grant], wanted: str) -> Grant:
    fitting = [grant for grant in grants if wanted and grant.id.startswith(wanted)]
    if len(fitting) != 1:
        how_many = "no grant has" if not fitting else f"{len(fitting)} grants have"
        raise ConfigError(
            f"{how_many} an id that begins with {wanted!r}",
            hints=("`toolrest grants list` has them all.",),
        )
    return fitting[0]


def read_grants(file: str) -> list[Grant]:
    """The grants of a file; ConfigError when it is not one that Toolrest wrote for this user."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read the grants in {file}: {reason(error)}") from None
    with os.fdopen(descriptor, "rb") as stream:
        _refuse_strangers(os.fstat(descriptor), file)
        data = stream.read(MAX_BYTES + 1)
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        loaded = json.loads(data)
        if not isinstance(loaded, Mapping) or loaded.get("version") != VERSION:
            raise ValueError(f"it is not version {VERSION}")
        return [Grant.from_json(item) for item in loaded.get("grants", ())]
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{file}: not a file of grants, so none of them count ({error}); "
            "repair it, or remove it to begin anew"
        ) from None


def _refuse_strangers(status: os.stat_result, file: str) -> None:
    """Reject a grants file that other users can write."""
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{file}: is not a regular file")
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
        raise ConfigError(f"{file}: others can write it, so its grants do not count; chmod 600 it")


def _write(file: str, grants: Sequence[Grant]) -> None:
    rows = [grant.to_json() for grant in grants]
    data = json.dumps({"version": VERSION, "grants": rows}, indent=1).encode()
    draft = f"{file}.{os.getpid()}.{time.monotonic_ns()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(draft, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise ConfigError(f"cannot write the grants to {file}: {reason(error)}") from None


@contextlib.contextmanager
def _locked(file: str) -> Iterator[None]:
    """Lock the grants file against other writers, in all processes of the user."""
    try:
        make_private(os.path.dirname(file))
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{file}.lock", flags, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot lock the grants in {file}: {reason(error)}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def for_scope(key: GrantKey, scope: GrantScope, workspace: str, project: str) -> GrantKey:
    """The key as it is stored for a scope: a session's command counts in its own folder, a
    project's in the whole project, a user's everywhere.
    """
    if key.kind != "run":
        return key
    if scope == "user":
        return replace(key, root="")
    root = key.root or workspace
    return replace(key, root=project if scope == "project" and inside(root, project) else root)
