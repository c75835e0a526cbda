"""The interface of a sandbox backend, and how well it enforces each control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from toolrest.process.command import Command
from toolrest.sandbox.policy import CONTROLS, Control


def _nothing() -> None:
    """Nothing is left behind."""


PROXY_SOCKET = "/run/toolrest-proxy.sock"
"""Where a command finds the proxy, when there is one."""


class Proxy(Struct, frozen=True):
    """A running allowlist proxy, as far as the sandbox must know it."""

    socket: str
    env: dict[str, str]
    inner: tuple[str, ...]
    """The forwarder that runs inside and then starts the command."""


def once(action: Callable[[], None]) -> Callable[[], None]:
    """The same action, which does nothing when called again."""
    todo = [action]

    def run() -> None:
        if todo:
            todo.pop()()

    return run


class PreparedCommand(Struct, frozen=True):
    """A confined command, what to call when its tree has ended, and what ends it for sure.

    `stop` is for an engine whose commands are not below the process that is started, which is
    then only a client: it ends all that the command started, and may take seconds. It is called
    in a thread, when the client was killed, and before `release`.

    `has_run` tells, once what was started has ended and before `release`, whether the command
    itself was started; None where an engine cannot tell.
    """

    command: Command
    release: Callable[[], None] = _nothing
    stop: Callable[[], None] | None = None
    has_run: Callable[[], bool] | None = None


class Engine(Protocol):
    """Confines command after command, for one policy: a box.

    It must enforce what its row of CONTROLS says it does, refuse a command where it cannot, and
    leave nothing of a command behind once `release` was called. It must not ask, decide or read
    the command line. Not promised: that two commands see the same processes or temporary files.

    What an engine keeps between commands (a container, a machine) it starts with the first
    command, or ahead of it, and ends in `close`. Should this process be killed, that must end by
    itself: it holds a pipe of ours, whose end of file says so.
    """

    name: str

    def confine(self, command: Command, *, late: bool = False) -> PreparedCommand:
        """The same command, confined; with `late`, some of the work may be left to its `ready`."""
        ...

    def close(self) -> None:
        """End what outlived commands; called once, when no command runs any more."""
        ...


Level: TypeAlias = Literal["full", "partial", "none"]


class Enforced(Struct, frozen=True):
    """The answer for one control; `note` says what is missing from it."""

    level: Level = "full"
    note: str = ""


FULL = Enforced()
Controls: TypeAlias = Mapping[Control, Enforced]


def all_full() -> dict[Control, Enforced]:
    """Every control, enforced in full; a backend then says where it falls short."""
    return dict.fromkeys(CONTROLS, FULL)


def unmet(controls: Controls, required: Iterable[Control]) -> list[str]:
    """The required controls that are not enforced at all, each with the reason."""
    return [
        f"{name}: {answer.note or 'not enforced'}"
        for name in required
        if (answer := controls.get(name, Enforced("none"))).level == "none"
    ]


def gaps(controls: Controls) -> tuple[str, ...]:
    """What is not enforced in full, one sentence each."""
    return tuple(
        f"{name}: {answer.note}" for name, answer in controls.items() if answer.level != "full"
    )
