"""ripgrep: which one is run, how it is run, and how it is ended.

It runs in the sandbox, where there is one, and can write nothing. Still nothing it prints is shown
as it comes: callers hold every path against the session's path policy, and read the lines they
show through that policy themselves.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from selectors import EVENT_READ, DefaultSelector
from time import monotonic

from msgspec import Struct

from toolrest.errors import Rejected, RespondToModel, Timeout, os_words
from toolrest.gate.context import Context
from toolrest.policy.paths.policy import PathPolicy
from toolrest.process.child import StartFailed
from toolrest.sandbox.backends.launcher import ATTEMPTS, disturbed, launcher_problem
from toolrest.sandbox.programs import rg_programs
from toolrest.tools.files.list_dir import one_line

SECONDS = 30.0
_PIECE = 1 << 16
_LOOK_UP = 0.05
"""Seconds between checks of the time limit and of cancellation."""
_MOST_ERROR_BYTES = 4000
_MOST_LARGE = 1000
_TOO_LARGE = re.compile(rb": ignoring (/.*): [0-9]+ bytes$")
_KEPT_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "PATH", "TMPDIR")
"""Git's own ignore files are found by these; a child gets nothing else."""


def find_rg(roots: Sequence[str] = ()) -> str | None:
    """The path of the system's ripgrep, or of the one installed with Toolrest if that is newer."""
    return next(iter(rg_programs(roots)), None)


class SearchEnd(Struct, frozen=True):
    """The end of a search; `stopped` when the caller had enough results."""

    code: int
    errors: str = ""
    stopped: bool = False
    too_large: tuple[bytes, ...] = ()
    """Paths of files over `--max-filesize`, which `--debug` names."""

    @property
    def incomplete(self) -> bool:
        """Whether some files could not be read; the others were searched."""
        return self.code == 2 and not self.errors and not self.stopped

    def check(self) -> None:
        """RespondToModel when the search itself failed."""
        if not self.stopped and not self.incomplete and self.code not in (0, 1):
            why = self.errors or f"it was ended by signal {-self.code}"
            raise RespondToModel(f"rg failed: {why}")


class Ripgrep(Struct):
    """One ripgrep to run. `program` None: the usual one."""

    program: str | None = None
    seconds: float = SECONDS

    async def run(
        self, arguments: Sequence[str], take: Callable[[bytes], bool], *, cwd: str, ctx: Context
    ) -> SearchEnd:
        """Hand each piece of output to `take` until it returns False; ends with ripgrep dead.

        `take` is called in a thread. Gives up when the call is cancelled.
        """
        argv = (
            _program(self.program or find_rg(ctx.files.tool_roots)),
            "--no-config",
            *arguments,
        )
        env = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        for _ in range(ATTEMPTS):
            end = await self._once(argv, take, cwd, env, ctx)
            problem = launcher_problem(end.errors, end.code)
            if problem is None:
                return end
            if not disturbed(end.errors, end.code):
                break
        # Its exit code 1 would mean that nothing matches.
        raise RespondToModel(f"rg was not run: {problem}; call again")

    async def _once(
        self,
        argv: tuple[str, ...],
        take: Callable[[bytes], bool],
        cwd: str,
        env: dict[str, str],
        ctx: Context,
    ) -> SearchEnd:
        try:
            async with ctx.session.runner().searches.running(argv, cwd, env) as child:
                said = _Messages()
                whole = await ctx.in_thread(
                    self._read, child.outputs, take, said, lambda: ctx.cancelled
                )
                if not whole:
                    return SearchEnd(0, stopped=True, too_large=tuple(said.too_large))
                ended = await child.wait()
                if child.failure is not None:
                    raise child.failure
        except StartFailed as failure:
            raise _not_started(failure) from None
        code = None if ended is None else ended.exit_code
        code = -(ended.signal or 0) if ended and code is None else code or 0
        return SearchEnd(code, said.errors(), too_large=tuple(said.too_large))

    def _read(
        self,
        outputs: Sequence[int],
        take: Callable[[bytes], bool],
        said: _Messages,
        stopped: Callable[[], bool],
    ) -> bool:
        """Read both outputs to their end; False when `take` has enough before."""
        out, err = outputs
        deadline = monotonic() + self.seconds
        with DefaultSelector() as ready:
            ready.register(out, EVENT_READ)
            ready.register(err, EVENT_READ)
            while ready.get_map():
                if stopped():
                    raise RespondToModel("cancelled", kind="aborted")
                if monotonic() >= deadline:
                    raise Timeout(f"rg timed out after {self.seconds:g} seconds")
                for key, _ in ready.select(_LOOK_UP):
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        ready.unregister(key.fd)
                    elif key.fd == err:
                        said.feed(piece)
                    elif not take(piece):
                        return False
        return True


class _Messages:
    """ripgrep's standard error: its errors, and with `--debug` the files it finds too large.

    Names of files are in what it says of its walk, so nothing is an error from there on.
    """

    def __init__(self) -> None:
        self.too_large: list[bytes] = []
        self._errors = self._rest = b""
        self._walks = False

    def feed(self, piece: bytes) -> None:
        """Take the next piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line)

    def errors(self) -> str:
        """What went wrong, as ripgrep or its launcher says it."""
        self._take(self._rest)
        return self._errors.decode("utf-8", "replace").strip()

    def _take(self, line: bytes) -> None:
        if line.startswith(b"rg: DEBUG|ignore::walk|"):
            self._walks = True
            found = _TOO_LARGE.search(line)
            if found is not None and len(self.too_large) < _MOST_LARGE:
                self.too_large.append(found[1])
        elif not self._walks and not line.startswith(b"rg: DEBUG|"):
            self._errors = (self._errors + line + b"\n")[:_MOST_ERROR_BYTES]


def _program(path: str | None) -> str:
    if path is None or not os.access(path, os.X_OK):
        there = path is not None and os.path.exists(path)
        number = errno.EACCES if there else errno.ENOENT
        raise _missing(os_words(OSError(number, os.strerror(number))))
    return path


def _not_started(failure: StartFailed) -> RespondToModel:
    if failure.step == "request":
        message = "a search cannot hold a NUL character or text that is not Unicode"
        return RespondToModel(message, kind="input_invalid")
    return _missing(failure.reason)


def _missing(why: str) -> RespondToModel:
    return RespondToModel(f"failed to launch rg: {why}. Ensure ripgrep is installed and on PATH.")


class SearchRoot(Struct):
    """The path to search: as shown, its real path, and whether it is a folder."""

    shown: str
    real: str
    is_folder: bool


def place(given: str | None, ctx: Context) -> SearchRoot:
    """The path to search; RespondToModel if it is missing or may not be read."""
    shown = ctx.cwd if given is None else ctx.resolve(given)
    try:
        real = ctx.files.canonical(shown)
        os.stat(real)
        try:
            ctx.files.open_dir(real).close()
        except NotADirectoryError:
            os.close(ctx.files.open_read(real))
            return SearchRoot(shown, real, False)
    except OSError as error:
        raise RespondToModel(f"unable to access `{shown}`: {os_words(error)}") from None
    except Rejected as error:
        raise Rejected(f"unable to access `{shown}`: {error.message}", kind=error.kind) from None
    return SearchRoot(shown, real, True)


class PathFilter:
    """Decides which of the paths that ripgrep prints may be shown, each folder checked once.

    A plain file in a folder that is what its name says needs no more than its own name judged;
    whatever is special goes the policy's long way.
    """

    def __init__(self, where: SearchRoot, files: PathPolicy) -> None:
        self._where = where
        self._files = files
        self._plain: dict[str, bool] = {}

    def shown(self, name: bytes) -> str | None:
        """The path to show for a printed path; None when it may not be shown."""
        try:
            path = name.decode()
        except UnicodeDecodeError:
            return None
        if not path.startswith(self._where.real) or not self._allowed(path):
            return None
        where = self._where
        same = where.shown == where.real
        return path if same else where.shown + path.removeprefix(where.real)

    def _allowed(self, path: str) -> bool:
        if self._files.read_rule(path) is not None:
            return False
        folder = os.path.dirname(path)
        if folder not in self._plain:
            same = self._files.canonical(folder) == folder
            self._plain[folder] = same and self._files.read_denied(folder) is None
        try:
            status = os.lstat(path)
        except OSError:
            return False
        if self._plain[folder] and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return True
        return self._files.read_denied(path) is None


class PathNames:
    """Gathers paths that end in NUL, as `--null` prints them, and keeps what may be shown.

    `enough` names are kept and one more is looked for, so that a caller can say that there are
    more. What is no UTF-8 is left out, and so is what the policy hides.
    """

    def __init__(self, where: SearchRoot, files: PathPolicy, skip: int, enough: int) -> None:
        self.kept: list[str] = []
        self.more = False
        self._judge = PathFilter(where, files)
        self._skip = skip
        self._enough = enough
        self._rest = b""

    def take(self, piece: bytes) -> bool:
        """Take a piece of output; returns False when nothing more is needed."""
        *names, self._rest = (self._rest + piece).split(b"\0")
        return all(map(self._add, names))

    def _add(self, name: bytes) -> bool:
        path = self._judge.shown(name)
        if path is None:
            return True
        if self._skip:
            self._skip -= 1
        elif len(self.kept) < self._enough:
            self.kept.append(path)
        else:
            self.more = True
        return not self.more


def one_line_each(paths: Sequence[str]) -> Iterator[str]:
    """Paths as lines: a line break in a name must not be able to forge another result."""
    return (path if path.isprintable() else one_line(path) for path in paths)
