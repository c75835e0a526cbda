"""A terminal's screen as SVG, from what `tmux capture-pane -e` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from toolrest.timeline.text import text_width

WIDE, HIGH, SIZE, EDGE, BAR = 8.4, 19, 14, 16, 34
FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
BACK, FRAME, TEXT = "#16181d", "#23262e", "#d7dae0"
PALETTE = ("#5c6370", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0")
BRIGHT = ("#7f8794", *PALETTE[1:7], "#ffffff")
_CODES = re.compile(r"\x1b\[([\d;]*)m")
_OTHER = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|[()].|[\x0e\x0f])")


class Style:
    """How the text that follows is drawn."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.colour, self.marks, self.reverse = TEXT, set[str](), False

    def apply(self, code: int) -> None:
        if code == 0:
            self.reset()
        elif code in (1, 2, 3, 4):
            self.marks.add(("bold", "dim", "italic", "underline")[code - 1])
        elif code == 22:
            self.marks -= {"bold", "dim"}
        elif code in (23, 24):
            self.marks -= {"italic" if code == 23 else "underline"}
        elif code in (7, 27):
            self.reverse = code == 7
        elif 30 <= code <= 37:
            self.colour = PALETTE[code - 30]
        elif 90 <= code <= 97:
            self.colour = BRIGHT[code - 90]
        elif code == 39:
            self.colour = TEXT

    @property
    def attributes(self) -> str:
        found = f' fill="{BACK if self.reverse else self.colour}"'
        found += ' font-weight="bold"' if "bold" in self.marks else ""
        found += ' font-style="italic"' if "italic" in self.marks else ""
        return found + (' opacity="0.7"' if "dim" in self.marks else "")


def svg(rows: list[str], columns: int, cursor: tuple[int, int] | None, title: str) -> str:
    """The rows of a screen, with their colours, in a window."""
    width, height = columns * WIDE + 2 * EDGE, len(rows) * HIGH + BAR + EDGE
    style = Style()
    drawn: list[str] = []
    for number, row in enumerate(rows):
        drawn += _row(row, BAR + number * HIGH, style)
    if cursor is not None:
        x, y = EDGE + cursor[1] * WIDE, BAR + cursor[0] * HIGH
        drawn.append(_box(x, y, WIDE, TEXT, ' opacity="0.6"'))
    dots = "".join(
        f'<circle cx="{EDGE + 4 + n * 18}" cy="17" r="5.5" fill="{colour}"/>'
        for n, colour in enumerate(("#e06c75", "#e5c07b", "#98c379"))
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="{FONT}" font-size="{SIZE}">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="100%" height="100%" rx="9" fill="{BACK}" stroke="{FRAME}"/>\n{dots}\n'
    )
    return head + "\n".join(drawn) + "\n</svg>\n"


def _row(row: str, y: float, style: Style) -> Iterator[str]:
    x, at = float(EDGE), 0
    row = _OTHER.sub("", row)
    for found in [*_CODES.finditer(row), None]:
        text = row[at : found.start() if found else None]
        size = text_width(text) * WIDE
        if style.reverse and text:
            yield _box(x, y, size, style.colour)
        if text.strip():
            lead = (len(text) - len(text.lstrip())) * WIDE
            words = text.strip()
            length = f' textLength="{text_width(words) * WIDE:.1f}" xml:space="preserve"'
            place = f'x="{x + lead:.1f}" y="{y + 14}"'
            yield f"<text {place}{length}{style.attributes}>{escape(words, quote=False)}</text>"
        x += size
        if found is not None:
            for code in found[1].split(";"):
                style.apply(int(code or 0))
            at = found.end()


def _box(x: float, y: float, width: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HIGH}" fill="{fill}"{more}/>'
