"""The runner: starts a session's programs, confined, and ends them with the session."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from msgspec.structs import replace

from toolrest.errors import RespondToModel
from toolrest.own_code import program_folder
from toolrest.policy.launch import Changed, Launch, Program, find_executable
from toolrest.policy.paths.names import unique
from toolrest.policy.paths.policy import PathPolicy
from toolrest.private_files import remove_tree
from toolrest.process.command import Command
from toolrest.process.owner import Owner
from toolrest.process.run import run
from toolrest.process.sessions.session import SessionEnd
from toolrest.process.sessions.table import ExecResult, Sessions
from toolrest.process.shells.environment import Environment, build, forced
from toolrest.process.shells.login_env import LoginShells, LoginStart
from toolrest.process.shells.shells import Shell, ShellKind, Shells, kind_of
from toolrest.running.attempts import HeldReports, repeated
from toolrest.running.confinement import (
    ConfinedCommand,
    Confinement,
    Enclosure,
    EnforcementNotes,
    Watch,
    was_killed,
)
from toolrest.running.pipeline import Ending
from toolrest.running.refused import Refused
from toolrest.running.results import ExecOutcome, RunOutcome, without_launcher
from toolrest.running.searches import Searches
from toolrest.running.tally import CommandCount
from toolrest.running.workdir import WorkingFolder
from toolrest.sandbox.backends.launcher import DISTURBED

if TYPE_CHECKING:
    from toolrest.sandbox.network.tunnel import Blocked

OnDelta: TypeAlias = Callable[[Literal["stdout", "stderr"], str], None]
_OTHER_PROGRAMS = ("docker", "gvisor", "vm", "chroot")
"""Sandboxes that have other programs than the host."""
_NOT_FOUND = ("/bin/sh", "-c", 'echo "$0: command not found" >&2; exit 127')


class Runner:
    """Starts programs. The helper process, the sandbox and the login environment come lazily."""

    def __init__(
        self,
        files: PathPolicy,
        session_dir: str,
        confinement: Confinement,
        environ: Mapping[str, str],
        *,
        cache_dir: str | None = None,
        registry: str | None = None,
        thread_id: str = "",
        on_blocked: Callable[[Blocked], None] | None = None,
        on_weak: Callable[[], None] | None = None,
        on_none: Callable[[str], None] | None = None,
        tally: CommandCount | None = None,
        watch: Callable[[], Watch] | None = None,
        watch_record: str = "",
        columns: Callable[[], int] = lambda: 80,
        patches: bool = False,
    ) -> None:
        """`patches`: commands find the program `apply_patch`."""
        self.files = files
        self.confinement = confinement
        self.enclosure = Enclosure(
            files,
            confinement,
            session_dir,
            cache_dir=cache_dir,
            registry=registry,
            on_blocked=on_blocked,
            on_weak=on_weak,
            on_none=on_none,
            watch=watch,
            trees=lambda: self._owner.children,
        )
        self._session_dir = session_dir
        self._environ = dict(environ)
        self._programs = program_folder() if patches else None
        self._thread_id = thread_id
        self._tally = tally or CommandCount()
        self._columns = columns
        limits = confinement.limits.for_cgroup()
        self._owner = Owner(cgroup_limits=limits, records=registry, watched=watch_record)
        self.sessions = Sessions(self._owner)
        self.searches = Searches(self.enclosure, self._owner)
        self._stops = self.enclosure.stops
        self._notes = EnforcementNotes(confinement.limits)
        self.shells = Shells.of_this_user(environ, avoid=self.suspects)
        self._login = {outside: self._login_shells(outside) for outside in (False, True)}
        self._sessions: dict[int, tuple[str, str, Ending, Refused]] = {}
        self._folder = WorkingFolder(files)
        self._environments: dict[tuple[bool, bool], tuple[Environment, dict[str, str]]] = {}

    def _login_shells(self, outside: bool) -> LoginShells:
        """Login shells that read the profile where the command runs: in the sandbox or outside."""

        @asynccontextmanager
        async def confine(command: Command) -> AsyncIterator[Command]:
            confined = await self.enclosure.wrap(command, outside=outside)
            try:
                yield confined.command
            finally:
                await self._stops.release(confined)

        own_files = not outside and self.enclosure.has_own_files
        return LoginShells(
            self._owner,
            confine,
            self.confinement.environment,
            own_files=own_files,
            kept=self._programs,
        )

    # Where and how

    @property
    def is_confined(self) -> bool:
        """Whether commands run in a sandbox unless approved to run outside."""
        return self.enclosure.is_confined

    def workdir(self, given: str | None) -> str:
        """The folder to run in: any that may be read; it never becomes writable by that (S6)."""
        return self._folder.check(given)

    def count(self) -> None:
        """Count a command; past the session's limit the error for the model names the setting."""
        self._tally.add(self.confinement.max_commands)

    def environment(
        self, *, unified: bool, tty: bool = False
    ) -> tuple[dict[str, str], tuple[str, ...], dict[str, str]]:
        """A child's variables, the names withheld from it, and the forced variables."""
        known = self._environments.get((unified, tty))
        if known is None:  # nothing that it depends on changes while the session lives
            network = not self.is_confined or self.confinement.network == "on"
            fixed = forced(unified=unified, tty=tty, network=network, thread_id=self._thread_id)
            made = build(self.confinement.environment, self._environ, forced=fixed)
            if self._programs is not None and "PATH" in made.variables:
                path = os.pathsep.join((self._programs, made.variables["PATH"]))
                made.variables.update(PATH=path, TOOLREST_PYTHON=sys.executable)
            known = self._environments[unified, tty] = (made, fixed)
        made, fixed = known
        return dict(made.variables), made.withheld, fixed

    # The launch record

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """Folders whose programs come with a project or may have been written by a tool."""
        return unique(r for r in (self.files.workspace, *self.files.writable_roots) if r != "/")

    def plan(
        self,
        command: str | tuple[str, ...],
        workdir: str | None,
        *,
        shell: str | None = None,
        login: bool = False,
        unified: bool = False,
        tty: bool = False,
        escalated: bool = False,
    ) -> Launch:
        """The launch record of a command line or argument vector, as far as it is known without
        starting anything: `settle` adds what a login profile sets.
        """
        env, withheld, forced = self.environment(unified=unified, tty=tty)
        cwd = self.files.resolve(workdir) if workdir else self.files.cwd
        judged, kind, asked_shell = command, None, ""
        if isinstance(command, str):
            chosen = self.shells.named(shell) if shell else self.shells.default()
            argv = chosen.argv(command, login=login)
            judged, kind = (command if chosen.known else argv), chosen.kind
            login = login and chosen.posix
            asked_shell = "" if chosen.missing else chosen.instead_of
            if chosen.missing and self.confinement.backend not in _OTHER_PROGRAMS:
                argv = judged = (*_NOT_FOUND, chosen.path)
                kind = None
        else:
            argv = command
        path = env.get("PATH", os.defpath)
        program = find_executable(argv[0], path, cwd, self.suspects)
        if not isinstance(command, str):
            kind = self._login_shell(argv, program)
            login = kind is not None
        return Launch(
            argv,
            cwd,
            env,
            program,
            judged,
            kind,
            escalated,
            login,
            tty,
            withheld,
            tuple(forced),
            argv,
            path,
            self.is_confined,
            self.confinement.network,
            self.suspects,
            asked_shell,
        )

    def _login_shell(self, argv: tuple[str, ...], program: Program | None) -> ShellKind | None:
        """The kind of shell of `bash -lc LINE`, if it is one of the system's."""
        is_line = len(argv) == 3 and argv[1] == "-lc" and kind_of(argv[0]) is not None
        if not is_line or program is None or program.writable:
            return None
        shell = self.shells.named(argv[0])
        return shell.kind if shell.posix and shell.known and not shell.instead_of else None

    async def settle(self, launch: Launch, *, outside: bool) -> Launch:
        """The launch record with the environment of the login profile, where one is read.

        It then starts without reading it again. Where that cannot be, it is read at the start, and
        what it does to an escalated launch is not known.
        """
        if not launch.login:
            return launch
        if launch.escalated and not outside and self.enclosure.has_own_files:
            return self.unsettled(launch)  # the profiles there are not this machine's
        shell = Shell(cast("ShellKind", launch.shell), launch.argv[0])
        start, env, path = await self._prepare(shell, launch, outside)
        login = start[1] != "-c"
        if login and launch.escalated:
            path = None
        return replace(launch, env=env, start=start, path=path, login=login)

    def unsettled(self, launch: Launch) -> Launch:
        """The launch record where no profile can be read before the start outside the sandbox."""
        shell = Shell(cast("ShellKind", launch.shell), launch.argv[0])
        start, env, path = self._login[True].unread(shell, launch.argv[-1], launch.env)
        return replace(launch, env=env, start=start, path=path)

    def without_profile(self, launch: Launch) -> Launch:
        """The same launch where no start-up file of the shell is read, not even a short one."""
        if launch.shell is None or launch.login:
            return launch
        env = {name: launch.env[name] for name in launch.env if name not in ("BASH_ENV", "ENV")}
        start = launch.start
        if launch.shell == "zsh":
            start = (start[0], "-f", *start[1:])
        return replace(launch, env=env, start=start)

    def compare(self, launch: Launch) -> None:
        """Raise Changed if starting it now would execute another file than the one decided on."""
        path = launch.env.get("PATH", os.defpath)
        now = find_executable(launch.start[0], path, launch.cwd, self.suspects)
        if now != launch.program:
            found = "is gone" if now is None else f"is now {now.path}, another file or content"
            raise Changed(f"{launch.start[0]} {found}")

    # Running

    async def run(
        self, argv: tuple[str, ...], cwd: str, *, seconds: float, outside: bool
    ) -> RunOutcome:
        """Run a program of Toolrest's own choice to its end or its time limit."""
        return await self.run_once(self.plan(argv, cwd), seconds=seconds, outside=outside)

    async def run_once(
        self,
        launch: Launch,
        *,
        seconds: float,
        outside: bool,
        on_delta: OnDelta | None = None,
    ) -> RunOutcome:
        """Run a launch record to its end or its time limit, which kills the whole tree."""
        command = Command(launch.start, launch.cwd, launch.env, approved=launch.approved)
        return await self._run(command, launch.withheld, seconds, outside, on_delta, launch)

    async def _prepare(self, shell: Shell, launch: Launch, outside: bool) -> LoginStart:
        """Arguments and environment of a login shell's line; reading a profile is a command too."""
        await self._owner.prepare()
        await self.enclosure.open_network()
        return await self._login[outside].prepare(
            shell, launch.argv[-1], launch.env, launch.cwd, forced=launch.forced
        )

    async def _run(
        self,
        command: Command,
        withheld: tuple[str, ...],
        seconds: float | None,
        outside: bool,
        on_delta: OnDelta | None,
        launch: Launch | None = None,
    ) -> RunOutcome:
        async def attempt(reports: HeldReports) -> RunOutcome:
            report, reports.has_begun = reports.hold(on_delta), True  # its caller reports the end
            return await self._run_once(command, withheld, seconds, outside, report, launch)

        with self.enclosure.refusing():
            return await repeated(attempt)

    async def _run_once(
        self,
        command: Command,
        withheld: tuple[str, ...],
        seconds: float | None,
        outside: bool,
        on_delta: OnDelta | None,
        launch: Launch | None,
    ) -> RunOutcome:
        ending = Ending(launch)
        command = ending.report_to(command)
        confined = await self._confined(command, outside)
        disturbed = False
        try:
            result = await run(self._owner, confined.command, time_limit=seconds, on_delta=on_delta)
            if result.state != "exited" or was_killed(result.exit_code):
                await self._stops.stop(confined)
            disturbed = confined.was_disturbed(result.exit_code, result.stderr)
        except BaseException:
            await self._stops.stop(confined)
            raise
        finally:
            self._stops.release_soon(confined)
        result = without_launcher(result, confined.command, is_client=confined.stop is not None)
        if disturbed:
            return RunOutcome(result, confined.backend, withheld, gaps=(DISTURBED,), disturbed=True)
        blocked, code = None, result.exit_code
        if code is not None and not result.timed_out:
            ending.read(code)
            said = (result.stdout, result.stderr, confined.refused)
            blocked = self.enclosure.blocked(
                confined.backend, command.cwd, code, *said, proves=ending.proves
            )
        gaps = self._notes.unreported(confined, self._owner.limits)
        return RunOutcome(result, confined.backend, withheld, blocked, gaps, hidden=ending.hidden)

    async def execute(
        self,
        launch: Launch,
        *,
        yield_ms: int,
        outside: bool,
        call_id: str,
        on_delta: Callable[[str], None] | None = None,
        on_start: Callable[[int, int], None] | None = None,
        on_bytes: Callable[[bytes], object] | None = None,
        on_end: Callable[[SessionEnd], None] | None = None,
    ) -> ExecOutcome:
        """Start a command that may outlive the call.

        `on_bytes` gets all of its output and `on_end` its end, however late.
        """
        numbers: list[int] = []

        async def attempt(reports: HeldReports) -> ExecOutcome:
            def started(number: int, pid: int) -> None:
                if not numbers and on_start is not None:
                    on_start(number, pid)
                numbers.append(number)
                reports.has_begun = True

            start = partial(
                self.sessions.exec,
                yield_ms=yield_ms,
                session_id=numbers[0] if numbers else None,
                call_id=call_id,
                on_start=started,
                on_delta=reports.hold(on_delta),
                on_bytes=reports.hold(on_bytes),
            )
            return await self._execute(start, launch, outside, reports.hold(on_end))

        with self.enclosure.refusing():
            return await repeated(attempt)

    async def _execute(
        self,
        start: Callable[..., Awaitable[ExecResult]],
        launch: Launch,
        outside: bool,
        on_end: Callable[[SessionEnd], None] | None,
    ) -> ExecOutcome:
        cwd = launch.cwd
        command = Command(
            launch.start,
            cwd,
            launch.env,
            tty=launch.tty,
            cols=self._columns(),
            approved=launch.approved,
        )
        ending = Ending(launch)
        confined = await self._confined(ending.report_to(command), outside)
        disturbed = False

        def ended(end: SessionEnd) -> None:
            nonlocal disturbed
            disturbed = confined.was_disturbed(end.exit_code, end.transcript)
            if end.signal is not None or was_killed(end.exit_code):
                self._stops.stop_soon(confined)
            else:
                self._stops.release_soon(confined)
            if on_end is not None:
                on_end(end)

        try:
            result = await start(confined.command, on_end=ended)
        except BaseException:
            self._stops.stop_soon(confined)
            raise
        if result.state == "failed_to_start":
            self._stops.release_soon(confined)
        if result.session_id is not None:
            self._sessions[result.session_id] = (confined.backend, cwd, ending, confined.refused)
        result = without_launcher(result, confined.command, is_client=confined.stop is not None)
        if disturbed:
            return ExecOutcome(
                result, confined.backend, launch.withheld, gaps=(DISTURBED,), disturbed=True
            )
        done = self._executed(result, confined.backend, cwd, ending, confined.refused)
        done.withheld = launch.withheld
        done.gaps = self._notes.unreported(confined, self._owner.limits)
        return done

    def _executed(
        self, result: ExecResult, backend: str, cwd: str, ending: Ending, refused: Refused
    ) -> ExecOutcome:
        blocked, code = None, result.exit_code
        if code is not None:
            ending.read(code)
            said = ("", result.text, refused)
            blocked = self.enclosure.blocked(backend, cwd, code, *said, proves=ending.proves)
        return ExecOutcome(result, backend, blocked=blocked, hidden=ending.hidden)

    def left_sandbox(self, session_id: int) -> bool:
        """Whether a command that still runs was started outside the session's sandbox."""
        started = self._sessions.get(session_id)
        return self.is_confined and started is not None and started[0] == "none"

    async def write(
        self,
        session_id: int,
        chars: str,
        *,
        yield_ms: int,
        on_delta: Callable[[str], None] | None = None,
    ) -> ExecOutcome:
        """Type into a command that still runs, or poll it."""
        unknown = ("none", self.files.cwd, Ending(), Refused())
        backend, cwd, ending, refused = self._sessions.get(session_id, unknown)
        result = await self.sessions.write(session_id, chars, yield_ms=yield_ms, on_delta=on_delta)
        if result.session_id is None:
            self._sessions.pop(session_id, None)
        return self._executed(result, backend, cwd, ending, refused)

    async def attached(self, argv: tuple[str, ...]) -> int:
        """Run a program on this process's own input and output; its exit code, or 128 + n."""
        env, _, _ = self.environment(unified=False, tty=True)
        own = tuple((number, number) for number in (0, 1, 2))
        ran = await self._run(Command(argv, self.files.cwd, env, fds=own), (), None, False, None)
        if ran.result.error is not None:
            raise RespondToModel(ran.result.error)
        return 1 if ran.result.exit_code is None else ran.result.exit_code

    async def _confined(self, command: Command, outside: bool) -> ConfinedCommand:
        # Before anything is made in the workspace: the helper outlives us and would remove it.
        await self._owner.prepare()
        if self.confinement.limits:  # which of them the control group takes is known by now
            limits = self.confinement.limits.for_process(self._owner.limits)
            command = replace(command, limits=limits)
        return await self.enclosure.enter(command, outside=outside)

    async def aclose(self) -> None:
        """End every program of this session and remove its private folder."""
        await self.sessions.aclose()
        await self._stops.settle()
        await self._owner.aclose()
        await self.enclosure.aclose()
        remove_tree(self._session_dir)
