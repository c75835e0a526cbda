"""The `notify` setting: run the user's program at each turn's end. Loaded only where it is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolrest.agent.conversation.events import TaskComplete, UserMessage
from toolrest.agent.setup.hooks import expanded
from toolrest.events import Event, TurnStarted, Warning  # noqa: A004 - the event
from toolrest.gate.hooks.notify import NotifyProgram
from toolrest.gate.hooks.program import (
    hook_environment,
    refuse_program,
    without_modules_here,
)

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest


class TurnNotices:
    """A listener that starts the notify program after each turn that was not interrupted."""

    def __init__(self, program: NotifyProgram, thread_id: str, cwd: str) -> None:
        self._program = program
        self._thread_id = thread_id
        self._cwd = cwd
        self._turn_id = ""
        self._messages: list[str] = []

    def __call__(self, event: Event) -> None:
        """Take an event; its texts are redacted already."""
        if isinstance(event, TurnStarted):
            self._turn_id = event.turn_id
        elif isinstance(event, UserMessage):
            self._messages.append(event.message)
        elif isinstance(event, TaskComplete):
            messages, self._messages = self._messages, []
            if event.status != "interrupted":
                self._program.tell(
                    {
                        "type": "agent-turn-complete",
                        "thread-id": self._thread_id,
                        "turn-id": self._turn_id,
                        "cwd": self._cwd,
                        "input-messages": messages,
                        "last-assistant-message": event.last_agent_message,
                    }
                )


def notify_turns(rest: Toolrest, environ: Mapping[str, str]) -> None:
    """Run `notify` for this session; ConfigError for a program that a model could rewrite."""
    settings = rest.settings
    session = rest.session
    files = session.files
    argv = expanded(settings.notify, environ)
    refuse_program("notify", argv, files)
    env = hook_environment(environ, files, settings.shell_environment_policy.exclude)

    def warn(message: str) -> None:
        session.bus.emit(Warning(message=message))

    program = NotifyProgram(argv, files.cwd, without_modules_here(argv, env), warn)
    rest.subscribe(TurnNotices(program, rest.session_id, files.cwd))
