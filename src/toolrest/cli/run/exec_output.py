"""Output of `toolrest exec`: JSON lines or the answer, the exit code, and `--output-schema`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import click
from msgspec import Struct

from toolrest.agent.conversation.answer_form import AnswerForm
from toolrest.agent.conversation.result import TurnResult
from toolrest.agent.history.tokens import usage_json
from toolrest.agent.reports.exec_json import ThreadEvents
from toolrest.cli.terminal.terminal import safe_for
from toolrest.errors import ConfigError
from toolrest.events import Event, WeakSandbox
from toolrest.items import JSONObject
from toolrest.policy.paths.named_files import read_named
from toolrest.wire.items.json_text import dumps
from toolrest.wire.model import Usage

EXIT_CODES = {
    "done": 0,
    "denied": 3,
    "budget": 4,
    "timeout": 4,
    "sandbox_unavailable": 5,
    "schema_unmet": 6,
    "interrupted": 130,
    "terminated": 143,
}
"""Every other reason is 1: the model, its server or Toolrest itself failed. Usage is 2."""


class RunEnd(Struct):
    """The end of a run, for the last line and the exit code."""

    status: str
    reason: str
    exit_code: int
    usage: JSONObject
    denials: list[JSONObject]
    denied_untrusted: int = 0
    """How many calls were denied because the folder is not trusted."""

    @classmethod
    def of(cls, result: TurnResult) -> RunEnd:
        """The end of a run for a turn's result."""
        code = EXIT_CODES.get(result.reason, 1)
        usage = usage_json(result.usage)
        return cls(result.status, result.reason, code, usage, result.denials)

    @classmethod
    def failed(cls, reason: str, code: int) -> RunEnd:
        """A run that did not get as far as a turn."""
        return cls("failed", reason, code, usage_json(Usage()), [])


class ExecOutput:
    """The output of a run: JSON to stdout, or a timeline to stderr and the answer to stdout."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.broken = False
        self.thread = ThreadEvents(self._write)

    def _write(self, line: JSONObject) -> None:
        self.put(dumps(line))

    def put(self, text: str) -> None:
        """One line to stdout; a reader that went away is remembered."""
        if self.broken or sys.stdout is None:  # started with it closed
            return
        try:
            sys.stdout.buffer.write(safe_for(sys.stdout, text).encode("utf-8", "replace") + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self.broken = True
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def open(
        self, thread_id: str, *, untrusted_folder: bool = False, weak_sandbox: bool | None = False
    ) -> None:
        """The first line; `weak_sandbox` is None where that was not waited for."""
        if self.as_json:
            self.thread.thread_started(
                thread_id, untrusted_folder=untrusted_folder, weak_sandbox=weak_sandbox
            )

    def give_up(self, problem: object, reason: str, code: int) -> RunEnd:
        """The run ends without a turn's result."""
        if self.as_json:
            self.thread.error(str(problem))
        click.echo(f"toolrest: {problem}", err=True)
        return RunEnd.failed(reason, code)

    def finish(self, outcome: RunEnd) -> None:
        """The last line."""
        if self.as_json:
            self.thread.result(
                outcome.status,
                outcome.reason,
                outcome.exit_code,
                outcome.usage,
                outcome.denials,
                outcome.denied_untrusted,
            )


class HeldEvents:
    """A listener that keeps events until the kind of sandbox is known: that is said first."""

    def __init__(self, listener: Callable[[Event], None]) -> None:
        self._listener = listener
        self._held: list[Event] | None = []

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if self._held is None or isinstance(event, WeakSandbox):
            self._listener(event)
        else:
            self._held.append(event)

    def release(self) -> None:
        """Pass on what was kept, and everything from now on at once."""
        held, self._held = self._held or [], None
        for event in held:
            self._listener(event)


def read_form(path: str, roots: Sequence[str]) -> AnswerForm:
    """The form of the answer, from the schema in a file; ConfigError when that is invalid."""
    try:
        schema = json.loads(read_named(path, roots))
        form = AnswerForm.of_schema(schema)
    except OSError as error:
        raise ConfigError(f"cannot read --output-schema {path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"--output-schema {path} is not valid JSON: {error}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"--output-schema {path}: {error}") from None
    if not isinstance(schema, dict):
        raise ConfigError(f"--output-schema {path}: a schema is a JSON object")
    return form
