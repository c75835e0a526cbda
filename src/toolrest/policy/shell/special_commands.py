"""The commands that run another command, and which of their words come before it."""

from __future__ import annotations

from typing import NamedTuple

from toolrest.policy.shell.words import wordset


class Wrapper(NamedTuple):
    """The words of a wrapper before the command that it runs.

    `takes` are options with a value, `may_take` those whose value, if any, is attached;
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
    keyword: bool = False


WRAPPERS: dict[str, Wrapper] = {
    "sudo": Wrapper(
        "AbEeHiKklnPSsVvB",
        "ugphCTrtDRU",
        wordset(
            "--askpass --background --preserve-env --edit --set-home --login --list --stdin"
            " --non-interactive --shell --validate --reset-timestamp --remove-timestamp"
        ),
        wordset(
            "--user --group --host --prompt --close-from --command-timeout --role --type --chdir"
            " --chroot --other-user"
        ),
        assigns=True,
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
    "busybox": Wrapper(),
    "toybox": Wrapper(),
}  # fmt: skip


XARGS = Wrapper(
    "0rtxpo",
    "nPLIdsEaJ",
    wordset("--null --no-run-if-empty --verbose --exit --interactive"),
    wordset("--max-args --max-procs --max-lines --replace --delimiter --arg-file --max-chars"),
    may_take="eil",
)
