"""The pager: a whole output on a screen of its own, with search; `q` leaves it."""

from __future__ import annotations

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar, TextArea

from toolrest.timeline.draw import safe_lines

_STYLE = Style([("scrollbar.background", "bg:default"), ("scrollbar.button", "bg:default reverse")])
"""Only colours of the terminal's own."""


async def page(title: str, text: str) -> None:
    """Show the text until the person leaves; the chat is as before then."""
    async with in_terminal():
        await _pager(title, "\n".join(safe_lines(text))).run_async()


def _pager(title: str, text: str) -> Application[None]:
    search = SearchToolbar()
    area = TextArea(text, read_only=True, scrollbar=True, search_field=search, wrap_lines=True)
    keys = KeyBindings()

    @keys.add("q")
    @keys.add("c-c")
    @keys.add("c-o")
    def _(event: KeyPressEvent) -> None:
        event.app.exit()

    @keys.add(" ")
    @keys.add("pagedown")
    def _(event: KeyPressEvent) -> None:
        _move(area, 1)

    @keys.add("b")
    @keys.add("pageup")
    def _(event: KeyPressEvent) -> None:
        _move(area, -1)

    @keys.add("g")
    @keys.add("home")
    def _(event: KeyPressEvent) -> None:
        area.buffer.cursor_position = 0

    @keys.add("G")
    @keys.add("end")
    def _(event: KeyPressEvent) -> None:
        area.buffer.cursor_position = len(area.buffer.text)

    head = f" {title} · q leaves, space and b page, / searches"
    top = Window(FormattedTextControl([("reverse", head)]), height=1)
    return Application(
        Layout(HSplit([top, area, search]), focused_element=area),
        key_bindings=keys,
        style=_STYLE,
        full_screen=True,
        terminal_size_polling_interval=None,
    )


def _move(area: TextArea, pages: int) -> None:
    info = area.window.render_info
    rows = max(1, (info.window_height if info else 20) - 1)
    document = area.buffer.document
    row = document.cursor_position_row + pages * rows
    row = min(max(row, 0), document.line_count - 1)
    area.buffer.cursor_position = document.translate_row_col_to_index(row, 0)
