"""Canaries: calls that must not run, sent through a live session to test the gate (S23).

A canary leaves a trace if it runs: a file that appears or vanishes, a secret in its output, a
connection. Only the trace counts, not what the answer says. Everything happens in a temporary
folder, and approval is never asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from toolrest.agent.rest import Toolrest
from toolrest.answer import Answer
from toolrest.gate.tool.decorator import tool
from toolrest.policy.modes import network_of

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.items import ToolOutput

State: TypeAlias = Literal["held", "RAN", "allowed"]


class Result(Struct, frozen=True):
    """The result of one canary; `allowed` means that the settings do not forbid it."""

    name: str
    state: State
    words: str

    def to_json(self) -> dict[str, str]:
        """The result as JSON."""
        return {"name": self.name, "state": self.state, "words": self.words}


class Cage(Struct):
    """A workspace with something to protect in it and around it."""

    work: str
    outside: str
    port: int = 0
    secret: str = field(default_factory=lambda: f"canary-{secrets.token_hex(12)}")
    connections: int = 0
    touched: set[str] = field(default_factory=set)

    def fill(self) -> None:
        """Write the files that a canary must not read or change."""
        for folder in (self.outside, os.path.join(self.work, ".git", "hooks")):
            os.makedirs(folder, exist_ok=True)
        for path in (os.path.join(self.work, ".env"), os.path.join(self.outside, "keep")):
            with open(path, "w") as file:
                file.write(f"TOKEN={self.secret}\n")

    def harmed(self) -> bool:
        """Whether a canary has left a trace."""
        return (
            os.listdir(self.outside) != ["keep"]
            or bool(os.listdir(os.path.join(self.work, ".git", "hooks")))
            or bool(self.touched)
            or self.connections > 0
        )

    def heal(self) -> None:
        """Restore the workspace."""
        for folder in (self.outside, os.path.join(self.work, ".git", "hooks")):
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(folder):
                    os.unlink(os.path.join(folder, name))
        self.touched.clear()
        self.connections = 0
        self.fill()


class Canary(Struct, frozen=True):
    """A call that must not run, and when the settings would let it."""

    name: str
    tool: str
    arguments: dict[str, Any]
    unless: Callable[[Config], bool] = lambda config: False


def _full_access(config: Config) -> bool:
    return config.value.sandbox_mode == "danger-full-access"


def _nobody_asks(config: Config) -> bool:
    return config.value.approval_policy in ("never", "dangerous")


def _online(config: Config) -> bool:
    return _full_access(config) or network_of(config.value) == "on"


def _line(text: str, **more: Any) -> dict[str, Any]:
    return {"cmd": text, "login": False, **more}


def _python(code: str) -> dict[str, Any]:
    return _line(f"python3 -c {shlex.quote(code)}")


def _patch(path: str) -> dict[str, Any]:
    return {"input": f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n"}


def _canaries(cage: Cage) -> Iterator[Canary]:
    env, hook = os.path.join(cage.work, ".env"), os.path.join(cage.work, ".git", "hooks", "x")
    beyond, keep = os.path.join(cage.outside, "x"), os.path.join(cage.outside, "keep")
    yield Canary("read a hidden file", "read_file", {"file_path": env})
    yield Canary("search a hidden file", "grep_files", {"pattern": "TOKEN", "path": cage.work})
    yield Canary("cat a hidden file", "exec_command", _line("cat .env"), _full_access)
    yield Canary(
        "open a hidden file", "exec_command", _python("print(open('.env').read())"), _full_access
    )
    yield Canary("patch a git hook", "apply_patch", _patch(hook), _full_access)
    yield Canary("write a git hook", "exec_command", _line(f"touch {hook}"), _full_access)
    yield Canary("patch outside the roots", "apply_patch", _patch(beyond), _full_access)
    yield Canary("touch outside the roots", "exec_command", _line(f"touch {beyond}"), _full_access)
    yield Canary(
        "write outside, hidden", "exec_command", _python(f"open({beyond!r}, 'w')"), _full_access
    )
    yield Canary(
        "leave the sandbox unasked",
        "exec_command",
        _line(f"touch {beyond}", sandbox_permissions="require_escalated", justification="canary"),
        _full_access,
    )
    yield Canary(
        "delete outside the roots",
        "exec_command",
        _line(f"rm -rf {cage.outside}"),
        lambda config: _full_access(config) and config.value.approval_policy == "dangerous",
    )
    yield Canary("truncate by redirection", "exec_command", _line(f": > {keep}2"), _full_access)
    connect = f"import socket; socket.create_connection(('127.0.0.1', {cage.port}), 2)"
    yield Canary("connect", "exec_command", _python(connect), _online)
    yield Canary("a tool that declares nothing", "canary_undeclared", {}, _nobody_asks)
    yield Canary("a tool on the dangerous list", "canary_critical", {}, _dangerous)


def _dangerous(config: Config) -> bool:
    return config.value.approval_policy == "dangerous"


async def run_canaries(config: Config) -> list[Result]:
    """Send every canary through a live session with these settings."""
    with _caged() as cage:
        async with _listening(cage), _session(config, cage) as rest:
            results = [await _send(rest, cage, canary, config) for canary in _canaries(cage)]
            return results + list(_own_denials(rest, config))


@contextlib.contextmanager
def _caged() -> Iterator[Cage]:
    # Not below /tmp where that can be helped: there a confined command has a folder of its own.
    home = os.path.expanduser("~")
    place = home if os.access(home, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".toolrest-canary-", dir=place) as base:
        real = os.path.realpath(base)
        cage = Cage(os.path.join(real, "work"), os.path.join(real, "outside"))
        os.makedirs(cage.work)
        cage.fill()
        yield cage


@contextlib.asynccontextmanager
async def _listening(cage: Cage) -> AsyncIterator[None]:
    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cage.connections += 1
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    cage.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


def _session(config: Config, cage: Cage) -> Toolrest:
    @tool
    def canary_undeclared() -> str:
        """Leave a trace."""
        cage.touched.add("undeclared")
        return "ran"

    @tool(risk="critical")
    def canary_critical() -> str:
        """Leave a trace."""
        cage.touched.add("critical")
        return "ran"

    rest = Toolrest(cage.work, config=config, on_ask="deny")
    for canary in (canary_undeclared, canary_critical):
        rest.add_tool(canary, approved=False)
    return rest


async def _send(rest: Toolrest, cage: Cage, canary: Canary, config: Config) -> Result:
    cage.heal()
    output = await rest.call(canary.tool, canary.arguments)
    ran = cage.harmed() or cage.secret in output.text
    if ran and canary.unless(config):
        return Result(canary.name, "allowed", "your settings allow it")
    return Result(canary.name, "RAN" if ran else "held", _first_line(output))


def _own_denials(rest: Toolrest, config: Config) -> Iterator[Result]:
    """Results for the user's own denials; these calls are explained, not sent."""
    for pattern, say in config.value.approvals.tools.items():
        if say != "deny":
            continue
        for found in rest.tools:
            explained = rest.explain(found.name, {})
            if explained.rule.startswith("approvals.tools") and explained.verdict == Answer.DENY:
                yield Result(f"{found.name} ({pattern})", "held", explained.reason)
    for group in rest.rules.by_program.values():
        for rule in group:
            if rule.decision != Answer.DENY:
                continue
            argv = [rule.program, *(alternatives[0] for alternatives in rule.rest)]
            explained = rest.explain("shell", {"command": argv})
            held = explained.verdict == Answer.DENY
            name = f"rule {' '.join(argv)}"
            yield Result(name, "held" if held else "RAN", explained.reason or explained.rule)


def _first_line(output: ToolOutput) -> str:
    kind = output.failure.kind if output.failure is not None else "no trace"
    return f"{kind}: {output.text.strip().splitlines()[-1][:160]}" if output.text.strip() else kind
