"""Codex's patch language: its parser, and the grammar that a model's server can enforce.

The language and its leniencies are those of apply_patch: an envelope of two marker lines, and
between them operations on files. Every error names the line at fault. The grammar is stricter
than the parser: at least one operation, and at least one line in an added file.
"""

from __future__ import annotations

from toolrest.patch.errors import ParseError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import TypeAlias


WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""Unicode's White_Space; `str.strip()` without it would also take U+001C to U+001F."""

BEGIN = "*** Begin Patch"
END = "*** End Patch"
_ADD = "*** Add File: "
_DELETE = "*** Delete File: "
_UPDATE = "*** Update File: "
_MOVE = "*** Move to: "
_EOF = "*** End of File"
_ENVIRONMENT = "*** Environment ID:"
_HEREDOCS = ("<<EOF", "<<'EOF'", '<<"EOF"')

_FIRST = f"The first line of the patch must be '{BEGIN}'"
_LAST = f"The last line of the patch must be '{END}'"


class Chunk:
    """One hunk of an update: an optional context to look for first, then marked lines."""

    __slots__ = ("context", "eof", "line", "marks", "texts")

    def __init__(self, context: str | None, line: int) -> None:
        self.context = context
        self.line = line
        self.marks: list[str] = []
        self.texts: list[str] = []
        self.eof = False

    @property
    def old(self) -> list[str]:
        """The lines that the file must have."""
        return [t for m, t in zip(self.marks, self.texts, strict=True) if m != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that the file will have in their place."""
        return [t for m, t in zip(self.marks, self.texts, strict=True) if m != "-"]


class AddFile:
    """Write a file with this text, whether or not there is one."""

    __slots__ = ("lines", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: list[str] = []

    @property
    def text(self) -> str:
        """The content of the file: every line ends in LF."""
        return "".join([f"{line}\n" for line in self.lines])


class DeleteFile:
    """Remove a file."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class UpdateFile:
    """Change a file in the places that its chunks name, and perhaps move it."""

    __slots__ = ("chunks", "line", "move_to", "path")

    def __init__(self, path: str, line: int) -> None:
        self.path = path
        self.line = line
        self.move_to: str | None = None
        self.chunks: list[Chunk] = []


if TYPE_CHECKING:
    Operation: TypeAlias = AddFile | DeleteFile | UpdateFile


class Patch:
    """The operations of a patch, in its own order."""

    __slots__ = ("environment_id", "operations")

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.environment_id: str | None = None


def parse(text: str) -> Patch:
    """Parse a patch. ParseError names what is wrong and where."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ParseError(f"the text has a lone surrogate at offset {error.start}") from None
    text = text.strip(WHITESPACE)
    lines = _envelope(_without_return(text.split("\n")) if text else [])
    # A second CR before LF is forgiven too, but only inside the envelope.
    return _Machine(_without_return(lines)).run()


def _without_return(lines: list[str]) -> list[str]:
    """Drop one CR from the end of every line but the last, which no LF followed."""
    return [*[line.removesuffix("\r") for line in lines[:-1]], lines[-1]]


def _envelope(lines: list[str]) -> list[str]:
    """The lines from begin to end marker, without a heredoc around them."""
    problem = _envelope_problem(lines)
    if problem is None:
        return lines
    if len(lines) >= 4 and lines[0] in _HEREDOCS and lines[-1].endswith("EOF"):
        inner = lines[1:-1]
        problem = _envelope_problem(inner)
        if problem is None:
            return inner
    raise ParseError(problem)


def _envelope_problem(lines: list[str]) -> str | None:
    if not lines:
        return _LAST
    if lines[0].strip(WHITESPACE) != BEGIN:
        return _FIRST
    return None if lines[-1].strip(WHITESPACE) == END else _LAST


def _bad_header(line: str) -> str:
    return (
        f"'{line}' is not a valid hunk header. Valid hunk headers: "
        "'*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"
    )


def _unexpected(line: str) -> str:
    return (
        f"Unexpected line found in update hunk: '{line}'. Every line should start with "
        "' ' (context line), '+' (added line), or '-' (removed line)"
    )


def _expected_at(line: str) -> str:
    return f"Expected update hunk to start with a @@ context marker, got: '{line}'"


_NO_LINES = "Update hunk does not contain any lines"


class _Machine:
    """Reads the lines between the markers one by one. `number` is the line at hand."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.patch = Patch()
        self.current: Operation | None = None
        self.ended = False
        self.number = 1

    def run(self) -> Patch:
        for line in self.lines[1:-1]:
            self.number += 1
            self._line(line)
        self.number += 1
        self._close(END)
        return self.patch

    def _line(self, line: str) -> None:
        if self.ended:
            if line.strip(WHITESPACE):
                raise ParseError(_LAST)
            return
        current = self.current
        if isinstance(current, UpdateFile):
            # Inside an update an indented header is a context line.
            key = line.rstrip(WHITESPACE)
            if not key.startswith("*** ") or not self._header(key):
                self._update_line(current, line, key)
            return
        if isinstance(current, AddFile) and line.startswith("+"):
            current.lines.append(line[1:])
            return
        key = line.strip(WHITESPACE)
        if not self._environment(key) and not self._header(key):
            raise ParseError(_bad_header(key), self.number)

    def _environment(self, key: str) -> bool:
        if self.current is not None or not key.startswith(_ENVIRONMENT):
            return False
        if self.patch.environment_id is not None:
            raise ParseError("apply_patch environment_id cannot be specified more than once")
        self.patch.environment_id = key[len(_ENVIRONMENT) :].strip(WHITESPACE)
        if not self.patch.environment_id:
            raise ParseError("apply_patch environment_id cannot be empty")
        return True

    def _header(self, key: str) -> bool:
        """Whether the line ends the current operation: by a new one, or by the end marker."""
        operation: Operation
        if key == END:
            self._close(key)
            self.ended = True
            return True
        if key.startswith(_ADD):
            operation = AddFile(key[len(_ADD) :])
        elif key.startswith(_DELETE):
            operation = DeleteFile(key[len(_DELETE) :])
        elif key.startswith(_UPDATE):
            operation = UpdateFile(key[len(_UPDATE) :], self.number)
        else:
            return False
        self._close(key)
        self.current = operation
        self.patch.operations.append(operation)
        return True

    def _close(self, key: str) -> None:
        update = self.current
        if not isinstance(update, UpdateFile):
            return
        if not update.chunks:
            raise ParseError(f"Update file hunk for path '{update.path}' is empty", update.line)
        if not update.chunks[-1].marks:
            raise ParseError(_NO_LINES if key == END else _unexpected(key), self.number)

    def _update_line(self, update: UpdateFile, line: str, key: str) -> None:
        chunk = update.chunks[-1] if update.chunks else None
        at = key == "@@" or key.startswith("@@ ")
        if chunk is not None and chunk.eof and not at:
            if key:
                raise ParseError(_expected_at(line), self.number)
        elif chunk is None and update.move_to is None and key.startswith(_MOVE):
            update.move_to = key[len(_MOVE) :]
        elif at:
            if chunk is not None and not chunk.marks:
                raise ParseError(_unexpected(line), self.number)
            update.chunks.append(Chunk(key[3:] if len(key) > 2 else None, self.number))
        elif key == _EOF:
            self._end_of_file(chunk)
        else:
            self._content(update, chunk, line)

    def _end_of_file(self, chunk: Chunk | None) -> None:
        if chunk is None:
            return
        if not chunk.marks:
            raise ParseError(_NO_LINES, self.number)
        chunk.eof = True

    def _content(self, update: UpdateFile, chunk: Chunk | None, line: str) -> None:
        mark = line[:1] or " "
        if mark not in " -+":
            message = _expected_at if chunk is not None and chunk.marks else _unexpected
            raise ParseError(message(line), self.number)
        if chunk is None:
            chunk = Chunk(None, self.number)
            update.chunks.append(chunk)
        chunk.marks.append(mark)
        chunk.texts.append(line[1:])


GRAMMAR = r"""
start: begin operation+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

operation: add | delete | update
add: "*** Add File: " path LF added+
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF move? changes?

move: "*** Move to: " path LF
changes: (context | changed)+ eof?
context: ("@@" | "@@ " text) LF
changed: ("+" | "-" | " ") text? LF
added: "+" text? LF
eof: "*** End of File" LF

path: text
text: /[^\n]+/
LF: "\n"
"""
"""Lark's own notation; only LF ends a line."""
