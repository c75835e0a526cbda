"""The settings of the chat: how one edits, its colours, its keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from toolrest.config.schema.table import Table

Theme: TypeAlias = Literal["terminal", "light", "dark", "none"]

_NAMED = frozenset(
    ["enter", "tab", "escape", "space", "backspace", "delete", "insert", "pageup", "pagedown"]
    + ["up", "down", "left", "right", "home", "end"]
    + [f"f{number}" for number in range(1, 13)]
)
_MOVING = frozenset(["up", "down", "left", "right", "home", "end"])
_SAME = {"ctrl-m": "enter", "ctrl-i": "tab"}
"""Keys that terminals send the same bytes for."""


def key_codes(text: str) -> tuple[str, ...]:
    """A key, or several one after the other, as prompt_toolkit names them; else ValueError.

    `ctrl-o`, `alt-enter`, `shift-tab`, `f2`, `ctrl-x ctrl-e`.
    """
    codes = tuple(code for key in text.lower().split() for code in _codes(key, text))
    if not codes:
        raise ValueError("expected a key such as 'ctrl-o', 'alt-enter' or 'f2'")
    return codes


def _codes(key: str, text: str) -> tuple[str, ...]:
    key = _SAME.get(key, key)
    modifier, dash, base = key.partition("-")
    if not dash:
        modifier, base = "", key
    if modifier == "alt" and (base in _NAMED or (len(base) == 1 and base.isprintable())):
        return "escape", _code(base)
    if key == "ctrl-h":
        raise ValueError(f"{text!r}: terminals send Backspace as ctrl-h; use another key")
    if modifier == "ctrl" and ((len(base) == 1 and "a" <= base <= "z") or base in _MOVING):
        return (f"c-{base}",)
    if modifier == "shift" and (base == "tab" or base in _MOVING):
        return (f"s-{base}",)
    if modifier == "" and base in _NAMED - {"space", "backspace"}:
        return (_code(base),)
    if not modifier and (len(base) == 1 or base == "space"):
        raise ValueError(f"{text!r} is text that one writes; add ctrl- or alt-, or use f1 to f12")
    raise ValueError(f"{text!r} is not a key; expected one such as 'ctrl-o', 'alt-enter' or 'f2'")


def _code(base: str) -> str:
    return {"space": " ", "backspace": "c-h"}.get(base, base)


def _keys(value: Any) -> Any:
    """A key or a list of keys; each is known, none is twice."""
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, list | tuple):
        for each in listed:
            if isinstance(each, str):
                key_codes(each)
    return listed


KeyNames: TypeAlias = Annotated[tuple[str, ...], _keys]


class ChatKeys(Table):
    """`[chat.keys]`: the keys of each action, one or a list; an empty list is none."""

    send: KeyNames = ("enter",)
    queue: KeyNames = ("tab",)
    previous: KeyNames = ("shift-tab",)
    picture: KeyNames = ("ctrl-v", "alt-v")
    newline: KeyNames = ("alt-enter", "ctrl-j")
    editor: KeyNames = ("ctrl-g",)
    search: KeyNames = ("ctrl-r",)
    output: KeyNames = ("ctrl-o",)
    interrupt: KeyNames = ("escape",)
    back: KeyNames = ()
    clear: KeyNames = ("ctrl-c",)
    leave: KeyNames = ("ctrl-d",)
    suspend: KeyNames = ("ctrl-z",)
    redraw: KeyNames = ("ctrl-l",)


class ChatSettings(Table):
    """`[chat]`."""

    edit_mode: Literal["emacs", "vi"] = "emacs"
    theme: Theme = "terminal"
    keys: ChatKeys = ChatKeys()
