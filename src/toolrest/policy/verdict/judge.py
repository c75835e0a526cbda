"""Judge parsed commands: from a `Script` to the segments of a judgement.

That includes shells which get their script as input, from a here-document or another command.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from toolrest.policy.commands.named_reads import named_reads
from toolrest.policy.commands.read_only import HARMLESS, safe_reads
from toolrest.policy.commands.touches import TOUCHES
from toolrest.policy.dangerous.files import FILE_CHECKS
from toolrest.policy.dangerous.flow import (
    Flow,
    fork_bomb,
    is_descriptor,
    may_flow,
    reads_program,
)
from toolrest.policy.dangerous.system import system_check
from toolrest.policy.dangerous.targets import dangerous_write
from toolrest.policy.shell.budget import ParseBudget
from toolrest.policy.shell.constants import expanded, possible_values
from toolrest.policy.shell.nested import SHELLS, Inner, Unwrapped, unwrap
from toolrest.policy.shell.other_shells import UNLIKE, unread_in
from toolrest.policy.shell.parse import parse
from toolrest.policy.shell.place import CdTracker, WorkingDirs, variables_of
from toolrest.policy.shell.run_later import VARIABLES
from toolrest.policy.shell.script import MAY_BE_EMPTY, Script, Simple
from toolrest.policy.shell.special_commands import hidden_value, printed
from toolrest.policy.shell.words import is_calm, split_program
from toolrest.policy.verdict.opened import opened
from toolrest.policy.verdict.verdict import CommandClass, Segment


def hands_on(script: Script) -> bool:
    """True when a command in it may read what another one is given or prints."""
    return any(
        simple.upstream >= 0 or any(r.kind in ("document", "string") for r in simple.redirects)
        for simple in script.commands
    )


def is_fed(simple: Simple, name: str) -> bool:
    """True for what runs a script that may stand in this very command line."""
    if name in ("source", ".") and len(simple.argv) > 1:
        return is_descriptor(simple.argv[1]) or bool(simple.mark(1))
    return name in SHELLS and reads_program(simple)


MAX_NESTING = 8

_SHELL_FOLDERS = ("", "/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_SHAPES = {
    "background": "it leaves a command running in the background",
    "function": "it defines a function",
    "loop": "it has a loop",
    "if": "it has a condition",
    "case": "it has a condition",
    "test": "it has a test that may run more than it shows",
    "arithmetic": "it computes, which may run more than it shows",
    "assignment": "it sets a variable",
    "declaration": "it changes the shell's variables",
    "comment": "a comment stands inside a command",
}


class _At(Struct):
    """Where a command stands in its script, and how deep that script is nested."""

    script: Script
    number: int = 0
    depth: int = 0
    flow: Flow | None = None


class Judge:
    """Judges one command line; `segments` fill up in the order of the source."""

    def __init__(
        self,
        cwd: str,
        roots: tuple[str, ...],
        home: str,
        budget: ParseBudget | None = None,
        shell: str = "",
    ) -> None:
        self.budget = budget or ParseBudget()
        self._shell = shell
        self._values: dict[str, list[str]] = {}
        self.place = WorkingDirs((cwd,), roots, home.rstrip("/"), cwd)
        self.segments: list[Segment] = []
        self.plain = True
        self.scripts: dict[str, Script] = {}
        self._scripts: list[Script] = []

    def words(self, argv: tuple[str, ...], *, known_shell: bool = True) -> None:
        """An argument list; for `bash -c SCRIPT` a known shell is not a segment itself."""
        if not argv or any("\x00" in word for word in argv):
            self._add((), CommandClass.UNKNOWN, "unknown.argv", "there is no usable argument list")
            return
        simple = Simple(argv)
        folder, name = split_program(argv[0])
        if known_shell and name in SHELLS and folder in _SHELL_FOLDERS:
            unwrapped = unwrap(simple)
            if unwrapped is not None and unwrapped.transparent:
                self._inners(simple, unwrapped, self.place, _At(Script([simple]), depth=-1))
                return
        self._command(simple, self.place, _At(Script([simple])))

    def script(self, text: str, place: WorkingDirs, depth: int, shell: str = "") -> None:
        """The text of a script; `shell` reads it, if not the one that reads what is around it."""
        if not shell or shell == self._shell:
            self._script(text, place, depth)
            return
        outer, self._shell = self._shell, shell
        self._script(text, place, depth)
        self._shell = outer

    def _script(self, text: str, place: WorkingDirs, depth: int) -> None:
        script = self.scripts.get(text) or self.scripts.setdefault(text, parse(text, self.budget))
        if script.too_big or depth > MAX_NESTING:
            why = script.too_big or f"scripts are nested more than {MAX_NESTING} deep"
            self._add((), CommandClass.REFUSED, "refused.size", why, depth)
        unread = unread_in(self._shell, text, script) if self._shell in UNLIKE else None
        for problem in script.problems if unread is None else (*script.problems, unread):
            self._add((), CommandClass.UNKNOWN, problem.rule, problem.why, depth)
        for shape in sorted(script.constructs):
            self._add((), CommandClass.RUNS, f"shape.{shape}", _SHAPES[shape], depth)
        if script.problems or script.constructs or unread:
            self.plain = False
        bomb = fork_bomb(script) if script.functions else None
        if bomb is not None:
            self._add((), CommandClass.DANGEROUS, bomb.rule, bomb.why, depth)
        if depth <= MAX_NESTING:
            self._commands(script, text, place, depth)

    def _commands(self, script: Script, text: str, place: WorkingDirs, depth: int) -> None:
        self._scripts.append(script)
        if script.constructs:
            for name, values in possible_values(script).items():
                self._values.setdefault(name, []).extend(values)
        flow = Flow(script) if may_flow(text) else None
        known: dict[str, str] = {}
        if "$" in text:
            cwd = place.cwds[0] if len(place.cwds) == 1 else ""
            known = variables_of(script, cwd, place.home)
            place = replace(place, variables=known)
        walk = (
            CdTracker(script, place) if "cd" in text or "pushd" in text or "popd" in text else None
        )
        at = _At(script, 0, depth, flow)
        for at.number, simple in enumerate(script.commands):
            self._command(simple, place if walk is None else walk.at(simple), at)
            if simple.assignments and not simple.argv:
                names = [a.name for a in simple.assignments if a.name in script.constants]
                known.update((name, script.constants[name]) for name in names)

    def _add(
        self, argv: tuple[str, ...], kind: CommandClass, rule: str, why: str = "", depth: int = 0
    ) -> Segment:
        segment = Segment(argv, kind, rule, why, (), depth)
        self.segments.append(segment)
        return segment

    # One simple command

    def _command(self, simple: Simple, place: WorkingDirs, at: _At) -> None:
        segment = Segment(simple.argv, CommandClass.SAFE, "safe", "", simple.marks, at.depth)
        segment.cwds = place.cwds
        self.segments.append(segment)
        if simple.marks:
            self.plain = False
        if simple.assignments:
            self._assignments(simple, segment, place, at)
        if simple.argv:
            self._program(simple, segment, place, at)
        if simple.marks and any(mark & MAY_BE_EMPTY for mark in simple.marks[1:]):
            self._emptied(simple, segment, place, at)
        if simple.marks and self._values:
            self._split(simple, segment, place, at)
        if simple.redirects:
            self._redirects(simple, segment, place)
        if at.flow is not None:
            danger = at.flow.see(at.number, simple)
            if danger is not None:
                segment.raise_to(CommandClass.DANGEROUS, danger.rule, danger.why)

    def _emptied(self, simple: Simple, segment: Segment, place: WorkingDirs, at: _At) -> None:
        """Judge also what is left when unquoted expansions come out empty."""
        kept = [index for index, mark in enumerate(simple.marks) if not mark & MAY_BE_EMPTY]
        if not kept or kept[0]:
            return
        marks = tuple(simple.marks[index] for index in kept)
        argv = tuple(simple.argv[index] for index in kept)
        rest = replace(simple, argv=argv, marks=marks if any(marks) else ())
        self._raise_by(rest, segment, place, at)

    def _split(self, simple: Simple, segment: Segment, place: WorkingDirs, at: _At) -> None:
        """Judge also the command with its variables' values split into words."""
        for variant in expanded(simple, self._values):
            self._raise_by(variant, segment, place, at)
            self.budget.commands -= 1
            if self.budget.commands < 0:
                why = "what its variables hold is too much to be read"
                segment.raise_to(CommandClass.UNKNOWN, "unknown.budget", why)
                break

    def _raise_by(self, variant: Simple, segment: Segment, place: WorkingDirs, at: _At) -> None:
        """Raise the segment to the danger of what the command may turn out to be."""
        ghost = Judge(place.start, place.roots, place.home, self.budget, self._shell)
        ghost._command(variant, place, at)
        for found in ghost.segments:
            if found.kind >= CommandClass.DANGEROUS:
                segment.raise_to(found.kind, found.rule, found.why)

    def _assignments(self, simple: Simple, segment: Segment, place: WorkingDirs, at: _At) -> None:
        self.plain = False
        for name, value, mark in simple.assignments:
            if mark or not is_calm(name, value):
                segment.assigns = True
                segment.raise_to(CommandClass.RUNS, "runs.assignment", f"it sets {name}")
            if hidden_value(name, value):
                why = f"what {name} is set to may be run later"
                segment.raise_to(CommandClass.UNKNOWN, "unknown.assignment", why)
            if name in VARIABLES and not mark:
                self.script(value, place, at.depth + 1)

    def _program(self, simple: Simple, segment: Segment, place: WorkingDirs, at: _At) -> None:
        if simple.mark(0):
            known = place.word(simple.argv[0], simple.marks[0])
            if not known:
                why = f"which program {simple.argv[0]!r} is, only the shell can tell"
                segment.raise_to(CommandClass.UNKNOWN, "unknown.program", why)
                return
            segment.raise_to(CommandClass.RUNS, "runs.variable", f"the program is {known}")
            simple = replace(simple, argv=(known, *simple.argv[1:]), marks=(0, *simple.marks[1:]))
        name = simple.argv[0].rpartition("/")[2]
        self._dangers(simple, segment, place, name.lower())
        unwrapped = unwrap(simple)
        if unwrapped is not None:
            self._wrapper(simple, segment, unwrapped, place, at)
        elif not self._reads(simple, segment):
            self._ordinary(simple, segment, place, name)
            if is_fed(simple, name):
                self._fed(simple, segment, place, at)

    def _dangers(self, simple: Simple, segment: Segment, place: WorkingDirs, name: str) -> None:
        check = FILE_CHECKS.get(name) or system_check(name)
        if check is not None:
            danger = check(simple, place)
            if danger is not None:
                segment.raise_to(CommandClass.DANGEROUS, danger.rule, danger.why)

    def _reads(self, simple: Simple, segment: Segment) -> bool:
        if simple.marks:
            return False
        reads = safe_reads(simple.argv)
        if reads is None:
            return False
        segment.read_words = reads
        if segment.needs_disarmed_git and not segment.cwds:
            segment.raise_to(CommandClass.RUNS, "runs", "it runs git, who knows where")
        return True

    def _ordinary(self, simple: Simple, segment: Segment, place: WorkingDirs, name: str) -> None:
        touches = TOUCHES.get(name)
        touch = touches(simple, place) if touches is not None else None
        if touch is None:
            segment.raise_to(CommandClass.RUNS, "runs", f"it runs {simple.argv[0]}")
            segment.reads, segment.wild = named_reads(simple, place)
            return
        segment.reads = tuple(touch.reads)
        segment.writes = tuple(touch.writes)
        segment.connects = tuple(touch.connects)
        if not touch.sure:
            segment.wild = named_reads(simple, place).wild
        known_folder = split_program(simple.argv[0])[0] in ("", "/bin", "/usr/bin")
        if touch.sure and known_folder:
            segment.raise_to(CommandClass.TOUCHES, "touches", _touched(segment))
        else:
            segment.raise_to(CommandClass.RUNS, "runs", f"it runs {simple.argv[0]}")
        for path in segment.writes:
            danger = dangerous_write(path, place)
            if danger is not None:
                segment.raise_to(CommandClass.DANGEROUS, danger.rule, danger.why)

    # Commands inside commands

    def _wrapper(
        self, simple: Simple, segment: Segment, unwrapped: Unwrapped, place: WorkingDirs, at: _At
    ) -> None:
        folder, name = split_program(simple.argv[0])
        segment.transparent = unwrapped.transparent and folder in _SHELL_FOLDERS
        inner = unwrapped.inners[0].argv
        system = folder in ("", "/bin", "/usr/bin")
        if name == "xargs" and system and simple.literal and inner and inner[0] in HARMLESS:
            segment.reads = named_reads(simple, place).paths
            return
        if not segment.transparent:
            segment.raise_to(CommandClass.RUNS, "runs.wrapper", f"it runs {simple.argv[0]}")
            segment.reads, segment.wild = named_reads(simple, place)
            touches = TOUCHES.get(name)
            touch = touches(simple, place) if touches is not None else None
            if touch is not None:
                segment.reads += tuple(touch.reads)
                segment.writes = tuple(touch.writes)
                segment.connects = tuple(touch.connects)
        self._inners(simple, unwrapped, place.moved(()) if unwrapped.moved else place, at)

    def _inners(self, simple: Simple, unwrapped: Unwrapped, place: WorkingDirs, at: _At) -> None:
        depth = at.depth + 1
        for inner in unwrapped.inners:
            if inner.opaque:
                self._add(simple.argv, CommandClass.UNKNOWN, "unknown.inner", inner.opaque, depth)
            elif depth > MAX_NESTING:
                why = f"commands are nested more than {MAX_NESTING} deep"
                self._add(inner.argv, CommandClass.REFUSED, "refused.size", why, depth)
            elif inner.remote:
                self._remote(inner, depth)
            elif inner.script is not None:
                self.script(inner.script, place, depth, inner.shell)
            else:
                again = replace(simple, argv=inner.argv, marks=inner.marks, assignments=())
                self._command(again, place, replace(at, depth=depth))

    def _remote(self, inner: Inner, depth: int) -> None:
        """Judge a command for another machine: by the dangerous list alone, without paths."""
        elsewhere = Judge("/", (), "", self.budget)
        elsewhere.place = replace(elsewhere.place, cwds=())
        if inner.script is not None:
            elsewhere.script(inner.script, elsewhere.place, depth)
        else:
            again = Simple(inner.argv, inner.marks)
            elsewhere._command(again, elsewhere.place, _At(Script([again]), depth=depth))
        for segment in elsewhere.segments:
            segment.reads = segment.writes = segment.redirected = segment.read_words = ()
            self.segments.append(segment)

    def _fed(self, simple: Simple, segment: Segment, place: WorkingDirs, at: _At) -> None:
        """A shell that reads its script from a here-document or a pipe."""
        texts = [r for r in simple.redirects if r.kind in ("document", "string")]
        for redirect in texts:
            self.script(redirect.target, place, at.depth + 1)
            if redirect.mark:
                why = "a nested shell's script is not literal"
                segment.raise_to(CommandClass.UNKNOWN, "unknown.inner", why)
        if texts:
            return
        if any(word.startswith("<(") and simple.mark(i) for i, word in enumerate(simple.argv)):
            why = "it runs what another command prints"
            segment.raise_to(CommandClass.UNKNOWN, "unknown.piped", why)
        text = _printed(at, simple) if simple.upstream >= 0 else None
        if text is not None:
            self.script(text, place, at.depth + 1)
        elif simple.upstream >= 0 or any(map(hands_on, self._scripts)):
            why = "it runs a script that comes from another command"
            segment.raise_to(CommandClass.UNKNOWN, "unknown.piped", why)

    def _redirects(self, simple: Simple, segment: Segment, place: WorkingDirs) -> None:
        self.plain = False
        reads: list[str] = []
        writes: list[str] = []
        for redirect in simple.redirects:
            (reads if redirect.kind == "read" else writes).extend(opened(redirect, segment, place))
        segment.reads += tuple(reads)
        segment.redirected = tuple(writes)


def _printed(at: _At, shell: Simple) -> str | None:
    """What `echo …` or `printf …` hands to the shell right behind it, if it is literal."""
    # Between the two there may be nothing but what the shell's own words run.
    if at.number > shell.upstream + 1 and shell.substituted[0] != shell.upstream + 1:
        return None
    source = at.script.commands[shell.upstream]
    return None if not source.literal or source.redirects else printed(source.argv)


def _touched(segment: Segment) -> str:
    parts = [*(f"writes {path}" for path in segment.writes[:3])]
    parts += [f"connects to {host}" for host in segment.connects[:3]]
    return "it " + ", ".join(parts) if parts else "it touches files"
