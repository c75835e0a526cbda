"""The keys of the chat: each action with the keys that the settings name for it.

While a question is open it has keys of its own: all of them are for it, and none for the line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.filters import Always, Condition, Filter, is_searching
from prompt_toolkit.key_binding import (
    ConditionalKeyBindings,
    KeyBindings,
    KeyBindingsBase,
    KeyPressEvent,
)
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import SearchDirection, start_search

from toolrest.config.schema.chat import ChatKeys, key_codes
from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from toolrest.chat.actions import KeyActions

# Shift-Enter, as terminals with the kitty keyboard protocol and those with modifyOtherKeys (xterm,
# tmux with extended-keys) send it. prompt_toolkit knows the second, as Enter.
_SHIFT_ENTER = "\x1b[13;2u"
_AS_ENTER = "\x1b[27;2;13~"


def bindings(actions: KeyActions, chosen: ChatKeys) -> KeyBindingsBase:
    """All keys; while earlier messages are searched, keys are for the search."""
    keys = KeyBindings()
    keys.add(Keys.BracketedPaste)(lambda event: actions.paste(event.data))
    for codes, action in keys_of(chosen).items():
        _bind(keys, codes, _ACTIONS[action](actions), _when(codes, action, actions))
    codes = tuple("escape" if char == "\x1b" else char for char in _SHIFT_ENTER)
    _bind(keys, codes, _newline(actions))
    if ("escape", "/") not in keys_of(chosen):  # typed by a script, which takes no time: no Alt-/
        is_esc = _when(("escape",), "interrupt", actions)
        _bind(keys, ("escape", "/"), lambda _: actions.escape_and("/"), is_esc)
    _bind(keys, ("<sigint>",), _ACTIONS["clear"](actions))
    for key, step in (("up", -1), ("down", 1), ("pageup", -8), ("pagedown", 8)):
        _bind(keys, (key,), _picking(actions, step), Condition(lambda: actions.is_picking))
    _bind(keys, ("up",), lambda _: actions.take_queued(), Condition(lambda: actions.has_queued))
    return ConditionalKeyBindings(keys, ~is_searching)


def keys_of(chosen: ChatKeys) -> dict[tuple[str, ...], str]:
    """The action of each key: a default gives way to what was set; two that were set may not meet.

    ConfigError names the key that has two actions.
    """
    found: dict[tuple[str, ...], str] = {}
    given = chosen.given()
    for action in sorted(ChatKeys.__annotations__, key=lambda name: name in given):
        for key in getattr(chosen, action):
            codes = key_codes(key)
            other = found.get(codes, action)
            if other != action and other in given:
                raise ConfigError(f"chat.keys: {key} is both {other} and {action}; choose one")
            found[codes] = action
    return found


def _bind(
    keys: KeyBindings,
    codes: tuple[str, ...],
    action: Callable[[KeyPressEvent], None],
    when: Filter = Always(),  # noqa: B008 - it has no state
) -> None:
    keys.add(*codes, filter=when)(action)


def _when(codes: tuple[str, ...], action: str, actions: KeyActions) -> Filter:
    if action == "leave":
        return Condition(lambda: actions.is_empty)
    # Alt-V is Esc and v, which vi's own keys are, too.
    if codes == ("escape",) or (action == "picture" and codes[0] == "escape"):
        return Condition(lambda: not actions.leaves_insert_mode)
    return Always()


_STILL = ("interrupt", "clear", "leave", "suspend", "redraw", "output")
"""Actions whose keys work while a question is open."""
_EVENTS = (
    *(Keys.Any, Keys.CPRResponse, Keys.SIGINT, Keys.Ignore, Keys.Escape),
    *(Keys.Vt100MouseEvent, Keys.WindowsMouseEvent, Keys.ScrollUp, Keys.ScrollDown),
)


def question_bindings(actions: KeyActions, chosen: ChatKeys) -> KeyBindingsBase:
    """The keys while a question is open: each answers it, or is dropped.

    Every key is named: those of the editor, and in vi's mode letters, would edit the line.
    """
    keys = KeyBindings()
    for key in Keys:
        if key not in _EVENTS:
            keys.add(key)(_choosing(actions, _CHOOSING.get(key, "")))
    for char in map(chr, range(33, 127)):
        keys.add(char)(_choosing(actions, char))
    keys.add(Keys.Any)(lambda _: actions.choose(""))
    for codes, action in keys_of(chosen).items():
        if action == "send" and len(codes) == 1:
            keys.add(*codes)(_choosing(actions, "enter"))
        elif action in _STILL:
            _bind(keys, codes, _ACTIONS[action](actions), _when(codes, action, actions))
    _bind(keys, ("<sigint>",), _ACTIONS["clear"](actions))
    return keys


_CHOOSING = {Keys.Up: "up", Keys.Down: "down", Keys.ControlM: "enter", Keys.BracketedPaste: "paste"}


def _choosing(actions: KeyActions, key: str) -> Callable[[KeyPressEvent], None]:
    return lambda _: actions.choose(key)


def _picking(actions: KeyActions, step: int) -> Callable[[KeyPressEvent], None]:
    return lambda _: actions.pick(step)


def _newline(actions: KeyActions) -> Callable[[KeyPressEvent], None]:
    return lambda event: event.current_buffer.insert_text("\n")


def _send(actions: KeyActions) -> Callable[[KeyPressEvent], None]:
    def sent(event: KeyPressEvent) -> None:
        if event.data == _AS_ENTER:
            event.current_buffer.insert_text("\n")
        else:
            actions.enter()

    return sent


_ACTIONS: dict[str, Callable[[KeyActions], Callable[[KeyPressEvent], None]]] = {
    "send": _send,
    "queue": lambda actions: lambda _: actions.tab(),
    "previous": lambda _: lambda event: event.current_buffer.complete_previous(),
    "newline": _newline,
    "picture": lambda actions: lambda _: actions.paste_picture(),
    "editor": lambda actions: lambda _: actions.edit(),
    "search": lambda _: lambda event: start_search(direction=SearchDirection.BACKWARD),
    "output": lambda actions: lambda _: actions.show_output(),
    "interrupt": lambda actions: lambda _: actions.escape(),
    "back": lambda actions: lambda _: actions.back(),
    "clear": lambda actions: lambda _: actions.control_c(),
    "leave": lambda actions: lambda _: actions.leave(),
    "suspend": lambda _: lambda event: event.app.suspend_to_background(),
    "redraw": lambda _: lambda event: event.app.renderer.clear(),
}
