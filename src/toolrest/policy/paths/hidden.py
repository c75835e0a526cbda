"""Hidden paths, which no tool may read: credentials, `.env`, Toolrest's home, the user's globs.

The list is data. The path policy asks it about real paths, and the sandbox masks the same places.
`.env*` means any file or folder of that name in the workspace or a writable root, at any depth;
templates that are meant to be shared (`.env.example` and the like) stay readable.

In a glob of `hidden_paths`, `~/x` starts at each home, `/x` at the root, `a/b` at the workspace,
and a name without a slash matches at any depth. `*` and `?` stay within a name, `**` crosses
folders, `[ab]` and `[!ab]` are sets. A match hides everything beneath it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from toolrest.errors import ConfigError
from toolrest.policy.paths.names import both_forms, fold, prefixes, unique

_PARTS = re.compile(r"\*\*/|\*+|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)
_INSIDE = re.compile(r"[^/]\*\*/")
_MAGIC = re.compile(r"[*?\[]")


def pattern_of(glob: str, workspace: str, homes: Sequence[str]) -> str:
    """A regular expression over folded absolute paths."""
    forms = unique(_real_forms(_absolute(glob, workspace, homes)))
    return "(?:" + "|".join(_translate(fold(form)) for form in forms) + r")(?:/.*)?\Z"


def _absolute(glob: str, workspace: str, homes: Sequence[str]) -> Iterator[str]:
    glob = glob.rstrip("/") or "/"
    if glob == "~" or glob.startswith("~/"):
        for home in homes:
            yield home.rstrip("/") + glob[1:]
    elif glob.startswith("/"):
        yield glob
    elif "/" in glob:
        yield workspace.rstrip("/") + "/" + glob.removeprefix("./")
    else:
        yield "/**/" + glob


def _real_forms(globs: Iterator[str]) -> Iterator[str]:
    """Each glob as written and with the symlinks of its literal beginning followed."""
    for glob in globs:
        yield glob
        magic = _MAGIC.search(glob)
        end = len(glob) if magic is None else glob.rfind("/", 0, magic.start())
        if end > 0:
            yield os.path.realpath(glob[:end]) + glob[end:]


_STARS = {"**/": "(?:[^/]*/)*?", "*": "[^/]*?"}


def _translate(glob: str) -> str:
    parts = _PARTS.findall(glob)
    return _starred(
        parts, "**", lambda names: _starred(names, "*", lambda p: "".join(map(_piece, p)))
    )


def _starred(parts: Sequence[str], star: str, inner: Callable[[Sequence[str]], str]) -> str:
    """What begins with a star ends as early as it can, because a later star takes the rest.

    So it is not tried twice, and no glob takes for ever. (`**/` inside of a name takes only what
    ends with a slash, so of those there may be one.)
    """
    at = [place for place, part in enumerate(parts) if part.startswith(star)]
    text = inner(parts[: at[0]] if at else parts)
    for start, end in pairwise([*at, len(parts)]):
        one = _STARS.get(parts[start], ".*?") + inner(parts[start + 1 : end])
        is_last = start == at[-1] or (parts[end] == "**/" and parts[end - 1] not in ("/", "**/"))
        text += one if is_last else f"(?>{one})"
    return text


def _piece(part: str) -> str:
    if part == "?":
        return "[^/]"
    if len(part) > 1:
        negated = part[1] == "!"
        body = part[2 if negated else 1 : -1]
        members = "".join(c if c == "-" else re.escape(c) for c in body)
        return f"(?!/)[{'^' if negated else ''}{members}]" if body else re.escape(part)
    return re.escape(part)


HOME_SECRETS: tuple[str, ...] = (
    ".ssh",
    ".aws",
    ".gnupg",
    ".kube",
    ".azure",
    ".oci",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/gcloud",
    ".config/doctl",
    ".config/git/credentials",
    ".config/containers/auth.json",
    ".config/rclone",
    ".config/op",
    ".config/sops",
    ".docker/config.json",
    ".netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings-security.xml",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".databrickscfg",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".boto",
    ".s3cfg",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".gemini/oauth_creds.json",
    ".qwen/oauth_creds.json",
    ".local/share/opencode/auth.json",
    ".config/github-copilot",
    ".config/hcloud",
    ".config/wrangler",
    ".fly/config.yml",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".authinfo",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    "Library/Keychains",
    "Library/Cookies",
    "Library/Application Support/Google/Chrome",
    "Library/Application Support/Chromium",
    "Library/Application Support/BraveSoftware",
    "Library/Application Support/Microsoft Edge",
    "Library/Application Support/Firefox",
)
"""Relative to the user's home; a folder stands for everything in it."""

SYSTEM_SECRETS: tuple[str, ...] = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/run/secrets",
    "/var/run/secrets",
)

VARIABLES: tuple[str, ...] = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NETRC",
    "PGPASSFILE",
)
"""Environment variables that say where a credential place really is."""

TEMPLATES: tuple[str, ...] = (".example", ".sample", ".template", ".dist")
_SKIPPED = frozenset((".git", "node_modules", "site-packages", "__pycache__", ".mypy_cache"))
_KERNEL = frozenset(("/dev", "/proc", "/sys"))

Kind = Literal["credentials", "toolrest", "env", "glob"]


class Hit(NamedTuple):
    """The rule that hides a path."""

    kind: Kind
    rule: str


def home_folders(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The user's homes: the passwd entry's and `$HOME`, which may differ."""
    environ = os.environ if env is None else env
    found = [environ.get("HOME", "")]
    try:
        # There is none on Windows.
        import pwd

        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        pass
    return unique(os.path.normpath(home) for home in found if home.startswith("/"))


def is_env_name(folded: str) -> bool:
    """True for `.env`, `.env.local`, `.envrc` and so on, but not for shared templates."""
    return folded.startswith(".env") and not folded.endswith(TEMPLATES)


class Unhidden:
    """The user's `paths.unhide`: globs of what is neither hidden nor protected after all.

    `named` are those without wildcards, which the sandbox can show inside of a hidden folder.
    """

    def __init__(
        self, globs: Sequence[str] = (), roots: Sequence[str] = (), homes: Sequence[str] = ()
    ) -> None:
        self._patterns = [_compiled(glob, roots, homes, "paths.unhide") for glob in globs]
        plain = (glob for glob in globs if "/" in glob and not _MAGIC.search(glob))
        workspace = roots[0] if roots else "/"
        self.named = unique(
            path
            for glob in plain
            for form in _absolute(glob, workspace, homes)
            for path in both_forms(form)
        )

    def covers(self, folded: str) -> bool:
        """Whether one of the globs matches a folded path, or a folder above it."""
        return any(pattern.match(folded) for pattern in self._patterns)


class HiddenList:
    """The hidden paths: whether a path is hidden, and by which rule. Built once, never changes."""

    def __init__(
        self,
        *,
        homes: Sequence[str],
        roots: Sequence[str],
        globs: Sequence[str] = (),
        toolrest_homes: Sequence[str] = (),
        exceptions: Sequence[str] = (),
        unhidden: Unhidden | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._unhidden = unhidden or Unhidden()
        places = _places(homes, roots, os.environ if env is None else env)
        labels = {path: label for path, label in places if not self._unhidden.covers(fold(path))}
        for home in toolrest_homes:
            for form in both_forms(home):
                labels[form] = ("toolrest", "$TOOLREST_HOME")
        self.fixed: tuple[str, ...] = tuple(labels)
        self._labels = {fold(path): Hit(*label) for path, label in labels.items()}
        self._prefixes = prefixes(self._labels)
        self._parents = frozenset(os.path.dirname(path) for path in self._labels)
        self._exceptions = prefixes(exceptions)
        self.roots = tuple(roots)
        self._env_roots = prefixes(fold(root) for root in roots)
        self._globs = [(glob, _compiled(glob, roots, homes)) for glob in globs]

    def hit(self, path: str) -> Hit | None:
        """The rule that hides this absolute, normalised path, or None."""
        folded = fold(path)
        found = self._built_in(folded)
        if found is not None and found.kind != "toolrest" and self._unhidden.covers(folded):
            return None
        if found is not None and not (path + "/").startswith(self._exceptions):
            return found
        for glob, pattern in self._globs:
            if pattern.match(folded) and not self._unhidden.covers(folded):
                return Hit("glob", glob)
        return None

    def _built_in(self, folded: str) -> Hit | None:
        slashed = folded + "/"
        if slashed.startswith(self._prefixes):
            while folded not in self._labels:
                folded = os.path.dirname(folded)
            return self._labels[folded]
        if "/.env" in folded and slashed.startswith(self._env_roots):
            for root in self._env_roots:
                if slashed.startswith(root):
                    for name in slashed[len(root) :].split("/"):
                        if is_env_name(name):
                            return Hit("env", f".env* ({name})")
        return None

    def filter(self, directory: str) -> Callable[[str], bool] | None:
        """A quick test for the names in one folder, or None when nothing in it is hidden."""
        base = directory if directory.endswith("/") else directory + "/"
        folded = fold(base)
        special = fold(directory) in self._parents
        if not (special or self._globs or folded.startswith(self._env_roots)):
            return None
        if not (special or self._globs):
            # Only `.env*` can be meant, also in letters that fold to it.
            return lambda name: (
                not (name.isascii() and name[0] != ".") and self.hit(base + name) is not None
            )
        return lambda name: self.hit(base + name) is not None

    def found(self, limit: int = 200_000) -> Iterator[str]:
        """Existing files and folders in the roots that `.env*` or a glob hides.

        Looks at no more than `limit` entries, and not into `.git`, dependencies and caches.
        """
        pending = list(reversed(self.roots))
        while pending and limit > 0:
            directory = pending.pop()
            hidden = self.filter(directory)
            try:
                entries = os.scandir(directory)
            except PermissionError:
                # A command may have closed it, and could open it again.
                if directory in self.roots:
                    raise ConfigError(
                        f"{directory} cannot be searched for hidden files: give yourself the right"
                        " to read it (`chmod u+rx`)"
                    ) from None
                yield directory
                continue
            except OSError:
                continue
            with entries:
                for entry in entries:
                    limit -= 1
                    if hidden is not None and hidden(entry.name):
                        if not self._leads_astray(entry):
                            yield entry.path
                    elif _worth_entering(entry):
                        pending.append(entry.path)
                    if limit <= 0:
                        break

    def _leads_astray(self, entry: os.DirEntry[str]) -> bool:
        """Whether this is a link that only looks like an `.env`, and would hide a folder."""
        if not entry.is_symlink():
            return False
        hit = self.hit(entry.path)
        if hit is None or hit.kind != "env":
            return False
        try:
            return stat.S_ISDIR(entry.stat().st_mode)
        except FileNotFoundError:
            return False  # it may come yet
        except OSError:
            return True


def _worth_entering(entry: os.DirEntry[str]) -> bool:
    return (
        entry.is_dir(follow_symlinks=False)
        and entry.name not in _SKIPPED
        and entry.path not in _KERNEL
    )


def _compiled(
    glob: str, roots: Sequence[str], homes: Sequence[str], setting: str = "hidden_paths"
) -> re.Pattern[str]:
    if len(_INSIDE.findall(glob)) > 1:
        raise ConfigError(f"{setting}: {glob!r} has several `**/` inside of names; write `/**/`")
    try:
        return re.compile(pattern_of(glob, roots[0] if roots else "/", homes), re.DOTALL)
    except re.error as error:
        raise ConfigError(f"{setting}: {glob!r} is not a usable glob: {error}") from None


def _places(
    homes: Sequence[str], roots: Sequence[str], env: Mapping[str, str]
) -> Iterator[tuple[str, tuple[Kind, str]]]:
    for home in homes:
        for real_home in both_forms(home):
            for name in HOME_SECRETS:
                for form in both_forms(os.path.join(real_home, name)):
                    yield form, ("credentials", f"~/{name}")
    for path in SYSTEM_SECRETS:
        for form in both_forms(path):
            yield form, ("credentials", path)
    for variable in VARIABLES:
        for path in _named_by(env.get(variable, ""), [*homes, *roots]):
            yield path, ("credentials", f"${variable}")


def _named_by(value: str, kept: Iterable[str]) -> Iterator[str]:
    """Paths in a variable, but none so wide that it would hide a home or a root."""
    for item in value.split(os.pathsep):
        for path in both_forms(item) if item.startswith("/") else ():
            if not any(f"{keep}/".startswith(prefixes([path])) for keep in kept):
                yield path
