"""Settings of git that name no program and no file: a change of these alone is let be.

`git push -u` and `git remote add` write them while a command of ours may run. They are read line by
line and only in their plainest form; every other line counts as one that may run something.
"""

from __future__ import annotations

import re
from typing import TypeAlias

_Plain: TypeAlias = tuple[bytes, bytes]
_HEADER = re.compile(rb'[ \t]*\[(branch|remote|user)(?: "([A-Za-z0-9_][^"\\\n]*)")?\][ \t]*')
_OTHER = re.compile(rb"[ \t]*\[.*")
_LINE = re.compile(rb"[ \t]*([A-Za-z]+)[ \t]*=[ \t]*(.*?)[ \t]*")
_HOST = rb"[A-Za-z0-9][A-Za-z0-9.-]*"
_WHO = rb"(?:[A-Za-z0-9_][\w.~%:+-]*@)?"
_PATH = rb"[\w.~/@%+,=-]*"
_GOES_ON = re.compile(rb"\\\r?\n")
"""The end of a line that goes on in the next one."""
_PLAIN = {
    b"branch.remote": rb"\.|[A-Za-z0-9_][\w.-]*",
    b"branch.merge": rb"refs/[\w./+@-]+",
    b"branch.rebase": rb"true|false|merges|interactive",
    b"remote.url": rb"(?!.*%%[01])(?:(?:https?|ssh|git)://%s%s(?::\d+)?(?:/%s)?|%s%s:(?!//)[\w~/]%s)"
    % (_WHO, _HOST, _PATH, _WHO, _HOST, _PATH),
    b"remote.fetch": rb"\+?refs/[\w./*+@-]+:refs/[\w./*+@-]+",
    b"user.name": rb'[^"\\#;\x00-\x1f]{1,200}',
    b"user.email": rb'[^"\\#;\x00-\x1f]{1,200}',
}
"""The keys, each with the values that are ordinary: no option, no other transport, no path."""


def merged(was: bytes, now: bytes) -> bytes | None:
    """The config as it was, with the plain settings that it has now; None if it cannot be split.

    Equal to `now` in meaning where nothing but plain settings changed: see `same_but_plain`.
    """
    if _GOES_ON.search(was + b"\n" + now + b"\n"):
        return None
    kept, before = _split(was)
    _, plain = _split(now)
    if not _lead_to_servers(before, plain):
        return None
    return b"".join(kept) + b"".join(header + b"\n" + line for header, line in plain)


def same_but_plain(was: bytes, now: bytes) -> bool:
    """Whether two configs differ in plain settings only."""
    if _GOES_ON.search(was + b"\n" + now + b"\n"):
        return False
    (kept, before), (there, plain) = _split(was), _split(now)
    return kept == there and _lead_to_servers(before, plain)


def _lead_to_servers(before: list[_Plain], now: list[_Plain]) -> bool:
    """Whether every remote that git may come to take is one with an address.

    Any other name is a folder to git, `origin` where none is given; a push into a repository in a
    folder runs that one's hooks.
    """
    addressed, named = _values(now, b"remote", b"url").keys(), _values(now, b"branch", b"remote")
    was = _values(before, b"branch", b"remote")
    if not _values(before, b"remote", b"url").keys() <= addressed:
        return False
    if not was.keys() <= named.keys() and b"origin" not in addressed:
        return False
    return all(value in (b".", was.get(who)) or value in addressed for who, value in named.items())


def _values(plain: list[_Plain], section: bytes, key: bytes) -> dict[bytes, bytes]:
    """The last value of a key in each subsection."""
    found: dict[bytes, bytes] = {}
    for header, line in plain:
        title, setting = _HEADER.fullmatch(header), _LINE.fullmatch(line[:-1])
        if title and setting and (title[1], setting[1].lower()) == (section, key):
            found[title[2] or b""] = setting[2]
    return found


def _split(text: bytes) -> tuple[list[bytes], list[_Plain]]:
    """The lines that stay, with their headers, and the plain ones, each with its header."""
    kept: list[bytes] = []
    plain: list[_Plain] = []
    section, header, waiting = b"", b"", b""
    for bare in text.split(b"\n"):  # a carriage return alone ends no line
        line = bare + b"\n"
        found = _HEADER.fullmatch(bare)
        if found is not None:
            section, header, waiting = found[1], bare, line
        elif section and _is_plain(section, bare):
            plain.append((header, line))
        elif line.strip():
            if _OTHER.fullmatch(bare):
                section = waiting = b""
            kept += [waiting, line] if waiting else [line]
            waiting = b""
    return kept, plain


def _is_plain(section: bytes, line: bytes) -> bool:
    found = _LINE.fullmatch(line)
    values = _PLAIN.get(section + b"." + found[1].lower()) if found is not None else None
    return found is not None and values is not None and bool(re.fullmatch(values, found[2]))
