"""Which prefix may be offered as "and don't ask again"?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolrest.policy.shell.words import wordset

_ALONE = wordset(
    "bash sh zsh dash ksh fish ash csh tcsh nu xonsh elvish /bin/bash /bin/sh /bin/zsh cmd cmd.exe"
    " powershell powershell.exe pwsh py pypy pypy3 python python3 pythonw pyw node nodejs perl"
    " ruby lua julia php bun deno Rscript osascript env sudo rm git doas su nice nohup timeout"
    " time xargs watch command builtin exec eval source . stdbuf setsid ionice find parallel"
    " busybox toybox ssh npx"
)
_PAIRS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh"), wordset("-c -lc")),
    **dict.fromkeys(("dash", "ksh", "fish", "ash"), wordset("-c")),
    **dict.fromkeys(("cmd", "cmd.exe"), wordset("/c /k")),
    **dict.fromkeys(("powershell", "powershell.exe"), wordset("-Command -EncodedCommand -File -c")),
    "pwsh": wordset("-Command -EncodedCommand -File -c -e -ec -f"),
    "py": wordset("-3"),
    **dict.fromkeys(("pypy", "pypy3", "python", "python3"), wordset("- -c -m")),
    **dict.fromkeys(("node", "nodejs", "perl", "ruby", "lua", "julia"), wordset("-e")),
    "php": wordset("-r"),
    "bun": wordset("-e run"),
    "deno": wordset("eval"),
    **dict.fromkeys(("npm", "pnpm", "yarn"), wordset("run")),
    "uv": wordset("run"),
    "poetry": wordset("run"),
}


def saved_message(prefix: Sequence[str]) -> str:
    """What the model is told once a prefix has been saved."""
    return f"Approved command prefix saved:\n{_line(prefix)}"


def _line(prefix: Sequence[str]) -> str:
    return f"- [{', '.join(json.dumps(token, ensure_ascii=False) for token in prefix)}]"


def is_banned(prefix: Sequence[str]) -> bool:
    """True when allowing the prefix would allow nearly any command."""
    if len(prefix) == 1:
        return prefix[0] in _ALONE or prefix[0].lower() in _ALONE
    return len(prefix) == 2 and prefix[1] in _PAIRS.get(prefix[0].lower(), ())
