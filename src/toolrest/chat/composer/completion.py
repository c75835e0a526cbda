"""Completions of the composer: slash commands, and file names behind an `@`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from toolrest.chat.composer.files import FileNames

_MENTION = re.compile(r"(?:^|(?<=\s))@([^\s@]*)$")
_COMMAND = re.compile(r"/([\w:.-]*)")


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
