"""Which file name does a diff header hold? Git quotes unusual names, others add a time."""

from __future__ import annotations

_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


def header_name(line: str) -> str | None:
    """The name of a `---` or `+++` line; None for /dev/null."""
    name = line[4:].rstrip("\r")
    # What follows a tab is a time; git ends a name that holds a space in a bare tab.
    name = unquoted(name) if name.startswith('"') else name.partition("\t")[0].rstrip(" ")
    return None if name == "/dev/null" else name


def unquoted(name: str) -> str:
    """A name without git's quotes and escapes."""
    name = name.rstrip("\r")
    if not (len(name) > 1 and name.startswith('"') and '"' in name[1:]):
        return name
    inner = name[1 : name.rindex('"')]
    out = bytearray()
    at = 0
    while at < len(inner):
        char = inner[at]
        if char != "\\" or at + 1 >= len(inner):
            out += char.encode()
            at += 1
            continue
        digits = inner[at + 1 : at + 4]
        if len(digits) == 3 and all(digit in "01234567" for digit in digits):
            out.append(int(digits, 8) & 0xFF)
            at += 4
        else:
            out.append(_ESCAPES.get(inner[at + 1], ord("?")))
            at += 2
    return out.decode("utf-8", "replace")


def names_of_git_header(line: str) -> tuple[str | None, str | None]:
    """Both names of `diff --git a/x b/x`, when they can be told apart."""
    rest = line[len("diff --git ") :].rstrip("\r")
    if rest.startswith('"'):
        first, _, second = rest[1:].partition('" ')
        old, new = unquoted(f'"{first}"'), unquoted(second)
    else:
        # Names may hold spaces; unless it is a rename, both halves are the same.
        half = len(rest) // 2
        old, new = rest[:half], rest[half + 1 :]
        if old[2:] != new[2:]:
            old, _, new = rest.partition(" b/")
            new = f"b/{new}"
    return old.removeprefix("a/"), new.removeprefix("b/")
