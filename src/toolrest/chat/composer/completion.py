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
            known, typed = self._commands(), found[1]
            begin = [name for name in known if name.startswith(typed)]
            hold = [name for name in known if typed in name and name not in begin]
            for name in [*begin, *hold]:
                yield Completion(name, -len(typed), display=f"/{name}", display_meta=known[name])
        elif found := _MENTION.search(before):
            for path in self._files.matching(found[1]):
                yield Completion(path + " ", -len(found[1]), display=path)


def menu_rows(state: CompletionState, most: int) -> list[tuple[str, str]]:
    """The completions around the marked one as styles and texts, in at most so many rows.

    Of commands the first is marked until the person moves: Enter takes it.
    """
    count, at = len(state.completions), state.complete_index
    if at is None:
        is_command = state.original_document.text.startswith("/")
        at = 0 if is_command else -1
    room = most if count <= most else most - 1
    start = max(0, min(at - room // 2, count - room))
    wide = max((len(each.display_text) for each in state.completions), default=0)
    rows = [
        (
            "bold" if number == at else "dim",
            f"{'›' if number == at else ' '} {each.display_text:<{wide}}  {each.display_meta_text}",
        )
        for number, each in enumerate(state.completions[start : start + room], start)
    ]
    more = f"  {max(at, 0) + 1} of {count} · ↑ ↓ shows more"
    return rows if room == most else [*rows, ("dim", more)]
