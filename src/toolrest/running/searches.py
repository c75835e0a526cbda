"""Search programs of Toolrest's own, in a read-only sandbox with a command's view of files.

ripgrep walks folders that a model's command may change under it: a folder that becomes a link to
`~/.ssh` for a moment must lead nowhere. So it sees what a command would see, hidden paths empty,
and it can write nothing. Where no sandbox works it runs unconfined: callers check the paths that
it finds either way.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec.structs import replace

from toolrest.errors import RespondToModel
from toolrest.process.child import Child
from toolrest.process.command import Command
from toolrest.process.helper_request import close_all
from toolrest.process.owner import Owner
from toolrest.process.wakeup import uncancelled
from toolrest.running.confinement import Enclosure
from toolrest.sandbox.confine import Confined, SessionSandbox
from toolrest.sandbox.errors import SandboxUnavailable
from toolrest.sandbox.policy import SandboxPolicy


class Searches:
    """Starts search programs for one session; the first start of each chooses its sandbox."""

    def __init__(self, enclosure: Enclosure, owner: Owner) -> None:
        self._enclosure = enclosure
        self._owner = owner
        self._boxes: dict[str, SessionSandbox | None] = {}

    @asynccontextmanager
    async def running(
        self, argv: tuple[str, ...], cwd: str, env: Mapping[str, str], *, always: bool = True
    ) -> AsyncIterator[Child]:
        """A running search program, whose outputs the caller reads; it is ended on exit.

        Raises StartFailed, or RespondToModel when a sandbox works here but not for this workspace,
        and, unless it should run `always`, where none works.
        """
        try:
            confined = await self._confined(Command(argv, cwd, env))
            if confined.backend == "none" and not always:
                raise RespondToModel(f"{argv[0]} is not run without a sandbox")
            try:
                child = await self._owner.launch(confined.command)
                try:
                    yield child
                finally:
                    await uncancelled(asyncio.ensure_future(_end(child)))
            finally:
                confined.release()
        except SandboxUnavailable as error:
            raise self._enclosure.refusal(error) from error

    async def _confined(self, command: Command) -> Confined:
        program = command.argv[0]
        if program not in self._boxes:
            # Backends are probed by running them, and hidden files looked for: not on the loop.
            self._boxes[program] = await asyncio.to_thread(self._choose, program)
        box = self._boxes[program]
        if box is None:
            return Confined(command, "none")
        return box.confine(command, late=True)

    def _choose(self, program: str) -> SessionSandbox | None:
        """The sandbox for a search program; None where none works."""
        if self._enclosure.is_external:
            return None
        box = SessionSandbox(self._policy(program), registry=self._enclosure.registry)
        try:
            box.choose()
        except SandboxUnavailable as error:
            if not error.tried:  # one works here, but not for this workspace
                raise
            return None
        except OSError as error:  # there is no sandbox without a writable home of Toolrest
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return None
        return box

    def _policy(self, program: str) -> SandboxPolicy:
        session = self._enclosure.view
        readable = session.read_roots
        return replace(
            session,
            mode="read-only",
            roots=(),
            protected=(),
            exceptions=(*session.exceptions, *session.roots),
            # The program itself must be there, wherever Toolrest is installed.
            read_roots=None if readable is None else (*readable, program),
            network="off",
            allowed_hosts=(),
            tmp="host",  # file tools read there as well
            cache_dir=None,
            require=(),
        )


async def _end(child: Child) -> None:
    if child.ended is None:
        await child.kill()
    close_all(child.outputs)
    child.abandon()
