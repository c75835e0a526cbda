"""Git commands that only read, and where the subcommand of a git command begins.

Even a look runs programs that the repository's own configuration names (a pager, fsmonitor,
diff drivers, gpg), so these count as reads only inside the sandbox and with that configuration
disarmed; `disarmed_git` says how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from toolrest.policy.shell.words import wordset

_DIFF = wordset(
    "--stat --shortstat --numstat --dirstat --summary --name-only --name-status --patch --no-patch"
    " --raw --cached --staged --check --quiet --exit-code --color --no-color --word-diff"
    " --color-words --color-moved --ignore-all-space --ignore-space-change --ignore-blank-lines"
    " --ignore-space-at-eol --ignore-cr-at-eol --minimal --patience"
    " --histogram --no-renames --find-renames --find-copies --find-copies-harder --full-index"
    " --binary --text --abbrev --unified --diff-filter --relative --no-ext-diff --no-textconv"
    " --no-index --merge-base --function-context --inter-hunk-context --pickaxe-all --no-prefix"
    " --compact-summary --patch-with-stat --diff-algorithm"
)
_LOG = _DIFF | wordset(
    "--oneline --graph --all --decorate --no-decorate --max-count --skip --since --after --until"
    " --before --author --committer --grep --all-match --invert-grep --regexp-ignore-case"
    " --fixed-strings --extended-regexp --perl-regexp --abbrev-commit --no-abbrev-commit --reverse"
    " --follow --merges --no-merges --first-parent --pretty --format --date --topo-order"
    " --date-order --author-date-order --branches --tags --remotes --simplify-by-decoration"
    " --left-right --cherry-pick"
    " --cherry-mark --cherry --full-history --ancestry-path --no-walk --walk-reflogs --notes"
    " --no-notes --parents --children --boundary --source --no-pager --count --not --cc"
    " --clear-decorations --min-parents --max-parents"
)  # fmt: skip
_LIST = wordset(
    "--list --all --remotes --verbose --show-current --contains --no-contains --merged --no-merged"
    " --sort --format --points-at --column --no-column --color --no-color --abbrev --no-abbrev"
    " --ignore-case"
)


_WHOLE = wordset("--ignore-submodules --ignore-submodules=all --ignore-submodules=dirty")
"""Options that may be there as they stand, with no other value: what lies in a submodule has a
configuration of its own."""


class _Form(NamedTuple):
    """How a subcommand takes its words.

    `takes` and `long_takes` are options that need a value, here or in the next word; the value of
    those in `attached` is a number in the same word, or there is none. `operands` None: any; else
    only when one of the listed options asks for a listing. `shows` means that the contents of
    files in the working tree may be shown, by their operands' names.
    """

    flags: str
    longs: frozenset[str]
    takes: str = ""
    long_takes: frozenset[str] = frozenset()
    operands: frozenset[str] | None = None
    attached: str = ""
    shows: bool = False


_LOG_TAKES = wordset(
    "--since --after --until --before --author --committer --grep --max-count --skip"
)
_LIST_TAKES = wordset("--contains --no-contains --merged --no-merged --sort --format --points-at")
_DIFF_FORM = _Form("abpsuwzMCBRDW0123456789", _DIFF, "SGOl", attached="U", shows=True)
_LOG_FORM = _Form("abpsuwzMCBRDWciEFPgm0123456789", _LOG, "SGOlnL", _LOG_TAKES, attached="U")
_FORMS: dict[str, _Form] = {
    "status": _Form(
        "sbvzuno",
        wordset(
            "--short --branch --porcelain --long --verbose --ignored --untracked-files --column"
            " --no-column --renames --no-renames --ahead-behind --no-ahead-behind --show-stash"
        ),
    ),
    "diff": _DIFF_FORM,
    "log": _LOG_FORM,
    "show": _LOG_FORM,
    "whatchanged": _LOG_FORM,
    "rev-list": _LOG_FORM,
    "shortlog": _Form("sneczw0123456789", _LOG | wordset("--summary --numbered --email")),
    "branch": _Form("avrli", _LIST, "", _LIST_TAKES, wordset("--list")),
    "tag": _Form("li", _LIST, "", _LIST_TAKES, wordset("--list -l -n"), "n"),
    "blame": _Form("lsfnpwetcCM0123456789", wordset("--porcelain --line-porcelain --show-name"
        " --show-number --show-email --date --abbrev"), "L", shows=True),
    "grep": _Form(
        "nilwchHIvEFPGoqaLr",
        wordset(
            "--line-number --ignore-case --files-with-matches --word-regexp --count --cached"
            " --untracked --no-index --fixed-strings --extended-regexp --perl-regexp --name-only"
            " --heading --break --show-function --function-context --max-depth --and --or --not"
            " --all-match --recursive --column --color --no-color"
        ),
        "ABCem",
        shows=True,
    ),
    "cat-file": _Form("tsep", frozenset()),
    "describe": _Form("", wordset("--tags --always --long --all --abbrev --match"
        " --exact-match --contains --first-parent")),
    "rev-parse": _Form("q", wordset(
        "--abbrev-ref --short --verify --quiet --show-toplevel --show-prefix --show-cdup --git-dir"
        " --absolute-git-dir --git-common-dir --git-path --is-inside-work-tree --is-inside-git-dir"
        " --is-bare-repository --is-shallow-repository --symbolic --symbolic-full-name --all"
        " --branches --tags --remotes --revs-only --no-revs --flags --no-flags --not --default"
        " --since --until --after --before --show-superproject-working-tree --path-format"
        " --show-object-format --disambiguate --local-env-vars --sq --sq-quote --prefix --glob"
        " --exclude --exclude-hidden"),
        long_takes=wordset("--default --prefix --git-path")),
    "ls-files": _Form(
        "zdcmoiuktvsf",
        wordset(
            "--cached --deleted --modified --others --ignored --stage --unmerged --killed --exclude"
            " --exclude-standard --directory --no-empty-directory --error-unmatch --full-name"
            " --deduplicate --eol --abbrev --debug --format"
        ),
        "x",
    ),
    "ls-tree": _Form("drtlz", wordset("--long --name-only --name-status --object-only --full-name"
        " --full-tree --abbrev --format")),
    "merge-base": _Form("a", wordset("--all --octopus --independent --is-ancestor --fork-point")),
    "show-ref": _Form("dsq", wordset("--head --heads --branches --tags --dereference --hash"
        " --abbrev --verify --quiet --exists --exclude-existing")),
    "name-rev": _Form("", wordset("--tags --refs --exclude --all --stdin --annotate-stdin"
        " --name-only --no-undefined --always")),
    "count-objects": _Form("vH", wordset("--verbose --human-readable")),
    "check-ignore": _Form("qvnz", wordset("--quiet --verbose --non-matching --stdin --no-index")),
    "version": _Form("", wordset("--build-options")),
}  # fmt: skip
_LISTINGS = {
    ("remote",),
    ("remote", "-v"),
    ("remote", "--verbose"),
    ("stash", "list"),
    ("worktree", "list"),
    ("reflog",),
    ("config", "--list"),
    ("config", "-l"),
}
_SIGNED = re.compile(r"%[-+ ]?G|signature")
"""A format or an order that checks signatures, which runs a program."""


def git_reads(argv: tuple[str, ...]) -> tuple[str, ...] | None:
    """What a git command that only looks reads, or None when it may do more."""
    words = argv[1:]
    while words and words[0] in ("--no-pager", "-P", "--no-optional-locks"):
        words = words[1:]
    if not words:
        return None
    if words in (("--version",), ("-v",)):
        return ()
    form = _FORMS.get(words[0])
    if form is None:
        return (".",) if words in _LISTINGS or _gets(words) else None
    operands = _operands(words[1:], form)
    return None if operands is None else (".", *(operands if form.shows else ()))


def _gets(words: tuple[str, ...]) -> bool:
    if words[0] == "config":
        return len(words) == 3 and words[1] in ("--get", "--get-all", "--get-regexp")
    return words[:2] == ("remote", "get-url") and len(words) == 3 and words[2][:1] != "-"


def _operands(words: tuple[str, ...], form: _Form) -> tuple[str, ...] | None:
    """The words that are no options and no options' values; None where it may do more than look."""
    given: set[str] = set()
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word[:1] != "-" or word == "-":
            operands.append(word)
            continue
        if word == "--":
            operands += rest
            break
        value_follows = word not in _WHOLE and _option(word, form, given)
        if value_follows is None:
            return None
        # A value that looks like an option may be one to another version of git.
        if value_follows and ((value := next(rest, "-"))[:1] == "-" or _SIGNED.search(value)):
            return None
    looks = not operands or form.operands is None or bool(given & form.operands)
    return tuple(operands) if looks else None


def _option(word: str, form: _Form, given: set[str]) -> bool | None:
    """Whether the option's value is the next word; None when the option is not allowed."""
    if _SIGNED.search(word):
        return None
    if not word.startswith("--"):
        return _letters(word, form, given)
    name, equals, _ = word.partition("=")
    given.add(name)
    if name not in form.longs:
        return None
    return not equals and name in form.long_takes


def _letters(word: str, form: _Form, given: set[str]) -> bool | None:
    for place, letter in enumerate(word[1:], 2):
        given.add(f"-{letter}")
        if letter in form.takes:
            return place == len(word)
        if letter in form.attached:
            return None if word[place:].strip("0123456789") else False
        # What follows -M, -C or -u in the same word is its own optional value.
        if place > 2 and word[1] in "MCuB" and (letter.isdecimal() or letter in "%no"):
            continue
        if letter not in form.flags:
            return None
    return False


_TAKES = wordset(
    "-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source"
)


def git_command(argv: tuple[str, ...]) -> int:
    """The index of the subcommand, past git's own options; `len(argv)` when there is none."""
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        index += 2 if argv[index] in _TAKES else 1
    return min(index, len(argv))


DISARMED: tuple[tuple[str, str], ...] = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.sshCommand", "false"),
    ("core.askPass", "false"),
    ("core.attributesFile", "/dev/null"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("log.showSignature", "false"),
    ("log.diffMerges", "separate"),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("sequence.editor", "false"),
    ("protocol.ext.allow", "never"),
)
# An external diff cannot be switched off by an empty value, only be replaced by a plain one.
_PLAIN_DIFF = 'f() { git diff --no-index --no-ext-diff --no-textconv -- "$2" "$5"; true; }; f'
_NEUTRAL: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), value)
    for pattern, value in (
        (r"diff\.external|diff\..+\.command", _PLAIN_DIFF),
        (r"diff\..+\.textconv|interactive\.diffFilter", "cat"),
        (r"diff\..+\.cachetextconv", "false"),
        (r"submodule\..+\.ignore", "dirty"),
        (r"filter\..+\.(?:clean|smudge|process)", ""),
        (r"merge\..+\.driver|gpg\..+\.program|core\.alternateRefsCommand", "false"),
        (r"pager\..+", "false"),
        (
            r"(?:man|browser)\..+\.(?:cmd|path)|man\.viewer|help\.(?:format|browser)|web\.browser",
            "",
        ),
        (r"credential\..+\.helper|alias\..+", ""),
    )
)


_SUBMODULE = re.compile(r"(submodule\..+)\.[^.]+", re.IGNORECASE | re.DOTALL)
_MARK = "toolrest.disarmed"
_MAX_PAIRS = 1_000

# What is named in a submodule's own configuration is not listed, so git may not look into one;
# that is for each submodule to say, by a name that stands in the first of these files.
LISTING = r"""
list() { git config "$@" --list --name-only -z || exit 1; }
list
top=$(git rev-parse --show-toplevel 2>/dev/null && printf x) || exit 0
modules=${top%?x}/.gitmodules
[ ! -e "$modules" ] || list --file "$modules"
blobs=$(printf '%s\n' :.gitmodules HEAD:.gitmodules | git cat-file --batch-check) || exit 1
case $blobs in *" blob "*) ;; *) exit 0 ;; esac
for blob in :.gitmodules HEAD:.gitmodules; do
    ! git cat-file -e "$blob" 2>/dev/null || list --blob "$blob"
done
"""
"""A script that lists the names of all settings which are in force where it is run."""


def listed_names(output: bytes) -> frozenset[str] | None:
    """The names that LISTING printed; None where not each of them is known and can be overruled."""
    try:
        names = frozenset(output.decode().split("\0"))
    except UnicodeDecodeError:
        return None
    return names if _MARK in names else None


def disarmed_git(configured: Iterable[str] = ()) -> dict[str, str] | None:
    """Environment variables that keep git from running what a repository's configuration names.

    `configured` are the names in force there: drivers have names of the repository's choosing,
    and each has to be overruled by its own name. None where they are too many.
    """
    pairs = dict(DISARMED)
    for name in configured:
        pairs.update((name, value) for pattern, value in _NEUTRAL if pattern.fullmatch(name))
        submodule = _SUBMODULE.fullmatch(name)
        if submodule is not None:
            pairs[f"{submodule[1]}.ignore"] = "dirty"
    pairs[_MARK] = "true"
    if len(pairs) > _MAX_PAIRS or sum(map(len, pairs)) > _MAX_PAIRS * 64:
        return None
    env = {
        "GIT_CONFIG_COUNT": str(len(pairs)),
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
    }
    for index, (name, value) in enumerate(pairs.items()):
        env[f"GIT_CONFIG_KEY_{index}"] = name
        env[f"GIT_CONFIG_VALUE_{index}"] = value
    return env
