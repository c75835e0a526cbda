"""Lines that other shells read otherwise than bash, by whose grammar they are judged."""

from __future__ import annotations

import re

from toolrest.policy.shell.script import Script, UnreadPart

UNLIKE = frozenset(("zsh", "powershell", "cmd"))

_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_SINGLE = re.compile(r"\\.|'[^']*'|(\"(?:[^\"\\]|\\.)*\")", re.DOTALL)

# Parameter flags, subscripts and modifiers, which zsh reads inside double quotes as well.
_EXPANSIONS = re.compile(
    r"\$\{[^A-Za-z0-9_#?!@*$-]|\$\{[#?!]?[(=~^+]|\$[=~^+]|\$\w+\[|\$\{\w+\[\(|\$\w+:[A-Za-z&]"
    r"|\$\{\w+:[A-Za-z&]|\$\{\$|\$\{[^}]*[:#%/]\("
)
_WORDS = re.compile(
    # `=cmd`, glob qualifiers and alternatives, ranges of numbers, `>! file`, `&!`, `~[name]`
    r"(?:^|[\s;&|(:])=(?!=?\s)\S|[^\s;&|(){$<>=]\((?!\))|[*?\]]\(|<\d*-\d*>|>&?!|&[!|]|~\["
    r"|(?:^|[;&|(\n]|\b(?:do|then|else|time)\b)\s*"
    r"(?:(?:nocorrect|noglob|repeat|foreach|always|-)(?=\s)|\(\)|<|>)"
)


def unread_in(shell: str, text: str, script: Script) -> UnreadPart | None:
    """Why what is known of a line as bash reads it does not hold in a shell of UNLIKE, or None."""
    if shell != "zsh":
        return UnreadPart("unknown.shell", f"the language of {shell} is not understood")
    bare = _QUOTED.sub("x", text)
    if _EXPANSIONS.search(_SINGLE.sub(_kept, text)) or _WORDS.search(bare):
        return UnreadPart("unknown.shell", "zsh reads it otherwise than bash")
    if any(simple.redirects and not simple.argv for simple in script.commands):
        return UnreadPart("unknown.shell", "zsh runs a program for a redirection alone")
    return None


def _kept(match: re.Match[str]) -> str:
    return match[1] or "x"
