"""Read-only commands, which run without approval.

The list is Codex's without what reaches the network or runs other programs (`cargo check`),
plus everyday readers. A command is on it with the options it may have: either no option of the
program writes, runs or connects (`flags=None`), or every option is listed by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from toolrest.policy.commands.git import git_reads
from toolrest.policy.shell.words import split_program, wordset


class Spec(NamedTuple):
    """How a reader takes its words.

    `takes` are the short and `long_takes` the long options with a value; `skip` operands are
    not files, unless an option of `instead` gave them; without operands it reads `otherwise`.
    The values of `files`, letters and long names, are files that are read, too.
    """

    flags: str | None = None
    takes: str = ""
    longs: frozenset[str] = frozenset()
    long_takes: frozenset[str] = frozenset()
    skip: int = 0
    instead: str = ""
    most: int = 1_000_000
    otherwise: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()


_LISTED = wordset("--files0-from")
_FILES = Spec(long_takes=_LISTED, files=_LISTED)
_HERE = Spec(otherwise=(".",))
_NO_FILES = Spec(skip=1_000_000)

_SPECS: dict[str, Spec] = {
    **dict.fromkeys(
        wordset(
            "cat nl paste rev tac wc stat cksum sum md5sum sha1sum sha224sum sha256sum sha384sum"
            " sha512sum b2sum comm cmp join od hexdump strings fold expand unexpand fmt realpath"
            " readlink"
        ),
        _FILES,
    ),
    **dict.fromkeys(
        wordset(
            "echo expr false true : id pwd seq tr uname which whoami numfmt basename dirname nproc"
            " arch groups tty logname printenv factor uptime free lscpu getconf type pgrep pidof"
        ),
        _NO_FILES,
    ),
    "ls": Spec(takes="ITw", otherwise=(".",)),
    "du": Spec(
        takes="dtBX", long_takes=_LISTED, otherwise=(".",),
        files=wordset("X --exclude-from --files0-from"),
    ),
    "df": _HERE,
    "head": Spec(takes="nc"),
    "tail": Spec(takes="ncs"),
    "cut": Spec(takes="bcdf"),
    "column": Spec(takes="sco"),
    "grep": Spec(
        takes="efABCmdD",
        long_takes=wordset("--regexp --file --max-count --include --exclude --exclude-dir"),
        skip=1,
        instead="ef",
        otherwise=(".",),
        files=wordset("f --file --exclude-from"),
    ),
    "jq": Spec(takes="fL", skip=1, instead="f", files=wordset("f --from-file")),
    "sort": Spec(
        flags="bdfghiMnRrVcCmsuz",
        takes="ktS",
        longs=wordset(
            "--numeric-sort --reverse --unique --human-numeric-sort --version-sort --stable"
            " --ignore-case --general-numeric-sort --month-sort --check --merge --random-sort"
            " --zero-terminated --ignore-leading-blanks --dictionary-order"
        ),
        long_takes=wordset("--key --field-separator --buffer-size --parallel"),
        files=_LISTED,
    ),
    "uniq": Spec(
        flags="cdDuiz",
        takes="fsw",
        longs=wordset("--count --repeated --unique --ignore-case --zero-terminated"),
        long_takes=wordset("--skip-fields --skip-chars --check-chars"),
        most=1,
    ),
    "shuf": Spec(flags="erz", takes="ni", longs=wordset("--echo --repeat")),
    "base64": Spec(
        flags="dDi", takes="w", longs=wordset("--decode --ignore-garbage"), most=1,
        long_takes=wordset("--wrap"),
    ),
    "diff": Spec(
        flags="qrNuwbBiEtTaysdepnHc",
        takes="UCIxFLW",
        longs=wordset(
            "--brief --recursive --new-file --unified --side-by-side --color --text --minimal"
            " --ignore-all-space --ignore-space-change --ignore-blank-lines --ignore-case"
            " --suppress-common-lines --strip-trailing-cr --report-identical-files --no-dereference"
        ),
        long_takes=wordset("--width --exclude --label"),
    ),
    "file": Spec(flags="bikLhrsvN0", takes="F", longs=wordset("--brief --mime --mime-type")),
    "tree": Spec(
        flags="adfilpsugDFrtcUQqNSvhnCAXJx",
        takes="LPI",
        longs=wordset("--dirsfirst --noreport --du --gitignore --prune --si --inodes"),
        long_takes=wordset("--filelimit --charset --sort"),
        otherwise=(".",),
    ),
    "rg": Spec(
        flags="abcFHhiIlLnN0opPqSsuUvVwx.",
        takes="ABCEefgjmMrtTd",
        longs=wordset(
            "--files --hidden --no-ignore --ignore-case --smart-case --case-sensitive --count"
            " --count-matches --files-with-matches --files-without-match --fixed-strings --json"
            " --line-number --no-line-number --no-heading --heading --no-filename --with-filename"
            " --only-matching --multiline --multiline-dotall --pcre2 --quiet --stats --text --trim"
            " --vimgrep --word-regexp --line-regexp --invert-match --follow --glob-case-insensitive"
            " --no-messages --no-config --null --column --no-column --no-ignore-vcs"
            " --one-file-system --passthru --type-list --unrestricted --version --crlf --pretty"
        ),
        long_takes=wordset(
            "--after-context --before-context --context --glob --iglob --max-count --max-depth"
            " --max-columns --max-filesize --regexp --replace --sort --sortr --type --type-not"
            " --threads --color --colors --encoding --ignore-file --file"
        ),
        skip=1,
        instead="ef",
        otherwise=(".",),
        files=wordset("f --file --ignore-file"),
    ),
    "fd": Spec(
        flags="HIuagFpsi0L",
        takes="tedEcjSo",
        longs=wordset(
            "--hidden --no-ignore --absolute-path --glob --full-path --follow --ignore-case"
            " --case-sensitive --fixed-strings --print0 --unrestricted"
        ),
        long_takes=wordset(
            "--type --extension --max-depth --min-depth --exclude --color --size --changed-within"
            " --changed-before --max-results"
        ),
        skip=1,
        otherwise=(".",),
    ),
}  # fmt: skip

HARMLESS = frozenset(name for name, spec in _SPECS.items() if spec.flags is None)
"""Programs that only read whatever their words are, so that `xargs` may add some."""


def spec_of(name: str) -> Spec | None:
    """How a reader of this name takes its words, if it is one."""
    return _SPECS.get(name)


def safe_reads(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """What a known read-only command reads, or None when it is not known to be one.

    Every word has to be literal. Paths are as spelled, relative to the working folder.
    """
    folder, name = split_program(argv[0])
    if folder not in ("", "/bin", "/usr/bin"):
        return None
    spec = _SPECS.get(name)
    if spec is not None:
        return read_by(argv, spec)
    special = _SPECIALS.get(name)
    return None if special is None else special(argv)


def read_by(argv: tuple[str, ...], spec: Spec) -> tuple[str, ...] | None:
    """What a command reads that takes its words like this, or None when it may do more."""
    operands: list[str] = []
    files: list[str] = []
    skip = spec.skip
    words = iter(argv)
    next(words)
    for word in words:
        if word[:1] != "-" or word == "-":
            operands.append(word)
            continue
        if word == "--":
            operands.extend(words)
            break
        option = _long(word, spec) if word[1] == "-" else _cluster(word, spec)
        if option is None:
            return None
        name, value = option
        if value is None:
            value = next(words, "")
            # A value that looks like an option may be one to another version of the program.
            if _OPTION.match(value) and spec.flags is not None:
                return None
        if _names_file(name, spec):
            files.append(value)
        if name and _LONG_INSTEAD.get(name, name) in spec.instead:
            skip = 0
    if len(operands) > spec.most:
        return None
    return (tuple(operands[skip:]) or spec.otherwise) + tuple(files)


_FLAG = ("", "")
_OPTION = re.compile(r"-(?!\d+\Z)")
_LONG_INSTEAD = {"--regexp": "e", "--file": "f"}


def _names_file(name: str, spec: Spec) -> bool:
    """Whether the value of an option is a file; getopt takes a long name cut short, too."""
    return name in spec.files or (len(name) > 2 and any(f.startswith(name) for f in spec.files))


def _long(word: str, spec: Spec) -> tuple[str, str | None] | None:
    """The option and its value, None for that where it is the next word."""
    name, equals, value = word.partition("=")
    if equals or name in spec.long_takes:
        known = spec.flags is None or name in spec.longs or name in spec.long_takes
        return (name, value if equals else None) if known else None
    return _FLAG if spec.flags is None or name in spec.longs else None


def _cluster(word: str, spec: Spec) -> tuple[str, str | None] | None:
    """The same for `-abc`; None when a letter is not allowed."""
    for place, letter in enumerate(word[1:], 2):
        if letter in spec.takes:
            return letter, word[place:] if place < len(word) else None
        if spec.flags is not None and letter not in spec.flags:
            return None
    return _FLAG


_SED = re.compile(r"(?:\d+,)?(?:\d+|\$)p")


def _sed(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    if len(argv) < 3 or argv[1] != "-n" or not _SED.fullmatch(argv[2]):
        return None
    files = argv[3:]
    return None if any(word.startswith("-") for word in files) else files


_FIND_FLAGS = wordset(
    "-empty -depth -d -xdev -mount -not ! -a -and -o -or ( ) , -print -print0 -ls -prune -quit"
    " -true -false -follow -H -L -P -readable -writable -executable -nouser -nogroup -daystart"
    " -noleaf -ignore_readdir_race -noignore_readdir_race -warn -nowarn"
)
FIND_TAKES = wordset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype"
    " -size -mtime -mmin -ctime -cmin -atime -amin -newer -anewer -cnewer -newermt -perm -user"
    " -group -uid -gid -maxdepth -mindepth -printf -samefile -inum -links -lname -ilname -fstype"
    " -used"
)


def _find(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    paths: list[str] = []
    words = iter(argv[1:])
    begun = False
    for word in words:
        if word in FIND_TAKES:
            next(words, "")
        elif word not in _FIND_FLAGS:
            if begun or word.startswith("-"):
                return None
            paths.append(word)
            continue
        begun = begun or word not in ("-H", "-L", "-P")
    return tuple(paths) or (".",)


def _date(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    words = iter(argv[1:])
    for word in words:
        if word in ("-d", "--date"):
            next(words, "")
        elif not (
            word in ("-u", "-R", "-I", "--utc", "--rfc-email", "--iso-8601")
            or word.startswith(("+", "-I", "--date=", "--iso-8601=", "--rfc-3339="))
        ):
            return None
    return ()


_XXD_FLAGS = wordset("-p -ps -plain -u -b -i -e -a")
_XXD_TAKES = wordset("-c -g -l -s")


def _xxd(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    files: list[str] = []
    words = iter(argv[1:])
    for word in words:
        if word in _XXD_TAKES:
            if not next(words, "").isdecimal():
                return None
        elif word not in _XXD_FLAGS:
            if word.startswith("-"):
                return None
            files.append(word)
    return tuple(files) if len(files) <= 1 else None


# Shells compute with some of their builtins' words, and computing may run a substitution that
# stands in a subscript: `test -v 'a[$(cmd)]'`, `printf %d 'a[$(cmd)]'`.
_COMPUTES = re.compile(r"[\[$`]")
_PRINTF_COUNT = re.compile(r"%[-+ #0-9.*']*[nN]")


def _printf(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    # `-v` and `%n` assign to a variable.
    if len(argv) < 2 or (argv[1].startswith("-") and argv[1] != "--"):
        return None
    if any(map(_PRINTF_COUNT.search, argv[1:3])) or any(map(_COMPUTES.search, argv[2:])):
        return None
    return ()


def _test(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    words = argv[1:-1] if argv[0] in ("[", "[[") else argv[1:]
    if "-v" in words or "-R" in words or any(map(_COMPUTES.search, words)):
        return None
    return ()


def _status(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) == 1 or (len(argv) == 2 and argv[1].isdecimal()) else None


def _bare(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) == 1 else None


_PS = wordset("aux axu ax auxf auxww -ef -e -f -A -a -l -x")


def _ps(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if _PS.issuperset(argv[1:]) else None


def _cd(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) <= 2 else None


def _sleep(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) == 2 and argv[1].replace(".", "", 1).isdecimal() else None


def _version(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) == 2 and argv[1] in ("--version", "-V") else None


def _node(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) == 2 and argv[1] in ("--version", "-v") else None


def _command(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    return () if len(argv) > 2 and argv[1] in ("-v", "-V") else None


_SPECIALS: dict[str, Callable[[tuple[str, ...]], tuple[str, ...] | None]] = {
    "git": git_reads,
    "sed": _sed,
    "find": _find,
    "date": _date,
    "xxd": _xxd,
    "printf": _printf,
    "test": _test,
    "[": _test,
    "[[": _test,
    **dict.fromkeys(wordset("env hostname jobs dirs times"), _bare),
    **dict.fromkeys(wordset("exit wait"), _status),
    "ps": _ps,
    "cd": _cd,
    "sleep": _sleep,
    "command": _command,
    **dict.fromkeys(wordset("python python3 perl ruby bash make gcc clang uv"), _version),
    "node": _node,
}
