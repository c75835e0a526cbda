"""Texts that no message, log, traceback or JSON shows: keys, passwords, addresses that hold some.

They are not strings, so that nothing prints, joins or stores one by mistake: `reveal()` stands at
the few places that send them. Redaction by value is the second line.
"""

from __future__ import annotations

from typing import NoReturn, final


@final
class Secret:
    """A secret text. Two are equal when their texts are; an empty one is false."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, to be sent and not kept."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return "Secret(…)" if self._text else "Secret()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not copied into a pickle")


@final
class SafeUrl:
    """An address, shown without the name and password, parameters and fragment that it may have."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The whole address, to be sent and not kept."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SafeUrl) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        scheme, mark, rest = self._text.partition("://")
        # A password may hold what ends a host, so all before the last @ counts as one.
        rest = rest.rpartition("@")[2].partition("?")[0].partition("#")[0]
        return f"{scheme}{mark}{rest}" if mark else "…"

    def __repr__(self) -> str:
        return f"SafeUrl({str(self)!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an address that may hold a password is not copied into a pickle")
