"""`-v` and TOOLREST_LOG: every event of a run, one JSON line each, in a private file."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from toolrest.errors import ConfigError
from toolrest.policy.paths.named_files import append_named
from toolrest.private_files import private_folder

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.events import Event
    from toolrest.gate.output.redact import Redactor


def log_events(rest: Toolrest, verbose: bool, stack: ExitStack) -> None:
    """Log to the file that TOOLREST_LOG names, or with `verbose` to one of the session's own."""
    path = os.environ.get("TOOLREST_LOG") or None
    if path is None:
        if not verbose:
            return
        folder = private_folder(rest.config.home, "log")
        os.close(folder)
        path = os.path.join(rest.config.home, "log", f"{rest.session_id}.log")
    file = _open(os.path.expanduser(path), rest.writable_roots)
    stack.callback(os.close, file)

    def write(event: Event) -> None:
        line = json.dumps(event.to_json(), ensure_ascii=False, default=str)
        os.write(file, line.encode("utf-8", "replace") + b"\n")

    stack.callback(rest.subscribe(write))
    handler = _Records(file, rest.session.redactor)
    logger = logging.getLogger("toolrest")
    logger.addHandler(handler)
    stack.callback(logger.removeHandler, handler)
    if verbose:
        click.echo(f"toolrest: log in {path}", err=True)


def _open(path: str, roots: Sequence[str]) -> int:
    try:
        file = append_named(path, roots, 0o600)
        if stat.S_ISREG(os.fstat(file).st_mode):
            os.fchmod(file, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot write the log {path}: {error.strerror}") from None
    return file


class _Records(logging.Handler):
    """Messages that Toolrest logs with `logging`, redacted, in the same file."""

    def __init__(self, file: int, redactor: Redactor) -> None:
        super().__init__()
        self._file = file
        self._redactor = redactor
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        """One line a record, its traceback included."""
        text = self._redactor.redact(self.format(record))
        line = json.dumps({"type": "log", "level": record.levelname, "text": text})
        os.write(self._file, line.encode("utf-8", "replace") + b"\n")
