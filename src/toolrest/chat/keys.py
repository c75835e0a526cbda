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
    from toolrest.chat.actions import KeyActions


def bindings(actions: KeyActions) -> KeyBindingsBase:
    """All of them; while earlier messages are searched, keys are for the search."""
    keys = KeyBindings()
    _answering(keys, actions)
    _sending(keys, actions)
    _picking(keys, actions)
    _leaving(keys, actions)
    _looking(keys, actions)
    return ConditionalKeyBindings(keys, ~is_searching)


def _answering(keys: KeyBindings, actions: KeyActions) -> None:
    """Single keys for an approval, while the composer is empty."""
    approval = Condition(actions.takes_keys)

    @keys.add(Keys.Any, filter=approval)
    def _(event: KeyPressEvent) -> None:
        actions.key(event.data)

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        actions.paste(event.data)


def _sending(keys: KeyBindings, actions: KeyActions) -> None:
    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        actions.enter()

    @keys.add("tab")
    def _(event: KeyPressEvent) -> None:
        actions.tab()

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
        actions.edit()


def _key(char: str) -> str:
    return "escape" if char == "\x1b" else char


def _picking(keys: KeyBindings, actions: KeyActions) -> None:
    """Arrows, while there is a list to pick from."""
    for key, step in (("up", -1), ("down", 1), ("pageup", -8), ("pagedown", 8)):

        @keys.add(key, filter=Condition(lambda: actions.is_picking))
        def _(event: KeyPressEvent, step: int = step) -> None:
            actions.pick(step)


def _leaving(keys: KeyBindings, actions: KeyActions) -> None:
    @keys.add("escape")
    def _(event: KeyPressEvent) -> None:
        actions.escape()

    @keys.add("c-c")
    @keys.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        actions.control_c()

    @keys.add("c-d", filter=Condition(lambda: actions.is_empty))
    def _(event: KeyPressEvent) -> None:
        actions.leave()

    @keys.add("c-z")
    def _(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def _looking(keys: KeyBindings, actions: KeyActions) -> None:
    @keys.add("c-o")
    def _(event: KeyPressEvent) -> None:
        actions.show_output()

    @keys.add("c-l")
    def _(event: KeyPressEvent) -> None:
        event.app.renderer.clear()
