"""Parser of unified diffs, in git's layout and the plain one.

Models count lines badly, so a hunk whose numbers do not add up is read by its marks alone. What
cannot be read safely (binary content, symlinks, submodules) is refused, with the line at fault.
"""

from __future__ import annotations

from msgspec import Struct, field

from toolrest.patch.errors import ParseError

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
    """Both names of `diff --git a/x b/x`, when they can be separated."""
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


_IGNORED = ("index ", "similarity index ", "dissimilarity index ", "Index: ", "====", "old mode ")
_BINARY = ("GIT binary patch", "Binary files ")
_PREFIXES = (("a/", "b/"), ("i/", "w/"), ("c/", "i/"), ("c/", "w/"), ("o/", "w/"))


class Hunk(Struct):
    """Marked lines, and the line number in the header; `start` counts from 1, None: not given.

    `heading` is the text behind the header: how the line begins that opens the function around it.
    `open_old` and `open_new`: that side's last line has no newline.
    """

    line: int
    start: int | None
    marks: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    open_old: bool = False
    open_new: bool = False
    heading: str = ""

    @property
    def old(self) -> list[str]:
        """The lines that the file must have."""
        return [t for m, t in zip(self.marks, self.texts, strict=True) if m != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that the file will have in their place."""
        return [t for m, t in zip(self.marks, self.texts, strict=True) if m != "-"]


class UnifiedFile(Struct):
    """The diff of one file. Without an old name it is made, without a new one removed."""

    line: int
    old: str | None = None
    new: str | None = None
    git: bool = False
    renamed: bool = False
    copied: bool = False
    executable: bool | None = None
    hunks: list[Hunk] = field(default_factory=list)


def looks_like_diff(text: str) -> bool:
    """Whether a text starts as a unified diff does."""
    return text.lstrip().startswith(("diff --git ", "--- "))


def parse(text: str) -> list[UnifiedFile]:
    """Parse a unified diff. ParseError names what is wrong and where."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParseError(f"the text has a lone surrogate at offset {error.start}") from None
    return _Reader(text).run()


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        heads = [line for line in self.lines if line.startswith(("--- ", "+++ ", "@@ "))]
        if heads and all(line.endswith("\r") for line in heads):
            # The diff itself was sent with CRLF; its content need not have been.
            self.lines = [line.removesuffix("\r") for line in self.lines]
        self.at = 0
        self.diffs: list[UnifiedFile] = []

    def run(self) -> list[UnifiedFile]:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line.startswith("diff --git "):
                self._git_header(line)
            elif line.startswith("--- ") and self._next().startswith("+++ "):
                self._names(line)
            elif line.startswith("@@"):
                self._hunk(line)
            elif line == "-- " and self.at >= len(self.lines) - 3:
                break  # the signature of a mailed patch
            elif line.strip() and not line.startswith(("diff ", *_IGNORED)):
                raise self._bad(f"unexpected line in a unified diff: '{line}'")
            else:
                self.at += 1
        if not self.diffs:
            raise ParseError("the unified diff names no file")
        for diff in self.diffs:
            _check(diff)
        return self.diffs

    def _next(self) -> str:
        return self.lines[self.at + 1] if self.at + 1 < len(self.lines) else ""

    def _bad(self, message: str) -> ParseError:
        return ParseError(message, self.at + 1)

    # Headers

    def _git_header(self, line: str) -> None:
        old, new = names_of_git_header(line)
        diff = UnifiedFile(self.at + 1, old, new, git=True)
        self.diffs.append(diff)
        self.at += 1
        while self.at < len(self.lines) and self._extended(diff, self.lines[self.at]):
            self.at += 1

    def _extended(self, diff: UnifiedFile, line: str) -> bool:
        """Read one of git's extra header lines; False when it is none."""
        if line.startswith(_BINARY):
            raise self._bad("binary content in a unified diff cannot be applied")
        if line.startswith("new file mode "):
            diff.old = None
            diff.executable = self._mode(line) or None
        elif line.startswith("deleted file mode "):
            self._mode(line)
            diff.new = None
        elif line.startswith("new mode "):
            diff.executable = self._mode(line)
        elif line.startswith(("rename from ", "copy from ")):
            diff.old = unquoted(line.partition(" from ")[2])
        elif line.startswith(("rename to ", "copy to ")):
            diff.new = unquoted(line.partition(" to ")[2])
            diff.renamed = line.startswith("rename")
            diff.copied = not diff.renamed
        else:
            return line.startswith(_IGNORED)
        return True

    def _mode(self, line: str) -> bool:
        mode = line.split()[-1]
        if not mode.startswith("100"):
            raise self._bad(f"file mode {mode}: only regular files can be patched")
        return mode.endswith("755")

    def _names(self, line: str) -> None:
        old, new = _without_prefixes(header_name(line), header_name(self._next()))
        last = self.diffs[-1] if self.diffs else None
        if last is None or not last.git or last.hunks:
            last = UnifiedFile(self.at + 1)
            self.diffs.append(last)
        if not (last.renamed or last.copied):
            last.old, last.new = old, new
        self.at += 2

    # Hunks

    def _hunk(self, line: str) -> None:
        if not self.diffs:
            raise self._bad("a hunk comes before any file name (--- and +++ lines)")
        start, counts = _numbers(line)
        hunk = Hunk(self.at + 1, start, heading=_heading(line))
        first = self.at + 1
        stop = self._by_count(first, *counts) if counts else None
        self._fill(hunk, first, self._by_marks(first) if stop is None else stop)
        self.diffs[-1].hunks.append(hunk)

    def _by_count(self, at: int, old: int, new: int) -> int | None:
        """Index where a hunk with these line counts ends; None when they do not fit its lines."""
        while old > 0 or new > 0:
            mark = self.lines[at][:1] or " " if at < len(self.lines) else "?"
            if mark not in " -+\\":
                return None
            old -= mark in " -"
            new -= mark in " +"
            at += 1
        while at < len(self.lines) and self.lines[at].startswith("\\"):
            at += 1
        follows = self.lines[at] if at < len(self.lines) else ""
        names = follows.startswith("--- ") and at + 1 < len(self.lines)
        fits = names or follows == "-- " or not follows.startswith((" ", "+", "-"))
        return at if fits and (old, new) == (0, 0) else None

    def _by_marks(self, at: int) -> int:
        first = at
        while at < len(self.lines):
            line = self.lines[at]
            follows = self.lines[at + 1] if at + 1 < len(self.lines) else ""
            if line.startswith(("@@", "diff --git ")):
                break
            if line.startswith("--- ") and follows.startswith("+++ "):
                break
            if line[:1] not in ("", " ", "+", "-", "\\"):
                break
            at += 1
        while at > first and self.lines[at - 1] == "":
            at -= 1  # blank lines between hunks
        return at

    def _fill(self, hunk: Hunk, first: int, stop: int) -> None:
        for line in self.lines[first:stop]:
            mark = line[:1] or " "
            if mark != "\\":
                hunk.marks.append(mark)
                hunk.texts.append(line[1:])
            elif hunk.marks:
                hunk.open_old = hunk.open_old or hunk.marks[-1] != "+"
                hunk.open_new = hunk.open_new or hunk.marks[-1] != "-"
        if not hunk.marks:
            raise self._bad("a hunk without lines")
        self.at = stop


def _numbers(line: str) -> tuple[int | None, tuple[int, int] | None]:
    """Start and counts of `@@ -a,b +c,d @@`; nothing when it is not written like that."""
    parts = line.split()
    if len(parts) < 4 or parts[0] != "@@" or parts[3] != "@@":
        return None, None
    values = []
    for part, sign in ((parts[1], "-"), (parts[2], "+")):
        start, _, count = part[1:].partition(",")
        count = count or "1"
        if part[:1] != sign or not (start.isdecimal() and count.isdecimal()):
            return None, None
        if len(start) > 9 or len(count) > 9:
            return None, None
        values.append((int(start), int(count)))
    return values[0][0], (values[0][1], values[1][1])


def _heading(line: str) -> str:
    """The text behind `@@ -a,b +c,d @@`, or behind a lone `@@`."""
    before, mark, text = line[2:].partition("@@")
    return (text if mark else before).strip()


def _without_prefixes(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    for one, other in _PREFIXES:
        if (old is None or old.startswith(one)) and (new is None or new.startswith(other)):
            return old and old[len(one) :], new and new[len(other) :]
    return old, new


def _check(diff: UnifiedFile) -> None:
    if diff.old is None and diff.new is None:
        raise ParseError("a file's old and new name are both /dev/null", diff.line)
    if not diff.hunks and not diff.git:
        raise ParseError(f"no hunks for {diff.new or diff.old}", diff.line)
    if diff.git and diff.old is not None and diff.new is not None and diff.old != diff.new:
        diff.renamed = not diff.copied
