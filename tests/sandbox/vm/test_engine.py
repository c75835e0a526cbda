"""The engine of the machine, with a view and a machine that are stand-ins."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from toolrest.process.command import Command
from toolrest.process.helper_request import close_all
from toolrest.sandbox.backends.bubblewrap import Identities
from toolrest.sandbox.backends.engine import PreparedCommand
from toolrest.sandbox.backends.view import Show
from toolrest.sandbox.errors import SandboxBusy
from toolrest.sandbox.guard.changes import identity_of
from toolrest.sandbox.policy import SandboxPolicy
from toolrest.sandbox.vm import engine as vm_engine
from toolrest.sandbox.vm.engine import VmEngine
from toolrest.sandbox.vm.options import VmOptions
from toolrest.sandbox.vm.prepare import Prepared


class View:
    """Stands for bubblewrap; `looks` is how often the view was looked at."""

    program = "/usr/bin/bwrap"

    def __init__(self, hidden: Path, comes_at: int = 0) -> None:
        self.hidden = hidden
        self.looks = 0
        self.shown = [str(hidden)]
        self.comes_at = comes_at

    def confine(self, command: Command) -> PreparedCommand:
        return PreparedCommand(command)

    def look(self) -> Identities:
        self.looks += 1
        if self.looks == self.comes_at:  # a file to hide came after the arguments were made
            self.shown = [*self.shown, "new"]
        return ((str(self.hidden), Show.HIDE, identity_of(str(self.hidden))),)


class Box:
    """Stands for a machine; commands end when `ends`."""

    uptime = 1.0

    def __init__(
        self, command: Command, channel: socket.socket, handed: list[int], **_: Any
    ) -> None:
        self.is_over = False
        self.ends = True
        channel.close()
        close_all(handed)

    def start(self, *_: Any) -> None:
        """It runs at once."""

    def attach(self, client: socket.socket) -> threading.Event:
        client.close()
        over = threading.Event()
        if self.ends:
            over.set()
        return over

    def stop(self) -> None:
        self.is_over = True


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/.env").write_text("KEY=1")
    return tmp_path / "ws/.env"


def engine_of(view: View, monkeypatch: pytest.MonkeyPatch) -> VmEngine:
    folder = view.hidden.parent.parent
    policy = SandboxPolicy.build(str(view.hidden.parent), str(folder / "session"))
    monkeypatch.setattr(vm_engine, "_for_qemu", lambda command, _: command)
    monkeypatch.setattr(vm_engine, "Machine", Box)
    monkeypatch.setattr(VmEngine, "_initramfs", lambda _: b"")
    prepared = cast(Prepared, type("Files", (), {"kernel_file": str(view.hidden)}))
    return VmEngine(
        policy,
        cast(Any, view),
        VmOptions(str(folder)),
        prepared,
        "/usr/bin/qemu",
        registry=str(folder),
    )


def test_a_replaced_hidden_file_waits_for_the_running_command(
    hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(View(hidden), monkeypatch)
    command = Command(("true",), str(hidden.parent), {})
    first, second = engine.confine(command), engine.confine(command)
    second.release()
    (hidden.parent / "other").write_text("KEY=2")
    (hidden.parent / "other").rename(hidden)
    with pytest.raises(SandboxBusy, match="replaced"):
        engine.confine(command)
    first.release()
    engine.confine(command).release()
    engine.close()


def test_a_file_that_comes_while_the_view_is_made_is_in_it(
    hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(hidden, comes_at=1)
    engine = engine_of(view, monkeypatch)
    engine.boot()
    assert view.looks == 2
    engine.close()


def test_a_command_that_does_not_end_ends_the_machine(
    hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vm_engine, "_KILL_PATIENCE", 0.01)
    engine = engine_of(View(hidden), monkeypatch)
    engine.boot()
    machine = cast(Box, engine.machine)
    machine.ends = False
    engine.confine(Command(("true",), str(hidden.parent), {})).release()
    assert machine.is_over
    engine.close()
