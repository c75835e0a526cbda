"""The keys of the chat.

A key that a waiting approval takes is not text; every other key is, and makes the approval inert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import (
    ConditionalKeyBindings,
    KeyBindings,
    KeyBindingsBase,
    KeyPressEvent,
)
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from toolrest.chat.app import ChatApp


def bindings(chat: ChatApp) -> KeyBindingsBase:
    """All of them; while earlier messages are searched, keys are for the search."""
    keys = KeyBindings()
    _answering(keys, chat)
    _sending(keys, chat)
    _leaving(keys, chat)
    _looking(keys, chat)
    return ConditionalKeyBindings(keys, ~is_searching)


def _answering(keys: KeyBindings, chat: ChatApp) -> None:
    """Single keys for an approval, while the composer is empty."""
    approval = Condition(chat.takes_keys)

    @keys.add(Keys.Any, filter=approval)
    def _(event: KeyPressEvent) -> None:
        chat.key(event.data)

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        chat.paste(event.data)


def _sending(keys: KeyBindings, chat: ChatApp) -> None:
    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        chat.enter()

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        chat.tab()

    @keys.add("s-tab")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.complete_previous()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    # Shift-Enter, as terminals with the kitty keyboard protocol or modifyOtherKeys send it.
    for sequence in ("\x1b[13;2u", "\x1b[27;2;13~"):

        @keys.add(*(_key(char) for char in sequence))
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

    @keys.add("c-g")
    def _(event: KeyPressEvent) -> None:
        chat.edit()


def _key(char: str) -> str:
    return "escape" if char == "\x1b" else char


def _leaving(keys: KeyBindings, chat: ChatApp) -> None:
    @keys.add("escape")
    def _(event: KeyPressEvent) -> None:
        chat.escape()

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        chat.control_c()

    @keys.add("c-d", filter=Condition(lambda: not chat.screen.buffer.text))
    def _(event: KeyPressEvent) -> None:
        chat.leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def _looking(keys: KeyBindings, chat: ChatApp) -> None:
    @keys.add("c-o")
    def _(event: KeyPressEvent) -> None:
        chat.show_output()

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.clear()
