"""The purpose of a command line, for events: read, list_files, search or unknown.

This describes and decides nothing: what may run is for `policy/verdict`. A line is described
part by part only when every part of it merely looks and is understood; any other is `unknown`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from toolrest.policy.commands.git import git_command, git_reads
from toolrest.policy.commands.options import Options, read_options
from toolrest.policy.commands.read_only import FIND_TAKES, Spec, read_by, safe_reads, spec_of
from toolrest.policy.shell.nested import SHELLS, unwrap
from toolrest.policy.shell.parse import parse
from toolrest.policy.shell.script import (
    SUBSTITUTION,
    UNREADABLE,
    VARIABLE,
    Redirect,
    Script,
    Simple,
)
from toolrest.policy.shell.words import is_calm, split_program, wordset

if TYPE_CHECKING:
    from toolrest.items import JSONObject


class Purpose(NamedTuple):
    """`kind` is read, list_files or search; `helps` shapes or joins what others say."""

    kind: str
    paths: tuple[str, ...] = ()
    query: str | None = None


HELPS: Final = Purpose("helps")

_READERS = wordset("cat nl tac head tail bat batcat less more jq od hexdump strings")
_LISTERS = wordset("ls tree eza exa")
_SEARCHERS = wordset("rg grep egrep fgrep ag fd fdfind")
_TALKERS = wordset("echo printf true : pwd test [ exit")
_HELPERS = wordset(
    "wc sort uniq cut tr column paste rev fold fmt expand unexpand comm join shuf seq basename"
    " dirname"
)
_ALIASES = {"egrep": "grep", "fgrep": "grep", "batcat": "bat", "fdfind": "fd", "exa": "eza"}

# Programs that are asked about before they run, though these words of theirs only look.
_LOOKERS: dict[str, Spec] = {
    "bat": Spec(
        flags="npAPuS",
        takes="lrHm",
        longs=wordset("--plain --number --show-all --no-pager --unbuffered"),
        long_takes=wordset("--language --line-range --highlight-line --style --color --paging"
            " --theme --wrap --tabs --terminal-width"),
    ),
    "less": Spec(flags="NSRFXiIMnsEeqr"),
    "more": Spec(flags="dflcpsu"),
    "ag": Spec(
        flags="aciflLnQrRsStuUvwz0H",
        takes="ABCGm",
        longs=wordset("--hidden --literal --nocolor --noheading --nogroup --count --ignore-case"
            " --files-with-matches --word-regexp --smart-case --case-sensitive --numbers"),
        long_takes=wordset("--ignore --depth --max-count --context --after --before"),
        skip=1,
    ),
    "eza": Spec(
        flags="1aABbdDfFghHilmnrRStTuUx@",
        takes="LsI",
        longs=wordset("--all --long --tree --recurse --git --header --icons --oneline --reverse"
            " --git-ignore --group-directories-first --only-dirs"),
        long_takes=wordset("--level --sort --ignore-glob --color --colour --time --time-style"),
    ),
}  # fmt: skip

_SED_PRINTS = re.compile(r"(?:\d+(?:,(?:\d+|\$))?p;?[ ]?)+|\$p")
_SED_CHANGES = re.compile(r"s([/|#,@])(?:(?!\1)[^\\]|\\.)*\1(?:(?!\1)[^\\]|\\.)*\1[gIip\d]*")
_AWK_ACTS = re.compile(r"system|getline|close|printf?\b[^;}]*>|>>|>(?!=)|\|(?!\|)|@")


def purpose_of(argv: tuple[str, ...], piped: bool) -> Purpose | None:
    """What a command is for, or None when it may do more than look or is not known.

    `piped` says that it is fed by another command, so that it needs no file of its own.
    """
    folder, name = split_program(argv[0])
    if folder not in ("", "/bin", "/usr/bin"):
        return None
    special = _SPECIALS.get(name)
    if special is not None:
        return special(argv, piped)
    if name in _READERS:
        return _reads(name, argv, piped)
    if name in _LISTERS:
        options = _options(name, argv)
        return None if options is None else Purpose("list_files", _words(argv, options.operands))
    if name in _SEARCHERS:
        return _searches(name, argv, piped)
    if name in _TALKERS or name in _HELPERS:
        return None if safe_reads(argv) is None else HELPS
    return None


def _options(name: str, argv: tuple[str, ...]) -> Options | None:
    """The command's words in order, or None when one of them may do more than look."""
    name = _ALIASES.get(name, name)
    spec = _LOOKERS.get(name) or spec_of(name)
    if spec is None or read_by(argv, spec) is None:
        return None
    return read_options(argv, spec.takes, spec.long_takes)


def _words(argv: tuple[str, ...], places: list[int]) -> tuple[str, ...]:
    return tuple([argv[place] for place in places if argv[place] not in ("-", "{}")])


def _read_all(paths: tuple[str, ...], piped: bool) -> Purpose | None:
    if paths:
        return Purpose("read", paths)
    return HELPS if piped else None


def _reads(name: str, argv: tuple[str, ...], piped: bool) -> Purpose | None:
    options = _options(name, argv)
    if options is None:
        return None
    first = 1 if name == "jq" and not options.has("f", "--from-file") else 0
    return _read_all(_words(argv, options.operands[first:]), piped)


def _searches(name: str, argv: tuple[str, ...], piped: bool) -> Purpose | None:
    options = _options(name, argv)
    if options is None:
        return None
    if name == "rg" and options.has("--files"):
        return Purpose("list_files", _words(argv, options.operands))
    if options.has("--version", "--help", "--type-list") or options.has("f", "--file"):
        return None
    query = None if name in ("fd", "fdfind") else options.value("e", "--regexp")
    places = options.operands
    if query is None and places:
        query, places = argv[places[0]], places[1:]
    if query is None:
        return Purpose("list_files") if name in ("fd", "fdfind") and not piped else None
    return Purpose("search", _words(argv, places), query)


_FIND_NAMES = wordset("-name -iname -path -ipath -wholename -iwholename -regex -iregex")


def _find(argv: tuple[str, ...], piped: bool) -> Purpose | None:
    if safe_reads(argv) is None:
        return None
    query, start = None, len(argv)
    index = 1
    while index < len(argv):
        word = argv[index]
        if word[:1] in ("-", "(", "!") and word not in ("-H", "-L", "-P"):
            start = min(start, index)
        if word in _FIND_NAMES and query is None:
            query = argv[index + 1] if index + 1 < len(argv) else None
        index += 2 if word in FIND_TAKES else 1
    paths = tuple([word for word in argv[1:start] if word not in ("-H", "-L", "-P")])
    return Purpose("list_files", paths) if query is None else Purpose("search", paths, query)


_GREP_TAKES = wordset("--max-count --max-depth --threads --context --after-context"
    " --before-context")  # fmt: skip


def _git(argv: tuple[str, ...], piped: bool) -> Purpose | None:
    start = git_command(argv)
    before, words = argv[1:start], argv[start:]
    if not words or git_reads(("git", *words)) is None:
        return None
    folder = ""
    if before[:1] == ("-C",) and len(before) == 2:
        folder = before[1]
    elif before not in ((), ("--no-pager",), ("-P",)):
        return None
    found = _GIT.get(words[0])
    purpose = None if found is None else found(words)
    if purpose is None or not folder:
        return purpose
    paths = tuple([f"{folder}/{path}" for path in purpose.paths]) or (folder,)
    return purpose._replace(paths=paths)


def _git_grep(words: tuple[str, ...]) -> Purpose | None:
    options = read_options(words, "eABCmf", _GREP_TAKES)
    query, places = options.value("e"), options.operands
    if query is None and places:
        query, places = words[places[0]], places[1:]
    if query is None or options.has("f"):
        return None
    if "--" in words:
        places = [place for place in places if place > words.index("--")]
    return Purpose("search", _words(words, places), query)


def _git_files(words: tuple[str, ...]) -> Purpose | None:
    options = read_options(words, "xX", wordset("--exclude --exclude-from --format"))
    return Purpose("list_files", _words(words, options.operands))


_GIT = {"grep": _git_grep, "ls-files": _git_files}


def _sed(argv: tuple[str, ...], piped: bool) -> Purpose | None:
    options = read_options(argv, "e", wordset("--expression"))
    if options.flags - {"n", "e", "E", "r", "--quiet", "--silent", "--expression"}:
        return None
    scripts = [text for texts in options.values.values() for text in texts]
    places = options.operands
    if not scripts and places:
        scripts, places = [argv[places[0]]], places[1:]
    for script in scripts:
        if not (_SED_PRINTS.fullmatch(script) or _SED_CHANGES.fullmatch(script)):
            return None
    return _read_all(_words(argv, places), piped) if scripts else None


def _awk(argv: tuple[str, ...], piped: bool) -> Purpose | None:
    options = read_options(argv, "F")
    if options.flags - {"F"} or not options.operands:
        return None
    program, *files = options.operands
    if _AWK_ACTS.search(argv[program]):
        return None
    return _read_all(_words(argv, files), piped)


_SPECIALS = {"find": _find, "git": _git, "sed": _sed, "awk": _awk, "gawk": _awk}


MAX_LENGTH: Final = 2_000
"""Longer ones are programs rather than looks, and are not read a second time."""

_MAX_NESTING = 3
_UNCLEAR = VARIABLE | SUBSTITUTION | UNREADABLE
_ABSOLUTE = ("/", "~")


def parsed_command(
    command: str | tuple[str, ...], parsed: Mapping[str, Script] | None = None
) -> tuple[JSONObject, ...]:
    """One entry for each part of a command line or argument vector. Never raises.

    A `read` has an entry for each file. Paths are as written, after the `cd`s before them.
    `parsed` are scripts that were parsed before, by their text.
    """
    line = script_of(command) if isinstance(command, tuple) else command
    try:
        reader = _Reader(parsed or {})
        if line is not None:
            reader.line(line, "", 0)
        else:
            reader.command(Simple(tuple(command)), "", 0)
        found = reader.entries
    except Exception:  # a description is never worth a failed command
        found = []
    if found:
        return tuple(found)
    return ({"type": "unknown", "cmd": shlex.join(command) if line is None else line},)


def script_of(argv: tuple[str, ...]) -> str | None:
    """The script of `bash -lc SCRIPT` and its like, or None."""
    if len(argv) != 3 or argv[1] not in ("-c", "-lc") or split_program(argv[0])[1] not in SHELLS:
        return None
    return argv[2]


class _Unclear(Exception):
    """Some part is no mere look, or is not understood."""


class _Reader:
    """Gathers the entries of one line."""

    def __init__(self, parsed: Mapping[str, Script]) -> None:
        self.entries: list[JSONObject] = []
        self._parsed = parsed

    def line(self, text: str, folder: str, depth: int) -> None:
        """Every command of a script; raises `_Unclear`."""
        if len(text) > MAX_LENGTH or depth > _MAX_NESTING:
            raise _Unclear
        script = self._parsed.get(text) or parse(text)
        if script.problems or script.too_big or script.constructs - {"comment"}:
            raise _Unclear
        folders = {0: folder}
        for simple in script.commands:
            self._step(simple, script, folders, depth)

    def _step(self, simple: Simple, script: Script, folders: dict[int, str], depth: int) -> None:
        group = simple.group
        while group not in folders:
            group = script.parents[group]
        folder = folders[group]
        if simple.argv[:1] == ("cd",):
            folders[simple.group] = _moved(simple, folder)
        else:
            self.command(simple, folder, depth)

    def command(self, simple: Simple, folder: str, depth: int) -> None:
        """One command, or what it wraps."""
        if not simple.argv or not _is_clear(simple):
            raise _Unclear
        inner = unwrap(simple)
        piped = simple.upstream >= 0
        argv = simple.argv
        if inner is not None:
            part = inner.inners[0]
            xargs = argv[0] == "xargs" and len(part.argv) > 1
            if len(inner.inners) != 1 or part.opaque or inner.moved:
                raise _Unclear
            if part.script is not None and inner.transparent:
                self.line(part.script, folder, depth + 1)
                return
            if not (inner.transparent or xargs):
                raise _Unclear
            # xargs' own word stands for files that are not known yet.
            argv = part.argv[:-1] if xargs else part.argv
        purpose = purpose_of((*argv, *_fed(simple.redirects)), piped)
        if purpose is None:
            raise _Unclear
        if purpose is not HELPS:
            self._add(purpose, _joined(simple), folder)

    def _add(self, purpose: Purpose, cmd: str, folder: str) -> None:
        paths = [_under(folder, path) for path in purpose.paths]
        entries: list[JSONObject]
        if purpose.kind == "read":
            entries = [
                {"type": "read", "cmd": cmd, "name": _name(path), "path": path} for path in paths
            ]
        else:
            entry: JSONObject = {"type": purpose.kind, "cmd": cmd}
            if purpose.kind == "search":
                entry["query"] = purpose.query
            entries = [{**entry, "path": paths[0] if paths else folder or None}]
        self.entries += [entry for entry in entries if entry not in self.entries]


def _is_clear(simple: Simple) -> bool:
    """No value that only the shell knows, no variable that matters, nothing written."""
    if simple.marks and any(mark & _UNCLEAR for mark in simple.marks):
        return False
    if any(each.mark or not is_calm(each.name, each.value) for each in simple.assignments):
        return False
    return all(map(_is_quiet, simple.redirects))


def _is_quiet(redirect: Redirect) -> bool:
    if redirect.mark:
        return False
    return redirect.kind in ("dup", "read") or (
        redirect.kind == "write" and redirect.target == "/dev/null"
    )


def _fed(redirects: tuple[Redirect, ...]) -> tuple[str, ...]:
    """`< FILE` reads as if the file were named."""
    return tuple([redirect.target for redirect in redirects if redirect.kind == "read"])


def _moved(simple: Simple, folder: str) -> str:
    """Where a `cd` leads."""
    words = tuple([word for word in simple.argv[1:] if word != "--"])
    if len(words) != 1 or words[0].startswith("-") or not _is_clear(simple):
        raise _Unclear
    return _under(folder, words[0])


def _under(folder: str, path: str) -> str:
    if not folder or path.startswith(_ABSOLUTE):
        return path
    return folder if path in (".", "./") else f"{folder.rstrip('/')}/{path.removeprefix('./')}"


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _joined(simple: Simple) -> str:
    """The command as one may type it; what the shell would expand is left unquoted."""
    if simple.literal:
        return shlex.join(simple.argv)
    return " ".join(
        text if simple.mark(index) and not text.isspace() else shlex.quote(text)
        for index, text in enumerate(simple.argv)
    )
