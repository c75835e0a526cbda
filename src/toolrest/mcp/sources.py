"""Hashes of the sources that a server may run and tools may write, one a folder, to be pinned.

A server may have a network that commands lack, which a tool that changes its code must not gain.
`python -m srv`, `node .` and an import name no file: then every source in the folder where they
are looked for counts. A server's data may change.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

from toolrest.own_code import Safe
from toolrest.private_files import hash_file
from toolrest.process.command import Command

MOST_FILES, MOST_BYTES = 2_000, 64_000_000
"""Past these limits size, inode and times, which no tool can all restore, replace the content."""

Kind: TypeAlias = Literal["python", "node", "script", "project", "fetched"]
"""How a program finds code: an interpreter by the file or module that it names; a project runner
in the whole folder; one that fetches packages by the folder's settings of their source."""

_PROGRAMS: tuple[tuple[str, Kind], ...] = (
    (r"(python|pypy)[0-9.]*", "python"),
    (r"node|nodejs", "node"),
    (r"(ba|z|da|k|fi)?sh|(ruby|perl|php)[0-9.]*|java", "script"),
    (r"npx|bunx|uvx|pipx", "fetched"),
    (r"deno|bun|tsx|ts-node|npm|pnpm|yarn|uv|poetry|pdm|hatch|rye|bundle|dotnet", "project"),
    (r"go|cargo|make|just", "project"),
)
_PYTHON = (".py", ".pyc", ".pyd", ".so", ".pth", ".zip", ".whl", ".egg")
_NODE = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx", ".node", ".wasm")
_MORE = (".sh", ".rb", ".pl", ".pm", ".php", ".jar", ".class", ".go", ".rs", ".c", ".h", ".cs")
_ALL = (*_PYTHON, *_NODE, *_MORE)
_SETTINGS = (
    *("pyproject.toml", "uv.toml", "uv.lock", ".python-version", "package.json", ".npmrc"),
    *(".yarnrc.yml", "tsconfig.json", "deno.json", "deno.jsonc", "bunfig.toml", "Makefile"),
    *("justfile", "Cargo.toml", "go.mod", "Gemfile"),
)
_SKIPPED = (".git", "__pycache__")
"""Folders that hold no sources; compiled files go to a folder of each server's own."""
_ENVIRONMENTS = (".venv", "venv", ".tox", ".nox")
_LISTS = ("PYTHONPATH", "NODE_PATH", "RUBYLIB", "PERL5LIB", "CLASSPATH")
_FOLDER_OPTIONS = ("--directory", "-C", "--prefix", "--cwd", "--dir")
_MODULE = re.compile(r"-[A-Za-z]*[mce].*")
"""Options with which a program is named, or given, without a file."""


def source_hashes(command: Command, roots: Sequence[str]) -> dict[str, str]:
    """The folders whose sources a command may run and a tool may write, each with their hash."""
    safe = Safe(roots)
    found: dict[str, str] = {}
    for folder, suffixes in dict.fromkeys(_folders(command)):
        files, digest = _hash(folder, suffixes, safe)
        if files:
            found[f"{folder}/ ({files} sources)"] = digest
    return found


def kind_of(argv: Sequence[str]) -> Kind | None:
    """How this program finds code; None when it brings its own."""
    name = os.path.basename(_started(argv)[0])
    return next((kind for pattern, kind in _PROGRAMS if re.fullmatch(pattern, name)), None)


def is_by_name(argv: Sequence[str]) -> bool:
    """Whether an interpreter is given a module or code instead of a file."""
    return any(_MODULE.fullmatch(word) for word in _started(argv)[1:])


def _started(argv: Sequence[str]) -> Sequence[str]:
    """The command that `env` starts."""
    words = list(argv)
    while len(words) > 1 and os.path.basename(words[0]) == "env":
        words = words[1:]
        while len(words) > 1 and (words[0].startswith("-") or "=" in words[0]):
            words = words[1:]
    return words


def _folders(command: Command) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Folders with code, and the suffixes of its files; without suffixes only settings count."""
    argv = _started(command.argv)
    kind, cwd = kind_of(argv), os.path.realpath(os.path.join(command.cwd, _elsewhere(argv)))
    suffixes = {"python": _PYTHON, "node": _NODE, "fetched": ()}.get(kind or "", _ALL)
    if "/" in argv[0]:
        yield from _around(os.path.join(cwd, argv[0]), _ALL)
    if kind is None:
        return
    named = False
    for word in argv[1:]:
        path = os.path.join(cwd, word)
        if os.path.isfile(path) and (not named or path.endswith(_ALL)):
            named = True
            yield from _around(path, suffixes or _ALL)
        elif os.path.isdir(path) and kind in ("node", "project"):
            yield os.path.realpath(path), suffixes  # `node .`
    if kind == "fetched":
        yield os.path.join(cwd, "node_modules"), _ALL
    if kind in ("project", "fetched") or is_by_name(argv) or not named:
        yield cwd, suffixes
    for name in _LISTS:
        for entry in filter(None, command.env.get(name, "").split(os.pathsep)):
            yield os.path.realpath(os.path.join(cwd, entry)), suffixes or _ALL


def _elsewhere(argv: Sequence[str]) -> str:
    """The working folder in a runner's options: `uv --directory`, `make -C`."""
    for word, following in pairwise((*argv[1:], "")):
        name, _, value = word.partition("=")
        if name in _FOLDER_OPTIONS and kind_of(argv) == "project":
            return value or following
    return ""


def _around(path: str, suffixes: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The folder of a file, as named and resolved; for an installed program, its whole prefix.

    An environment's Python is a link to another one, and its packages lie beside the link.
    """
    for form in (os.path.normpath(path), os.path.realpath(path)):
        folder = os.path.dirname(form)
        installed = os.path.basename(folder) in ("bin", ".bin")
        yield (os.path.dirname(folder), _ALL) if installed else (folder, suffixes)


def _hash(folder: str, suffixes: tuple[str, ...], safe: Safe) -> tuple[int, str]:
    digest, files, size = hashlib.sha256(), 0, 0
    for path in _sources(folder, suffixes, safe):
        try:
            status = os.stat(path)
        except OSError:
            continue
        files, size = files + 1, size + status.st_size
        content = hash_file(path) if files <= MOST_FILES and size <= MOST_BYTES else None
        times = (status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        name = path.removeprefix(folder)  # the folder itself is named beside the hash
        digest.update(f"{name}\0{content or times}\0".encode("utf-8", "surrogateescape"))
    return files, digest.hexdigest()[:16]


def _sources(folder: str, suffixes: tuple[str, ...], safe: Safe) -> Iterator[str]:
    """The sources in a folder and below it, in order; links to other folders are followed.

    Folders that no tool may write are left out.
    """
    pending, seen = [folder], set[str]()
    while pending:
        place = pending.pop()
        real = os.path.realpath(place)
        if real in seen or safe.has(real):
            continue
        seen.add(real)
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name in _SKIPPED or (suffixes != _ALL and entry.name in _ENVIRONMENTS):
                continue
            if entry.is_dir():
                pending += [entry.path] if suffixes else []
            elif entry.name in _SETTINGS or (suffixes and entry.name.endswith(suffixes)):
                yield entry.path
