"""Truncate texts that are too long: head and tail stay, the marker counts the middle.

Lengths are UTF-8 bytes (a token is four of them) unless the limit counts characters. A lone
surrogate counts as the three bytes it would need; it is never a reason to fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from toolrest.items import Content, Text

Unit: TypeAlias = Literal["bytes", "tokens", "chars"]

BYTES_PER_TOKEN = 4
_PIECE = 1 << 20
_CONTINUATION, _CONTINUATION_MASK = 0x80, 0xC0


class Limit(Struct, frozen=True):
    """The limit of a text that is shown."""

    amount: int
    unit: Unit = "chars"

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(f"a limit cannot be negative: {self.amount} {self.unit}")

    @property
    def budget(self) -> int:
        """The limit in bytes, or in characters when it counts those."""
        return self.amount * BYTES_PER_TOKEN if self.unit == "tokens" else self.amount

    def for_history(self) -> Limit:
        """The same limit with the fifth more that an output gets on entering history."""
        return Limit((self.amount * 12 + 9) // 10, self.unit)


class Truncated(Struct, frozen=True):
    """A text with its middle taken out."""

    head: str
    marker: str
    tail: str

    @property
    def text(self) -> str:
        """Head, marker and tail: what is shown."""
        return self.head + self.marker + self.tail

    @property
    def shown_bytes(self) -> int:
        """The bytes of the text itself that are shown."""
        return byte_length(self.head) + byte_length(self.tail)


def cut(text: str, limits: Sequence[Limit]) -> Truncated | None:
    """Cut a text to every limit it is over; None when it is over none.

    Of several limits the shorter head and the shorter tail count. The marker is that of the
    limit that decided both, else it counts characters.
    """
    over = [limit for limit in limits if not fits(text, limit)]
    if not over:
        return None
    heads = [keep_head(text, limit.budget // 2, limit.unit) for limit in over]
    tails = [keep_tail(text, limit.budget - limit.budget // 2, limit.unit) for limit in over]
    head, tail = min(heads, key=len), min(tails, key=len)
    sides = zip(over, heads, tails, strict=True)
    deciding = [limit for limit, *kept in sides if list(map(len, kept)) == [len(head), len(tail)]]
    limit = deciding[0] if deciding else Limit(0)
    total = byte_length(text) if limit.unit == "tokens" else 0
    return Truncated(head, marker(limit, total, len(text) - len(head) - len(tail)), tail)


def truncate(text: str, limit: Limit) -> str:
    """Keep the head and the tail of a text that is over its limit."""
    if fits(text, limit):
        return text
    short = cut(text, (limit,))
    return short.text if short else text


def formatted_truncate(text: str, limit: Limit) -> str:
    """Truncate, with the count of all lines above a text that was cut."""
    if fits(text, limit):
        return text
    return lines_header(line_count(text)) + truncate(text, limit)


def cut_items(items: list[Content], limit: Limit) -> tuple[list[Content], int]:
    """Truncate items, and count the bytes of their texts that are still shown."""
    left = limit.amount
    kept: list[Content] = []
    shown = omitted = 0
    for item in items:
        if not isinstance(item, Text):
            kept.append(item)
        elif left == 0:
            omitted += 1
        elif (short := cut(item.text, (Limit(left, limit.unit),))) is None:
            kept.append(item)
            left -= _cost(item.text, limit.unit)
            shown += byte_length(item.text)
        else:
            kept.append(Text(short.text))
            left = 0
            shown += short.shown_bytes
    if omitted:
        kept.append(Text(f"[omitted {omitted} text items ...]"))
    return kept, shown


def line_count(text: str) -> int:
    r"""Count lines as `\n` ends them; a last line without one counts too."""
    return text.count("\n") + (1 if text and text[-1] != "\n" else 0)


def byte_length(text: str) -> int:
    """Count UTF-8 bytes without holding a second copy of a large text."""
    if text.isascii():
        return len(text)
    if len(text) <= _PIECE:
        return len(encoded(text))
    return sum(len(encoded(text[at : at + _PIECE])) for at in range(0, len(text), _PIECE))


def fits(text: str, limit: Limit) -> bool:
    """Whether a text is within its limit; it is encoded only when its length leaves doubt."""
    budget, length = limit.budget, len(text)
    if length > budget:
        return False
    return length * 4 <= budget or limit.unit == "chars" or byte_length(text) <= budget


def keep_head(text: str, budget: int, unit: Unit) -> str:
    """Return the longest run of whole characters from the start that is within the budget."""
    head = text[:budget]
    if unit == "chars" or head.isascii():
        return head
    data = encoded(head)
    if len(data) <= budget:
        return head
    cut = budget
    while data[cut] & _CONTINUATION_MASK == _CONTINUATION:
        cut -= 1
    return data[:cut].decode("utf-8", "surrogatepass")


def keep_tail(text: str, budget: int, unit: Unit) -> str:
    """Return the longest run of whole characters up to the end that is within the budget."""
    tail = text[max(0, len(text) - budget) :]
    if unit == "chars" or tail.isascii():
        return tail
    data = encoded(tail)
    cut = max(0, len(data) - budget)
    while cut < len(data) and data[cut] & _CONTINUATION_MASK == _CONTINUATION:
        cut += 1
    return data[cut:].decode("utf-8", "surrogatepass")


def marker(limit: Limit, total_bytes: int, omitted_chars: int) -> str:
    """The marker of what is missing, in Codex's form, which models know."""
    if limit.unit == "tokens":
        return f"…{-((limit.budget - total_bytes) // BYTES_PER_TOKEN)} tokens truncated…"
    return f"…{omitted_chars} chars truncated…"


def lines_header(lines: int) -> str:
    """The header of a formatted text that was cut."""
    return f"Total output lines: {lines}\n\n"


def encoded(text: str) -> bytes:
    """Encode as UTF-8, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def _cost(text: str, unit: Unit) -> int:
    if unit == "chars":
        return len(text)
    size = byte_length(text)
    return size if unit == "bytes" else -(-size // BYTES_PER_TOKEN)
