"""Special commands: wrappers and their own words, `find`, and builtins that run plain text.

Such builtins are `alias`, `hash -p` and `test -v`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from toolrest.policy.shell.script import GLOB, Simple
from toolrest.policy.shell.words import wordset


class Wrapper(NamedTuple):
    """The words of a wrapper before the command that it runs.

    `takes` are options with a value, `may_take` those whose value, if any, is attached. No other
    option counts, nor does an abbreviation of one: it might be an option that writes or runs.
    `script` is the letter whose value is a script. A transparent wrapper adds nothing. What
    follows a keyword of the shell is a command as it stands, with `!` and assignments of its own.
    """

    flags: str = ""
    takes: str = ""
    longs: frozenset[str] = frozenset()
    long_takes: frozenset[str] = frozenset()
    operands: int = 0
    transparent: bool = False
    assigns: bool = False
    numbers: bool = False
    script: str = ""
    may_take: str = ""
    long_may_take: frozenset[str] = frozenset()
    keyword: bool = False


WRAPPERS: dict[str, Wrapper] = {
    "sudo": Wrapper(
        "AbEeHiKklnPSsVvB",
        "ugphCTrtDRU",
        wordset(
            "--askpass --background --edit --set-home --login --list --stdin"
            " --non-interactive --shell --validate --reset-timestamp --remove-timestamp"
        ),
        wordset(
            "--user --group --host --prompt --close-from --command-timeout --role --type --chdir"
            " --chroot --other-user"
        ),
        assigns=True,
        long_may_take=wordset("--preserve-env"),
    ),
    "doas": Wrapper("Lns", "aCu"),
    "pkexec": Wrapper(longs=wordset("--disable-internal-agent --keep-cwd"),
        long_takes=wordset("--user")),
    "gosu": Wrapper(operands=1),
    "su-exec": Wrapper(operands=1),
    "runuser": Wrapper("lmpPf", "ugGsw", wordset("--login"), wordset("--user --group"),
        script="c"),
    "su": Wrapper("lmpPf", "gGsw", wordset("--login"), wordset("--group --shell"), 1, script="c"),
    "env": Wrapper("i0v", "uCS", wordset("--ignore-environment --null --debug"),
        wordset("--unset --chdir --split-string"), transparent=True, assigns=True, script="S"),
    "timeout": Wrapper("v", "ks", wordset("--preserve-status --foreground --verbose"),
        wordset("--kill-after --signal"), 1, transparent=True),
    "nice": Wrapper("", "n", frozenset(), wordset("--adjustment"), transparent=True,
        numbers=True),
    "ionice": Wrapper("t", "cnpPu", wordset("--ignore"), wordset("--class --classdata"),
        transparent=True),
    "chrt": Wrapper("bfiorRamv", "TPD", operands=1),
    "taskset": Wrapper("ac", "", wordset("--cpu-list --all-tasks"), operands=1),
    "nohup": Wrapper(),
    "time": Wrapper("pv", "f", wordset("--portability --verbose"), wordset("--format"),
        transparent=True, assigns=True, keyword=True),
    "builtin": Wrapper(transparent=True),
    "exec": Wrapper("cl", "a"),
    "coproc": Wrapper(assigns=True, keyword=True),
    "noglob": Wrapper(),
    "nocorrect": Wrapper(),
    "-": Wrapper(),
    "repeat": Wrapper(operands=1),
    "stdbuf": Wrapper("", "ioe", frozenset(), wordset("--input --output --error"),
        transparent=True),
    "unbuffer": Wrapper("p"),
    "setsid": Wrapper("cfw", "", wordset("--ctty --fork --wait")),
    "setpriv": Wrapper("", "", wordset("--no-new-privs --clear-groups --init-groups"),
        wordset("--reuid --regid --groups --ambient-caps --inh-caps --bounding-set")),
    "chroot": Wrapper("", "", wordset("--skip-chdir"), wordset("--userspec --groups"), 1),
    "fakeroot": Wrapper("hvu", "lsib"),
    "strace": Wrapper("cCdfFhiknqrtTvVwxyYzZ", "abeEIoOpPsSuUX"),
    "ltrace": Wrapper("cCfhiLrStTV", "aAeDFlnopsuwx"),
    "flock": Wrapper("enosuxFv", "wE", wordset("--nonblock --exclusive --shared --close"),
        wordset("--timeout --wait --conflict-exit-code"), 1, script="c"),
    "script": Wrapper("aefqr", "BEIOTm", wordset("--quiet --append --flush --return"),
        wordset("--log-out --log-in"), script="c"),
    "unshare": Wrapper("fhimnprTuUcC", "SGRw", wordset(
        "--fork --map-root-user --map-current-user --mount --uts --ipc --net --pid --user --cgroup"
        " --time --keep-caps --mount-proc --kill-child")),
    "nsenter": Wrapper("aFmuinpUCTrwZ", "tSG", wordset(
        "--all --mount --uts --ipc --net --pid --user --cgroup --time --no-fork --root --wd"),
        wordset("--target")),
    "systemd-run": Wrapper("dGPqSt", "EHMpu", wordset(
        "--user --system --scope --pty --pipe --quiet --wait --collect --no-block --same-dir"
        " --remain-after-exit --send-sighup --no-ask-password"),
        wordset("--unit --property --setenv --slice --uid --gid --description --nice --machine"
        " --host --working-directory --on-active --on-boot --on-calendar --timer-property")),
    "entr": Wrapper("acdnprsz"),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
}  # fmt: skip


XARGS = Wrapper(
    "0rtxpo",
    "nPLIdsEaJ",
    wordset("--null --no-run-if-empty --verbose --exit --interactive"),
    wordset("--max-args --max-procs --delimiter --arg-file --max-chars"),
    may_take="eil",
    long_may_take=wordset("--replace --max-lines --eof"),
)


_NARROW = ("-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-type")


def find_starts(simple: Simple) -> list[int]:
    """The places of the folders that `find` begins with."""
    starts = []
    for index in range(1, len(simple.argv)):
        word = simple.argv[index]
        if word in ("-H", "-L", "-P"):
            continue
        if word[:1] in ("-", "(", "!", ",") and not simple.mark(index):
            break
        starts.append(index)
    return starts


def find_is_narrow(simple: Simple) -> bool:
    """True when a test on name or kind spares the folder that `find` begins with."""
    argv = simple.argv
    return any(
        word in _NARROW and argv[place + 1 : place + 2] not in (("*",), ("d",))
        for place, word in enumerate(argv)
    )


def found_by(simple: Simple) -> str:
    """What `{}` stands for: something beneath one literal folder, or anything."""
    starts = find_starts(simple)
    if len(starts) > 1 or any(simple.mark(index) for index in starts):
        return ""
    start = simple.argv[starts[0]] if starts else "."
    return f"{start.rstrip('/')}/{{}}" if find_is_narrow(simple) else start


# The subscript of an array is computed, and a substitution inside it is run, even a quoted one.
_SUBSCRIPT = re.compile(r"\[.*(?:\$[({]|`)", re.DOTALL)
_EXPANDS = re.compile(r"\$[({]|`")
_ARRAY = re.compile(r"=\(.*(?:\$[({]|`)", re.DOTALL)
_DECLARES = wordset("declare typeset local export readonly")
_COMPUTES = wordset(
    "test [ let declare typeset local export readonly unset printf read mapfile readarray getopts"
    " wait"
)
_RUN_OPTIONS = {
    "hash": "p",
    "mapfile": "C",
    "readarray": "C",
    "compgen": "CFW",
    "complete": "CF",
}
_ECHO_OPTION = re.compile(r"-[neE]+")
_PROMPTS = wordset("PS0 PS1 PS2 PS4 BASH_ENV ENV")


def hidden_script(simple: Simple) -> str:
    """Why what this builtin will run is not to be seen, or nothing."""
    argv, name = simple.argv, simple.argv[0]
    if name == "alias":
        return "an alias gives commands other names" if any("=" in w for w in argv[1:]) else ""
    letters = _RUN_OPTIONS.get(name)
    if letters and any(w[:1] == "-" and not set(letters).isdisjoint(w) for w in argv[1:]):
        return f"{name} runs other commands under a name or for a text"
    if name in ("printf", "test", "[") and "-v" not in argv:
        return ""
    if name in _COMPUTES and any(hidden_value(*_split(word)) for word in argv[1:]):
        return f"{name} computes a subscript, which may run commands"
    return "the words of an array are read from a text" if _reads_array(simple) else ""


def _reads_array(simple: Simple) -> bool:
    """True for `declare -a 'x=($(ls))'`: an array as it should be is marked as a glob is."""
    return simple.argv[0] in _DECLARES and any(
        simple.mark(index) != GLOB and _ARRAY.search(word) for index, word in enumerate(simple.argv)
    )


def hidden_value(name: str, value: str) -> bool:
    """True when setting this variable to this text may later run what the text says."""
    if name == "PROMPT_COMMAND" or (name in _PROMPTS and _EXPANDS.search(value)):
        return True
    return _SUBSCRIPT.search(value) is not None


def _split(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    return (name, value) if equals and name.isidentifier() else ("", word)


def printed(argv: tuple[str, ...]) -> str | None:
    """What `echo` or `printf` prints, if that can be told from its literal words."""
    if argv[:1] == ("printf",):
        return _formatted(argv[1:])
    if argv[:1] != ("echo",):
        return None
    start = 1
    while start < len(argv) and _ECHO_OPTION.fullmatch(argv[start]):
        start += 1
    text = " ".join(argv[start:])
    # Some shells' echo takes a backslash for the beginning of an escape, some do not.
    return None if "\\" in text else text


def _formatted(words: tuple[str, ...]) -> str | None:
    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        return None
    text, *rest = words
    text = text.replace("\\n", "\n")
    if "%" not in text.replace("%s", "") and rest:
        if text.count("%s") != 1:
            return None
        made = "".join(text.replace("%s", word) for word in rest)
        return None if "\\" in text else made
    return None if "%" in text or "\\" in text else text
