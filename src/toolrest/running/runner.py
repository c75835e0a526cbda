"""The runner: starts a session's programs, confined, and ends them with the session."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

from msgspec.structs import replace

from toolrest.errors import Rejected, RespondToModel
from toolrest.policy.launch import Changed, Launch, find_executable
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
from toolrest.process.shells.shells import Shell, ShellKind, Shells
from toolrest.running.confinement import (
    Confinement,
    Enclosure,
    EnforcementNotes,
    Stops,
    was_killed,
)
from toolrest.running.results import ExecOutcome, RunOutcome, without_launcher
from toolrest.running.searches import Searches
from toolrest.running.tally import CommandCount
from toolrest.sandbox.errors import SandboxUnavailable

if TYPE_CHECKING:
    from toolrest.sandbox.confine import Confined
    from toolrest.sandbox.network.tunnel import Blocked


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
        tally: CommandCount | None = None,
    ) -> None:
        self.files = files
        self.confinement = confinement
        self.enclosure = Enclosure(
            files,
            confinement,
            session_dir,
            cache_dir=cache_dir,
            registry=registry,
            on_blocked=on_blocked,
        )
        self._session_dir = session_dir
        self._environ = dict(environ)
        self._thread_id = thread_id
        self._tally = tally or CommandCount()
        self._owner = Owner(cgroup_limits=confinement.limits.for_cgroup(), records=registry)
        self.sessions = Sessions(self._owner)
        self.searches = Searches(self.enclosure, self._owner)
        self._stops = Stops()
        self._notes = EnforcementNotes(confinement.limits)
        self.shells = Shells.of_this_user(environ, avoid=self.suspects)
        self._profile_releases: list[Callable[[], None]] = []
        self._login = {outside: self._login_shells(outside) for outside in (False, True)}
        self._sessions: dict[int, tuple[str, str]] = {}
        self._last_workdir: tuple[str, int, int] | None = None
        self._environments: dict[tuple[bool, bool], tuple[Environment, dict[str, str]]] = {}

    def _login_shells(self, outside: bool) -> LoginShells:
        """Login shells that read the profile where the command runs: in the sandbox or outside."""

        def confine(command: Command) -> Command:
            confined = self.enclosure.wrap(command, outside=outside)
            self._profile_releases.append(confined.release)
            return confined.command

        return LoginShells(self._owner, confine, self.confinement.environment)

    # Where and how

    @property
    def is_confined(self) -> bool:
        """Whether commands run in a sandbox unless approved to run outside."""
        return self.enclosure.is_confined

    def workdir(self, given: str | None) -> str:
        """The folder to run in: any that may be read; it never becomes writable by that (S6)."""
        path = self.files.resolve(given) if given else self.files.cwd
        known = _folder(path)
        if known is not None and known == self._last_workdir:
            return path  # the same folder as last time
        denied = self.files.read_denied(path)
        if denied is not None:
            raise Rejected(denied)
        if known is None:
            raise RespondToModel(
                f"the working directory {path} is not a folder", fields=("workdir",)
            )
        self._last_workdir = known
        return path

    def count(self) -> None:
        """Count a command; past the session's limit the error for the model names the setting."""
        most = self.confinement.max_commands
        self._tally.commands += 1
        if most is not None and self._tally.commands > most:
            raise Rejected(
                f"not run: this session may run {most} commands "
                "(tool_security.max_shell_commands_per_session)"
            )

    def environment(
        self, *, unified: bool, tty: bool = False
    ) -> tuple[dict[str, str], tuple[str, ...], dict[str, str]]:
        """A child's variables, the names withheld from it, and the forced variables."""
        known = self._environments.get((unified, tty))
        if known is None:  # nothing that it depends on changes while the session lives
            network = not self.is_confined or self.confinement.network == "on"
            fixed = forced(unified=unified, tty=tty, network=network, thread_id=self._thread_id)
            made = build(self.confinement.environment, self._environ, forced=fixed)
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
        judged, kind = command, None
        if isinstance(command, str):
            chosen = self.shells.named(shell) if shell else self.shells.default()
            argv = chosen.argv(command, login=login)
            judged, kind = (command if chosen.known else argv), chosen.kind
            login = login and chosen.posix
        else:
            argv, login = command, False
        path = env.get("PATH", os.defpath)
        return Launch(
            argv,
            cwd,
            env,
            find_executable(argv[0], path, cwd, self.suspects),
            judged,
            kind,
            escalated,
            login,
            tty,
            withheld,
            tuple(forced),
            argv,
            path,
            self.files.mode,
            self.confinement.network,
        )

    async def settle(self, launch: Launch, *, outside: bool) -> Launch:
        """The launch record with the environment of the login profile, where one is read."""
        if not launch.login:
            return launch
        shell = Shell(cast("ShellKind", launch.shell), launch.argv[0])
        start, env, path = await self._prepare(shell, launch, outside)
        return replace(launch, env=env, start=start, path=path)

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
        on_delta: Callable[[Literal["stdout", "stderr"], str], None] | None = None,
    ) -> RunOutcome:
        """Run a launch record to its end or its time limit, which kills the whole tree."""
        command = Command(launch.start, launch.cwd, launch.env)
        return await self._run(command, launch.withheld, seconds, outside, on_delta)

    async def _prepare(self, shell: Shell, launch: Launch, outside: bool) -> LoginStart:
        """Arguments and environment of a login shell's line; reading a profile is a command too."""
        await self._owner.prepare()
        await self.enclosure.open_network()
        await self.enclosure.boot()
        try:
            return await self._login[outside].prepare(
                shell, launch.argv[-1], launch.env, launch.cwd, forced=launch.forced
            )
        finally:
            releases, self._profile_releases[:] = list(self._profile_releases), []
            for release in releases:
                release()

    async def _run(
        self,
        command: Command,
        withheld: tuple[str, ...],
        seconds: float | None,
        outside: bool,
        on_delta: Callable[[Literal["stdout", "stderr"], str], None] | None,
    ) -> RunOutcome:
        confined = await self._confined(command, outside)
        try:
            result = await run(self._owner, confined.command, time_limit=seconds, on_delta=on_delta)
            if result.state != "exited" or was_killed(result.exit_code):
                await self._stops.stop(confined)
        except SandboxUnavailable as error:
            raise self.enclosure.refusal(error) from error
        except BaseException:
            await self._stops.stop(confined)
            raise
        finally:
            confined.release()
        result = without_launcher(result, confined.command, is_client=confined.stop is not None)
        blocked = None
        if result.exit_code and not result.timed_out:
            blocked = self.enclosure.blocked(
                confined.backend, command.cwd, result.exit_code, result.stdout, result.stderr
            )
        gaps = self._notes.unreported(confined, self._owner.limits)
        gaps += self.enclosure.disturbed(confined.backend, result.exit_code, result.stderr)
        return RunOutcome(result, confined.backend, withheld, blocked, gaps)

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
        cwd = launch.cwd
        command = Command(launch.start, cwd, launch.env, tty=launch.tty)
        confined = await self._confined(command, outside)

        def ended(end: SessionEnd) -> None:
            if end.signal is not None or was_killed(end.exit_code):
                self._stops.stop_soon(confined)
            else:
                confined.release()
            if on_end is not None:
                on_end(end)

        try:
            result = await self.sessions.exec(
                confined.command,
                yield_ms=yield_ms,
                call_id=call_id,
                on_delta=on_delta,
                on_start=on_start,
                on_bytes=on_bytes,
                on_end=ended,
            )
        except BaseException as error:
            self._stops.stop_soon(confined)
            if isinstance(error, SandboxUnavailable):
                raise self.enclosure.refusal(error) from error
            raise
        if result.state == "failed_to_start":
            confined.release()
        if result.session_id is not None:
            self._sessions[result.session_id] = (confined.backend, cwd)
        result = without_launcher(result, confined.command, is_client=confined.stop is not None)
        done = self._executed(result, confined.backend, cwd, launch.withheld)
        done.gaps = self._notes.unreported(confined, self._owner.limits)
        done.gaps += self.enclosure.disturbed(confined.backend, result.exit_code, result.text)
        return done

    def _executed(
        self, result: ExecResult, backend: str, cwd: str, withheld: tuple[str, ...] = ()
    ) -> ExecOutcome:
        blocked = None
        if result.exit_code:
            blocked = self.enclosure.blocked(backend, cwd, result.exit_code, "", result.text)
        return ExecOutcome(result, backend, withheld, blocked)

    def left_sandbox(self, session_id: int) -> bool:
        """Whether a command that still runs was started outside the session's sandbox."""
        backend, _ = self._sessions.get(session_id, ("", ""))
        return self.is_confined and backend == "none"

    async def write(
        self,
        session_id: int,
        chars: str,
        *,
        yield_ms: int,
        on_delta: Callable[[str], None] | None = None,
    ) -> ExecOutcome:
        """Type into a command that still runs, or poll it."""
        backend, cwd = self._sessions.get(session_id, ("none", self.files.cwd))
        result = await self.sessions.write(session_id, chars, yield_ms=yield_ms, on_delta=on_delta)
        if result.session_id is None:
            self._sessions.pop(session_id, None)
        return self._executed(result, backend, cwd)

    async def attached(self, argv: tuple[str, ...]) -> int:
        """Run a program on this process's own input and output; its exit code, or 128 + n."""
        env, _, _ = self.environment(unified=False, tty=True)
        own = tuple((number, number) for number in (0, 1, 2))
        ran = await self._run(Command(argv, self.files.cwd, env, fds=own), (), None, False, None)
        if ran.result.error is not None:
            raise RespondToModel(ran.result.error)
        return 1 if ran.result.exit_code is None else ran.result.exit_code

    async def _confined(self, command: Command, outside: bool) -> Confined:
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


def _folder(path: str) -> tuple[str, int, int] | None:
    """Identity of the folder at a path; None when there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return (path, info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None
