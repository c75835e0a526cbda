"""The notify program: the user's own, started when a turn is over, without effect on the turn."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Callable, Mapping, Sequence
from threading import Thread

from toolrest.items import JSONObject

MOST_TEXT = 24_000
"""Characters of each text; a single argument must stay below 128 KiB, however it is escaped."""

MOST_RUNNING = 8

_log = logging.getLogger("toolrest")


class NotifyProgram:
    """A program that is started with one more argument, a JSON object.

    It has a session of its own, no input, no output and no time limit: neither a turn nor the
    end of Toolrest waits for it. Only its first problem is reported to the user.
    """

    def __init__(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], warn: Callable[[str], None]
    ) -> None:
        self._argv = tuple(argv)
        self._cwd = cwd
        self._env = dict(env)
        self._warn = warn
        self._warned = False
        self._running: list[Thread] = []

    def tell(self, payload: JSONObject) -> None:
        """Start the program; never raises."""
        self._running = [thread for thread in self._running if thread.is_alive()]
        if len(self._running) >= MOST_RUNNING:
            self._problem(f"{MOST_RUNNING} of it are still running")
            return
        try:
            child = subprocess.Popen(
                (*self._argv, as_argument(payload)),
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._problem(getattr(error, "strerror", None) or str(error))
            return
        # Without a wait it would stay a zombie.
        waiter = Thread(target=child.wait, name="toolrest-notify", daemon=True)
        waiter.start()
        self._running.append(waiter)

    def _problem(self, why: str) -> None:
        message = f"notify: {self._argv[0]} was not started: {why}"
        _log.warning("%s", message)
        if not self._warned:
            self._warned = True
            self._warn(message)


def as_argument(payload: JSONObject) -> str:
    """The object as JSON in plain ASCII, long texts cut, so that any system takes it."""
    return json.dumps({name: _cut(value) for name, value in payload.items()})


def _cut(value: object) -> object:
    if isinstance(value, str):
        return _short(value, MOST_TEXT)
    if isinstance(value, list):
        # Together they may be no longer than one text; the last one, the newest, comes first.
        kept: list[str] = []
        room = MOST_TEXT
        for text in reversed(value):
            if room <= 0:
                break
            kept.append(_short(text, room))
            room -= len(json.dumps(text))
        return kept[::-1]
    return value


def _short(text: str, most: int) -> str:
    """The beginning of a text, cut so that its JSON is at most this long."""
    kept = text
    while (size := len(json.dumps(kept))) > most and kept:
        kept = kept[: len(kept) * most // size - 1] if len(kept) * most > size else ""
    return kept if kept == text else kept + "…"
