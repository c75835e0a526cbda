"""inspect_ai: a sandbox environment, tools behind the gate, and the gate as an approver."""

from __future__ import annotations

import asyncio
import base64
import os
import shlex
import tempfile
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from inspect_ai.approval import Approval, Approver, approver
from inspect_ai.tool import (
    ContentImage,
    ContentText,
    Tool,
    ToolCall,
    ToolCallView,
    ToolDef,
    ToolError,
    ToolParams,
)
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

from toolrest.agent.front.sandbox import Sandbox, SandboxResult
from toolrest.answer import Answer
from toolrest.errors import ToolrestError
from toolrest.integrations.gated_calls import FrameworkCall, GatedCalls, OfferedTool, is_same
from toolrest.items import Text, ToolOutput
from toolrest.private_files import remove_tree, write_all

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest


class InspectGate:
    """The tools of a `Toolrest` for a task, and the gate as an approver.

    ```python
    gate = InspectGate(Toolrest(".", tools=["files", "shell"], on_ask="defer"))
    approval = [
        ApprovalPolicy(gate.approver(), "*"),
        ApprovalPolicy(human_approver(), "*"),  # gets what needs approval
    ]
    ```

    Without the approver in the policy, what needs approval is not run. Tools that are not ours, as
    `submit`, are left to the next approver.
    """

    def __init__(self, rest: Toolrest) -> None:
        self._calls = GatedCalls(rest)
        self._escalated: ContextVar[FrameworkCall | None] = ContextVar("escalated", default=None)
        """The call that the approver escalated in this task: inspect_ai runs the tool in the same
        one, once it is approved, and ends the task when it is rejected."""

    def tools(self) -> list[Tool]:
        """The tools on offer."""
        return [self._tool(tool) for tool in self._calls.offered()]

    def approver(self) -> Approver:
        """An approver that decides as the gate would, and escalates what needs approval."""

        @approver(name="toolrest")
        def gate() -> Approver:
            async def approve(
                message: str, call: ToolCall, view: ToolCallView, history: list[Any]
            ) -> Approval:
                asked = _new_call(call.function, call.arguments)
                approval = await self._decided(asked)
                self._escalated.set(asked if approval.decision == "escalate" else None)
                return approval

            return approve

        made: Approver = gate()
        return made

    async def _decided(self, asked: FrameworkCall) -> Approval:
        if all(tool.name != asked.tool for tool in self._calls.offered()):
            return Approval(decision="escalate", explanation="not a tool of Toolrest")
        decision = self._calls.explain(asked)
        if await self._calls.needs_approval(asked):
            return Approval(decision="escalate", explanation=decision.reason)
        if decision.verdict == Answer.DENY:
            return Approval(decision="reject", explanation=decision.reason)
        return Approval(decision="approve", explanation=decision.reason)

    def _tool(self, tool: OfferedTool) -> Tool:
        async def execute(**arguments: Any) -> Any:
            call, approved = _new_call(tool.name, arguments), self._escalated.get()
            self._escalated.set(None)
            if approved is not None and is_same(approved, call):
                call = approved
            output = await self._calls.finish(call, approved=call is approved)
            if output.failure is not None and output.failure.kind != "execution_failed":
                raise ToolError(output.text)
            return _content(output)

        parameters = ToolParams.model_validate(
            {key: tool.schema[key] for key in ("properties", "required") if key in tool.schema}
        )
        made: Tool = ToolDef(execute, tool.name, tool.description, parameters).as_tool()
        return made


def _new_call(tool: str, arguments: dict[str, Any]) -> FrameworkCall:
    """The call, under an id of its own: inspect_ai does not pass the model's id to tools."""
    return FrameworkCall(f"inspect-{uuid4().hex}", tool, arguments)


def _content(output: ToolOutput) -> Any:
    if isinstance(output.content, str):
        return output.content
    return [
        ContentText(text=part.text) if isinstance(part, Text) else ContentImage(image=part.url)
        for part in output.content
    ]


class ToolrestSandboxConfig(BaseModel, extra="forbid"):
    """Settings of the sandbox environment: `SandboxEnvironmentSpec("toolrest", config)`."""

    network: bool | list[str] = False
    """The hosts that commands may reach: none, these, or with true all."""
    settings: dict[str, Any] = {}
    """Any setting by its dotted name."""


@sandboxenv(name="toolrest")
class ToolrestSandboxEnvironment(SandboxEnvironment):
    """`sandbox="toolrest"`: commands of a sample in the OS sandbox, without a container.

    Each sample has a folder of its own, which is gone afterwards; commands may write it and a
    private /tmp, and read what is not hidden. Files are read and written by programs in the
    sandbox, so that no link that a sample made leads out of it.
    """

    def __init__(self, config: ToolrestSandboxConfig) -> None:
        super().__init__()
        self._folder = tempfile.mkdtemp(prefix="toolrest-sample-")
        self._box = Sandbox(self._folder, network=config.network, settings=config.settings)

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Make the sandbox of a sample."""
        if config is None:
            config = ToolrestSandboxConfig()
        if not isinstance(config, ToolrestSandboxConfig):
            raise TypeError(f"config must be a ToolrestSandboxConfig, not {config!r}")
        return {"default": cls(config)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """End every process of a sample and remove its folder."""
        for environment in environments.values():
            if isinstance(environment, cls):
                await environment._box.aclose()
                await asyncio.to_thread(remove_tree, environment._folder)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """The config from a task's file or an eval log."""
        return ToolrestSandboxConfig.model_validate(config)

    async def exec(  # noqa: D102 - the base class says what it does
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None and user != str(os.geteuid()):
            raise SandboxUserUnsupportedError(f"commands here run as {os.geteuid()}, not {user}")
        limits = SandboxEnvironmentLimits
        output = _Collected(limits.MAX_EXEC_OUTPUT_SIZE, limits.MAX_EXEC_OUTPUT_SIZE_STR)
        result = await self._run(cmd, output, input, cwd, env, timeout)
        if result.timed_out:
            raise TimeoutError(f"{shlex.join(cmd)} was ended after {timeout} seconds")
        stdout, stderr = output.text("stdout"), output.text("stderr")
        return ExecResult(result.exit_code == 0, result.exit_code, stdout, stderr)

    async def _run(
        self,
        cmd: list[str],
        output: _Collected,
        given: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        seconds: int | None = None,
    ) -> SandboxResult:
        folder = self._folder if cwd is None else os.path.join(self._folder, cwd)
        where: str | None = None
        if given is not None:
            data = given.encode() if isinstance(given, str) else given
            where = await asyncio.to_thread(_stored, data, self._folder)
            cmd = ["sh", "-c", 'exec <"$0" && rm -f "$0" && exec "$@"', where, *cmd]
        try:
            return await self._box.run(
                cmd, cwd=folder, env=env, timeout=seconds or 86_400, on_output=output.add
            )
        except ToolrestError as error:
            if "there is no program" in str(error):
                output.add("stderr", str(error))
                return SandboxResult(127, "", str(error), False, 0.0, "")
            raise
        finally:
            if where is not None:
                with suppress(FileNotFoundError):  # the command's shell removes it first
                    os.unlink(where)

    async def write_file(self, file: str, contents: str | bytes) -> None:  # noqa: D102
        output = _Collected(1 << 16, "64 KiB")
        result = await self._run(["sh", "-c", _WRITE, _named(file)], output, contents)
        if result.exit_code:
            raise _problem(file, output.text("stderr"))

    async def read_file(self, file: str, text: bool = True) -> Any:  # noqa: D102
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        output = _Collected(2 * limit, SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR)
        result = await self._run(["sh", "-c", _READ, _named(file), str(limit + 1)], output)
        if result.exit_code:
            raise _problem(file, output.text("stderr"))
        data = base64.b64decode(output.text("stdout"))
        if len(data) > limit:
            raise output.exceeded()
        return data.decode() if text else data


_WRITE = 'mkdir -p -- "$(dirname -- "$0")" && cat >"$0"'
_READ = """\
if [ -d "$0" ]; then echo "Is a directory" >&2; exit 1; fi
exec <"$0" && head -c "$1" | base64
"""


def _stored(data: bytes, folder: str) -> str:
    """A new file with a command's input; a shell opens it in the sandbox."""
    descriptor, path = tempfile.mkstemp(prefix=".stdin-", dir=folder)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
    return path


def _named(file: str) -> str:
    """A path that no program takes for an option."""
    return file if os.path.isabs(file) else f"./{file}"


def _problem(file: str, message: str) -> OSError:
    """The error that inspect_ai expects, from what the shell said."""
    kinds = {
        "No such file": FileNotFoundError,
        "Is a directory": IsADirectoryError,
        "Permission denied": PermissionError,
        "Read-only file system": PermissionError,
    }
    kind = next((kind for words, kind in kinds.items() if words in message), OSError)
    return kind(f"{file}: {message.strip()}")


class _Collected:
    """A command's output as it comes, up to a limit for each stream."""

    def __init__(self, limit: int, shown: str) -> None:
        self._limit = limit
        self._shown = shown
        self._pieces: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._sizes = {"stdout": 0, "stderr": 0}

    def add(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Keep a piece."""
        self._sizes[stream] += len(text)
        if self._sizes[stream] <= self._limit:
            self._pieces[stream].append(text)

    def text(self, stream: Literal["stdout", "stderr"]) -> str:
        """All of a stream; OutputLimitExceededError when it was more than the limit."""
        if self._sizes[stream] > self._limit:
            raise self.exceeded()
        return "".join(self._pieces[stream])

    def exceeded(self) -> OutputLimitExceededError:
        """The error of too much output."""
        return OutputLimitExceededError(self._shown, "".join(self._pieces["stdout"]))
