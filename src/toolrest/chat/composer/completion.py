"""Completions of the composer: slash commands, and file names behind an `@`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from prompt_toolkit.buffer import CompletionState
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


def menu_rows(state: CompletionState, most: int) -> list[tuple[bool, str]]:
    """The completions around the chosen one, at most so many, and whether each is that."""
    start = max(0, min((state.complete_index or 0) - most + 1, len(state.completions) - most))
    shown = state.completions[start : start + most]
    wide = max((len(each.display_text) for each in shown), default=0)
    return [
        (number == state.complete_index, f"  {each.display_text:<{wide}}  {each.display_meta_text}")
        for number, each in enumerate(shown, start)
    ]
