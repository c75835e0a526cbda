"""Path rules: the path policy's judgements on path names, without opening anything.

Reads: everything but the hidden list and the guarded parts of `/proc`, `/sys` and `/dev`;
`read_roots` narrows that. Writes: beneath the writable roots, but for protected and hidden names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self, TypeAlias, get_args

from toolrest.config.files import BATCH_TASKS, USERS_HOME
from toolrest.errors import ConfigError, Rejected
from toolrest.policy.paths import kernel_files as pseudo
from toolrest.policy.paths.hidden import HiddenList, Hit, Unhidden, home_folders
from toolrest.policy.paths.locate import PATH_MAX, link_steps, real_path
from toolrest.policy.paths.names import fold, inside, prefixes, unique
from toolrest.policy.paths.protected import ProtectedPlaces, protected_part

SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
AnyPath: TypeAlias = "str | os.PathLike[str]"
MAX_FILE_SIZE = 100_000_000
TMP_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 - what most kinds of sandbox have for themselves
EXCEPTION = "the user's paths.unhide makes exceptions"


class PathRules:
    """The rules of one session, built from the launcher's values and fixed from then on.

    Roots have their symlinks followed once, here: nothing that a model says moves them.
    `exceptions` stay readable although a built-in rule hides them; `protected` are more places
    that may not be written inside a root. `unhide` are the user's globs: what they match is
    neither hidden nor protected, but for Toolrest's own home and code. `shared_tmp` are the host's
    folders for temporary files, where commands may write those; None where they have their own.
    """

    def __init__(
        self,
        workspace: AnyPath,
        *,
        cwd: AnyPath | None = None,
        mode: SandboxMode = "workspace-write",
        writable_roots: Sequence[AnyPath] = (),
        read_roots: Sequence[AnyPath] | None = None,
        hidden: Sequence[str] = (),
        unhide: Sequence[str] = (),
        toolrest_home: AnyPath | None = None,
        exceptions: Sequence[AnyPath] = (),
        protected: Sequence[AnyPath] = (),
        max_file_size: int = MAX_FILE_SIZE,
        homes: Sequence[str] | None = None,
        approved: bool = False,
        shared_tmp: Sequence[AnyPath] | None = None,
    ) -> None:
        self._given: dict[str, Any] = {
            "workspace": workspace,
            "cwd": cwd,
            "writable_roots": writable_roots,
            "read_roots": read_roots,
            "hidden": hidden,
            "unhide": unhide,
            "toolrest_home": toolrest_home,
            "exceptions": exceptions,
            "protected": protected,
            "max_file_size": max_file_size,
            "homes": homes,
            "shared_tmp": shared_tmp,
        }
        if mode not in get_args(SandboxMode):
            raise ConfigError(f"sandbox_mode: {mode!r} is not one of {get_args(SandboxMode)}")
        users = home_folders() if homes is None else tuple(homes)
        self.workspace = _rooted(workspace)
        self.cwd = self.workspace if cwd is None else _rooted(cwd, self.workspace)
        self.mode: SandboxMode = mode
        self.max_file_size = max_file_size
        users_own = tuple(map(_rooted, _default_homes(users)))
        self.toolrest_home = users_own[0] if toolrest_home is None else _rooted(toolrest_home)
        self._approved = approved
        granted = unique((self.workspace, *(_rooted(r, self.workspace) for r in writable_roots)))
        self.tool_roots = granted
        """Where tools of this session or of another may write, whatever its mode: what lies there
        may be theirs."""
        self.writable_roots: tuple[str, ...] = {
            "read-only": (),
            "workspace-write": granted,
            "danger-full-access": ("/",),
        }[mode]
        shared = [_rooted(path, self.workspace) for path in shared_tmp or ()]
        self._shared_tmp = tuple(shared) if mode == "workspace-write" else ()
        own_tmp = TMP_FOLDERS if shared_tmp is None else ()
        self.own_tmp = tuple(tmp for tmp in own_tmp if not any(inside(r, tmp) for r in granted))
        """Folders that the sandbox has for itself. One that holds a root means the host's: a file
        beside a project is not lost in a folder that nobody else sees."""
        unhidden = Unhidden(unhide, granted, users)
        self.exceptions = tuple(_rooted(path) for path in exceptions)
        self.read_roots: tuple[str, ...] | None = None
        if read_roots is not None:
            extra = (_rooted(path, self.workspace) for path in read_roots)
            self.read_roots = unique((*granted, *extra, *self.exceptions))
        self._hidden = HiddenList(
            homes=users,
            roots=granted,
            globs=hidden,
            toolrest_homes=(self.toolrest_home, *users_own),
            exceptions=self.exceptions,
            unhidden=unhidden,
        )
        self._inner_roots = unique((*granted, *self.writable_roots))
        self._protected = ProtectedPlaces(
            roots=granted,
            homes=users,
            extra=[os.fspath(path) for path in protected],
            reach=self._inner_roots,
            unhidden=unhidden,
        )
        self._granted = prefixes(granted)
        self._own = prefixes(map(fold, (self.toolrest_home, *users_own)))
        hidden_folders = prefixes(self._hidden.fixed)
        self.shown = (
            *self.exceptions,
            *(
                path
                for path in unhidden.named
                if path.startswith(hidden_folders) and self._hidden.hit(path) is None
            ),
        )
        """What the sandbox shows although it lies in a hidden folder."""

    @property
    def command_roots(self) -> tuple[str, ...]:
        """Where confined commands may write, their own folders for temporary files included."""
        return (*self.writable_roots, *self._shared_tmp, *self.own_tmp)

    def let_out(self) -> Self:
        """The same rules for a call that was approved to leave the roots: protected names are
        open to it; what is hidden, and Toolrest's own home, stay closed.
        """
        return type(self)(**{**self._given, "mode": "danger-full-access", "approved": True})

    def read_only(self) -> Self:
        """The same rules for what only looks."""
        return type(self)(**{**self._given, "mode": "read-only"})

    def resolve(self, path: AnyPath) -> str:
        """An absolute path without `.` and `..`; relative ones start from `cwd`."""
        text = os.fspath(path)
        if "\0" in text:
            raise Rejected("a path cannot contain a NUL character", kind="input_invalid")
        if not text.isascii():
            try:
                os.fsencode(text)
            except UnicodeEncodeError:
                message = f"the path {text!r} is not valid Unicode text"
                raise Rejected(message, kind="input_invalid") from None
        full = os.path.normpath(text if text.startswith("/") else f"{self.cwd}/{text}")
        return full[1:] if full.startswith("//") else full

    def canonical(self, path: AnyPath) -> str:
        """The resolved path with its symlinks followed as far as they exist."""
        return real_path(self.resolve(path))

    def write_denied(self, path: AnyPath, *, follow: bool = True) -> str | None:
        """Why this path may not be written, naming the rule; None when it may.

        With `follow=False` only the text of the path counts; symlinks are not looked at.
        """
        try:
            full = self.resolve(path)
        except Rejected as error:
            return error.message
        real = real_path(full) if follow else full
        rule = self.write_rule(real)
        if rule is None and real != full:
            rule = next(filter(None, map(self._inner_rule, steps_of(full))), None)
        return None if rule is None else unwritable(full, real, rule)

    def hidden_paths(self) -> list[str]:
        """Every hidden place, for the sandbox to mask; `exceptions` may lie inside.

        The fixed ones, existing or not, and what `.env*` and the user's globs match in the
        roots right now, which takes a walk through them.
        """
        return list(unique((*self._hidden.fixed, *self._hidden.found())))

    def protected_paths(self, root: str) -> list[str]:
        """What the sandbox keeps read-only in a writable root, existing or not."""
        return self._protected.within(root)

    def read_rule(self, path: str) -> str | None:
        """The rule that a real path runs into when it is read."""
        return self._place_rule(path) or self.read_roots_rule(path)

    def read_roots_rule(self, path: str) -> str | None:
        """The rule of `read_roots` that a real path runs into."""
        if self.read_roots is None or any(inside(path, root) for root in self.read_roots):
            return None
        return f"it is outside read_roots ({', '.join(self.read_roots)})"

    def step_rule(self, full: str) -> str | None:
        """The rule that a path runs into on its way, through the symlinks it is spelled with."""
        return next(filter(None, map(self._place_rule, steps_of(full))), None)

    def _place_rule(self, path: str) -> str | None:
        guarded = pseudo.refused_by_path(path)
        if guarded is not None and not (path + "/").startswith(self._granted):
            return f"{guarded}; no setting allows it"
        hit = self._hidden.hit(path)
        return None if hit is None else _hidden_rule(hit)

    def write_rule(self, real: str) -> str | None:
        """The rule that a real path runs into when it is written."""
        if (fold(real) + "/").startswith(self._own):
            return "it is in Toolrest's own home; no setting allows it"
        if not self.writable_roots:
            return 'sandbox_mode is "read-only"; "workspace-write" allows it in the workspace'
        writable = (*self.writable_roots, *self._shared_tmp)
        if not any(inside(real, root) for root in writable):
            roots = ", ".join(writable)
            return (
                f"it is outside the writable roots ({roots}); "
                "sandbox_workspace_write.writable_roots adds more"
            )
        return self._inner_rule(real)

    def _inner_rule(self, path: str) -> str | None:
        """The rule against writing here although it is inside a root."""
        hit = self._hidden.hit(path)
        # A new .env shows nothing; an existing one must not be overwritten unseen.
        if hit is not None and (hit.kind != "env" or os.path.lexists(path)):
            return _hidden_rule(hit)
        return None if self._approved else self._protected_rule(path)

    def _protected_rule(self, path: str, *, command: bool = False) -> str | None:
        # Of nested roots the innermost was granted on purpose, so it decides.
        root = max((r for r in self._inner_roots if inside(path, r)), key=len, default=None)
        if root is None or self._protected.is_unhidden(path):
            return None
        part = protected_part(path[len(root) :].lstrip("/"), command=command)
        if part is None and self._protected.covers(path):
            part = "a start-up file, a git folder or Toolrest's own code"
        return None if part is None else f"{part} is protected; {EXCEPTION}"

    def hidden_rule(self, path: AnyPath) -> str | None:
        """Why a command that names this path is denied, in every mode; None when it is not."""
        full = self.resolve(path)
        for spelling in unique((full, real_path(full))):
            hit = self._hidden.hit(spelling)
            if hit is not None and (hit.kind != "env" or os.path.lexists(spelling)):
                return f"{full}: {_hidden_rule(hit)}"
        return None

    def protected_rule(self, path: AnyPath, *, command: bool = False) -> str | None:
        """Why writing this path takes a person's approval, also where settings answer; or None.

        A command may write most of `.git`, as it may in the sandbox.
        """
        full = self.resolve(path)
        rules = (self._protected_rule(p, command=command) for p in (full, real_path(full)))
        rule = next(filter(None, rules), None)
        return None if rule is None else f"{full}: {rule}"


def steps_of(full: str) -> Iterator[str]:
    """The spellings that a path passes through; an impossible length is not even looked up."""
    if len(full) >= PATH_MAX:
        yield full
    else:
        yield from link_steps(full)


def unreadable(full: str, real: str, rule: str) -> str:
    """The message of a refused read."""
    return f"{_named(full, real)} cannot be read: {rule}"


def unwritable(full: str, real: str, rule: str) -> str:
    """The message of a refused write."""
    return f"{_named(full, real)} cannot be written: {rule}"


def _named(full: str, real: str) -> str:
    return full if real == full else f"{full} (it leads to {real})"


def _rooted(path: AnyPath, base: str | None = None) -> str:
    """A launcher's path, absolute and with its symlinks followed."""
    text = os.path.expanduser(os.fspath(path))
    return real_path(os.path.abspath(text if base is None else os.path.join(base, text)))


def _default_homes(homes: Sequence[str]) -> list[str]:
    """Homes of Toolrest that this user may have: the one in force first; all may hold keys.

    In a batch also what other tasks have stored: their sessions are as private as those in a home.
    """
    found = [os.path.join(home, ".toolrest") for home in homes or ("/",)]
    named = (os.environ.get(name) for name in ("TOOLREST_HOME", USERS_HOME))
    return [*filter(None, named), *found, *filter(None, [os.environ.get(BATCH_TASKS)])]


def _hidden_rule(hit: Hit) -> str:
    if hit.kind == "glob":
        return f'it is hidden from tools by "{hit.rule}" in hidden_paths; {EXCEPTION}'
    if hit.kind == "toolrest":
        return "it is in Toolrest's own home, which is hidden from tools; no setting allows it"
    return f"it is hidden from tools by the built-in rule {hit.rule}; {EXCEPTION}"
