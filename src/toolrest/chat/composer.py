"""The composer: the text that the person writes, its history, folded pastes and completions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from toolrest.chat.files import FileNames
from toolrest.private_files import private_folder, write_all

_FOLD_LINES, _FOLD_CHARS = 8, 1000
_MOST_HISTORY = 2000
_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")
_COMMAND = re.compile(r"/([\w-]*)")


class Pastes:
    """Large pastes, folded to a mark in the text; whole again when it is sent."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """The paste itself, or a mark for it when it is large."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines <= _FOLD_LINES and len(text) <= _FOLD_CHARS:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        mark = f"[paste {len(self._texts) + 1}: {size}]"
        self._texts[mark] = text
        return mark

    def unfold(self, text: str) -> str:
        """The text with its pastes in place of their marks."""
        for mark, paste in self._texts.items():
            text = text.replace(mark, paste)
        return text

    def shown(self, text: str) -> str | None:
        """The pastes whose marks are in the text, to view; None without any."""
        found = [paste for mark, paste in self._texts.items() if mark in text]
        return "\n\n".join(found) if found else None

    def clear(self) -> None:
        """Forget them: the text was sent."""
        self._texts.clear()


class PrivateHistory(History):
    """Messages of all sessions, one JSON string a line, in a private file of the home."""

    def __init__(self, home: str) -> None:
        super().__init__()
        self._home = home

    def load_history_strings(self) -> Iterable[str]:
        """The messages, the latest first."""
        found: list[str] = []
        try:
            with open(os.path.join(self._home, "chat", "history.jsonl"), "rb") as file:
                lines = file.read().splitlines()[-_MOST_HISTORY:]
        except OSError:
            return []
        for line in lines:
            try:
                text = json.loads(line)
            except ValueError:
                continue  # cut by a crash
            if isinstance(text, str):
                found.append(text)
        return found[::-1]

    def store_string(self, string: str) -> None:
        """Add one."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            folder = private_folder(self._home, "chat")
            try:
                file = os.open("history.jsonl", flags, 0o600, dir_fd=folder)
            finally:
                os.close(folder)
            try:
                write_all(file, json.dumps(string).encode() + b"\n")
            finally:
                os.close(file)
        except OSError:
            pass  # a full disk takes the history, not the chat


class ChatCompleter(Completer):
    """Completes slash commands at the beginning and file names behind an `@`."""

    def __init__(self, commands: Callable[[], dict[str, str]], files: FileNames) -> None:
        self._commands = commands
        self._files = files

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """What fits the text before the cursor."""
        before = document.text_before_cursor
        if found := _COMMAND.fullmatch(before):
            for name, help_ in self._commands().items():
                if name.startswith(found[1]):
                    yield Completion(name, -len(found[1]), display=f"/{name}", display_meta=help_)
        elif found := _MENTION.search(before):
            for path in self._files.matching(found[1]):
                yield Completion(path + " ", -len(found[1]), display=path)
