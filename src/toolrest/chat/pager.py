"""The pager: a whole output on a screen of its own, with search; `q` leaves it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar, TextArea

from toolrest.timeline.text import BAR, cut_to

_STYLE = Style([("scrollbar.background", "bg:default"), ("scrollbar.button", "bg:default reverse")])
"""Only colours of the terminal's own."""


@asynccontextmanager
async def whole_screen() -> AsyncIterator[None]:
    """Take the terminal from the chat; keys that come at the end are not echoed, and Enter is one.

    Between the two the terminal would be as a shell has it.
    """
    async with in_terminal():
        with get_app().input.raw_mode():
            yield


async def page(
    title: str,
    lines: Sequence[str],
    *,
    seen: Callable[[], None] | None = None,
    drawn: Sequence[StyleAndTextTuples] | None = None,
) -> None:
    """Show lines that are safe to print until the person leaves; the chat is as before then.

    `drawn` are the same lines with their styles. With `seen`, which is called once the last of
    them is on the screen, they are a request: what does not fit goes on behind a bar or indented,
    never in the first column, as our own text does.
    """
    async with whole_screen():
        await _pager(title, lines, seen, drawn).run_async()


class _Drawn(Lexer):
    """Lines that are drawn already."""

    def __init__(self, lines: Sequence[StyleAndTextTuples]) -> None:
        self._lines = lines

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        return lambda at: self._lines[at] if at < len(self._lines) else []


_KEYS = " · q leaves · space and b page · / searches"


def _head(title: str) -> StyleAndTextTuples:
    """The title, cut where the keys would not be seen."""
    room = get_app().output.get_size().columns - len(_KEYS) - 1
    return [("reverse", f" {cut_to(title, max(room, 20))}{_KEYS}")]


def _pager(
    title: str,
    lines: Sequence[str],
    seen: Callable[[], None] | None,
    drawn: Sequence[StyleAndTextTuples] | None,
) -> Application[None]:
    search = SearchToolbar()

    def prefix(number: int, wraps: int) -> str:
        if seen is None or not wraps:
            return ""
        return BAR if lines[number].startswith(BAR) else " " * len(BAR)

    area = TextArea(
        "\n".join(lines),
        read_only=True,
        scrollbar=True,
        search_field=search,
        wrap_lines=True,
        get_line_prefix=prefix,
        lexer=None if drawn is None else _Drawn(drawn),
    )
    keys = KeyBindings()

    def leave(event: KeyPressEvent) -> None:
        event.app.exit()

    def to_start(event: KeyPressEvent) -> None:
        area.buffer.cursor_position = 0

    def to_end(event: KeyPressEvent) -> None:
        area.buffer.cursor_position = len(area.buffer.text)

    for names, action in (
        (("q", "c-c", "c-o"), leave),
        ((" ", "pagedown"), lambda _: _page_down(area)),
        (("b", "pageup"), lambda _: _page_up(area)),
        (("g", "home"), to_start),
        (("G", "end"), to_end),
    ):
        for name in names:
            keys.add(name, filter=has_focus(area))(action)  # while it is searched, they are text

    top = Window(FormattedTextControl(lambda: _head(title)), height=1)

    def rendered(_: Application[None]) -> None:
        info = area.window.render_info
        if seen is not None and info is not None and info.bottom_visible:
            seen()

    return Application(
        Layout(HSplit([top, area, search]), focused_element=area),
        key_bindings=keys,
        style=_STYLE,
        full_screen=True,
        terminal_size_polling_interval=None,
        after_render=rendered,
    )


def _page_down(area: TextArea) -> None:
    """Go from the last row that is seen, or from where a page before this one goes, one further."""
    first, last = _seen_rows(area)
    _go_to(area, max(area.document.cursor_position_row, last) + max(1, last - first))


def _page_up(area: TextArea) -> None:
    first, last = _seen_rows(area)
    _go_to(area, min(area.document.cursor_position_row, first) - max(1, last - first))


def _seen_rows(area: TextArea) -> tuple[int, int]:
    info = area.window.render_info
    return (info.first_visible_line(), info.last_visible_line()) if info else (0, 20)


def _go_to(area: TextArea, row: int) -> None:
    row = min(max(row, 0), area.document.line_count - 1)
    area.buffer.cursor_position = area.document.translate_row_col_to_index(row, 0)
