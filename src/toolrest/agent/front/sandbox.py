"""`Sandbox`: commands of the program's own in the OS sandbox, without a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import Struct
from msgspec.structs import replace

from toolrest.agent.path_policy import default_workspace
from toolrest.agent.setup.temporary_home import TemporaryHome
from toolrest.config.loader import default_config
from toolrest.errors import ToolrestError

if TYPE_CHECKING:
    from toolrest.running.runner import Runner


class SandboxResult(Struct, frozen=True):
    """The result of a command: its output, and what the sandbox did.

    That `blocked` is None does not prove that nothing was denied: not every denial can be seen from
    outside.
    """

    exit_code: int
    """128 + n when signal n ended it, 124 after the time limit."""
    stdout: str
    """Standard output, decoded."""
    stderr: str
    """Standard error, decoded."""
    timed_out: bool
    """Whether the time limit ended it."""
    duration: float
    """Seconds that it ran."""
    backend: str
    """The sandbox that confined it, as in `toolrest doctor`."""
    blocked: str | None = None
    """One sentence about what the sandbox denied, if that is known."""
    gaps: tuple[str, ...] = ()
    """What the sandbox cannot enforce on this machine."""


class Sandbox:
    """Runs commands as a model's commands would run: `await box.run(["pytest", "-q"])`.

    ```python
    async with Sandbox("project", network=["pypi.org"]) as box:
        result = await box.run(["pytest", "-q"])
    ```

    Commands may write `workspace` and a private /tmp, read what is not hidden (credentials, keys),
    and reach the hosts in `network`: none, these, or with True all. Variables that look like
    secrets are withheld. Closing ends every process they left behind. Where nothing can enforce
    that, a command is not run: ToolrestError has the reason. `settings` takes any setting.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] = ".",
        *,
        network: bool | Sequence[str] = False,
        mode: Literal["read-only", "workspace-write", "danger-full-access"] = "workspace-write",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._home = TemporaryHome(self)
        self._config = default_config(
            {"sandbox_mode": mode, **(settings or {})},
            workspace=default_workspace(workspace),
            home=self._home.path,
        )
        if isinstance(network, str):
            raise TypeError(f"network is a list of hosts: write network=[{network!r}]")
        self._network = network
        self._runner: Runner | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End what still runs and remove the sandbox's own files."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.aclose()
        self._home.remove()

    async def run(
        self,
        command: Sequence[str] | str,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 600.0,  # noqa: ASYNC109 - it ends the whole process tree
        on_output: Callable[[Literal["stdout", "stderr"], str], None] | None = None,
    ) -> SandboxResult:
        """Run an argument list, or a text as a shell's line, to its end or its time limit.

        `env` adds variables; `on_output` gets the output as it comes. ToolrestError when the
        command cannot be started.
        """
        runner = self._made()
        argv = command if isinstance(command, str) else tuple(command)
        folder = runner.workdir(None if cwd is None else os.fspath(cwd))
        launch = runner.plan(argv, folder)
        if launch.program is None and runner.confinement.backend not in ("docker", "chroot"):
            raise ToolrestError(f"there is no program {launch.argv[0]} here")
        if env:
            launch = replace(launch, env={**launch.env, **env})
        done = await runner.run_once(launch, seconds=timeout, outside=False, on_delta=on_output)
        result = done.result
        if result.exit_code is None:
            raise ToolrestError(f"the command did not start: {result.error}")
        return SandboxResult(
            result.exit_code,
            result.stdout,
            result.stderr,
            result.timed_out,
            result.duration,
            done.backend,
            None if done.blocked is None else done.blocked.words,
            done.gaps,
        )

    def _made(self) -> Runner:
        if self._runner is None:
            # It loads everything that starts programs.
            from toolrest.agent.setup.runner import standalone_runner

            network = self._network
            hosts = () if isinstance(network, bool) else tuple(network)
            kind: Literal["on", "off", "allowlist"] = "on" if network is True else "off"
            self._runner = standalone_runner(
                self._config, os.environ, network="allowlist" if hosts else kind, hosts=hosts
            )
        return self._runner
