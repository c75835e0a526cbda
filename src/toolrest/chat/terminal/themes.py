"""Themes: the colours of each style, above the live part and in it.

`terminal` uses the palette of the terminal itself, so it is right on light and dark ones; the
others have fixed colours of the 256 that nearly every terminal has.
"""

from __future__ import annotations

from msgspec import Struct

from toolrest.config.schema.chat import Theme
from toolrest.timeline.draw import STYLES

_LIVE = {
    "": "",
    "bold": "bold",
    "dim": "fg:ansibrightblack",
    "italic": "italic fg:ansibrightblack",
    "red": "fg:ansired",
    "green": "fg:ansigreen",
    "yellow": "fg:ansiyellow",
    "cyan": "fg:ansicyan",
    "blue": "fg:ansiblue",
    "magenta": "fg:ansimagenta",
    "emphasis": "italic",
    "struck": "strike",
    "underline": "underline",
    "code": "fg:ansicyan",
    "changed": "reverse",
    "link": "underline fg:ansiblue",
    "user": "",
    "mark": "bold",
}
_FIXED = {
    "light": {
        "dim": 242,
        "red": 124,
        "green": 28,
        "yellow": 94,
        "cyan": 30,
        "blue": 25,
        "magenta": 90,
    },
    "dark": {
        "dim": 245,
        "red": 203,
        "green": 114,
        "yellow": 221,
        "cyan": 80,
        "blue": 111,
        "magenta": 176,
    },
}
_BEHIND = {"light": 254, "dark": 236}
"""The background of what the person wrote."""
_LEVELS = (0, 95, 135, 175, 215, 255)


class Colours(Struct, frozen=True):
    """A theme: ANSI codes of the styles for finished text, prompt_toolkit's for the live part."""

    any: bool
    ansi: dict[str, str]
    live: dict[str, str]

    def of(self, style: str) -> str:
        """prompt_toolkit's style of a style, of one word or more."""
        if style in self.live:
            return self.live[style]
        return " ".join(self.live[word] for word in style.split() if word in self.live)


def colours(theme: Theme, *, allowed: bool) -> Colours:
    """The colours of a theme; none where the terminal, or NO_COLOR, allows none."""
    if theme == "none" or not allowed:
        return Colours(
            False, STYLES, dict.fromkeys(_LIVE, "") | {"bold": "bold", "changed": "bold"}
        )
    if theme == "terminal":
        return Colours(True, STYLES, _LIVE)
    fixed = _FIXED[theme]
    ansi = STYLES | {style: f"38;5;{number}" for style, number in fixed.items()}
    live = _LIVE | {style: f"fg:{_hex(number)}" for style, number in fixed.items()}
    ansi["italic"], live["italic"] = f"3;{ansi['dim']}", f"italic {live['dim']}"
    ansi["link"], live["link"] = f"4;{ansi['blue']}", f"underline {live['blue']}"
    ansi["user"] = f"48;5;{_BEHIND[theme]}"
    ansi["code"], live["code"] = ansi["cyan"], live["cyan"]
    return Colours(True, ansi, live)


def _hex(number: int) -> str:
    """The colour of a number of the 256, as text."""
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    red, rest = divmod(number - 16, 36)
    green, blue = divmod(rest, 6)
    return "#" + "".join(f"{_LEVELS[level]:02x}" for level in (red, green, blue))
