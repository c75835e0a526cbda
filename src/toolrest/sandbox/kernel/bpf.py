"""A small assembler for classic BPF, as much of it as a seccomp filter needs.

Jumps are written with labels and only forward. A filter is a list of blocks, each of which
judges one system call and falls through to the next when it is not concerned.
"""

from __future__ import annotations

import struct

_LOAD = 0x20  # ld [k]: a 32-bit word of struct seccomp_data
_AND = 0x54
_JEQ = 0x15
_JGE = 0x35
_JSET = 0x45
_RETURN = 0x06

KILL = 0x80000000
ALLOW = 0x7FFF0000

_NUMBER = 0
_ARCH = 4
_ARGUMENTS = 16
_FARTHEST = 255


def errno(number: int) -> int:
    """The verdict that makes a call fail with this errno."""
    return 0x00050000 | number


class Assembler:
    """Collects instructions and resolves labels to relative jumps."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, str | None, str | None]] = []
        self._labels: dict[str, int] = {}
        self._fresh = 0

    def label(self, name: str) -> None:
        """The next instruction is where jumps to `name` land."""
        self._labels[name] = len(self._code)

    def fresh(self) -> str:
        """A label that is not used yet."""
        self._fresh += 1
        return f"_{self._fresh}"

    def number(self) -> None:
        """Load the number of the call."""
        self._emit(_LOAD, _NUMBER)

    def arch(self) -> None:
        """Load the architecture through which the call came."""
        self._emit(_LOAD, _ARCH)

    def argument(self, index: int, *, high: bool = False) -> None:
        """Load one half of an argument; both machines are little-endian."""
        self._emit(_LOAD, _ARGUMENTS + 8 * index + (4 if high else 0))

    def mask(self, bits: int) -> None:
        """Keep these bits of what was loaded."""
        self._emit(_AND, bits)

    def equal(self, value: int, then: str | None = None, other: str | None = None) -> None:
        """Compare; None means the next instruction."""
        self._emit(_JEQ, value, then, other)

    def at_least(self, value: int, then: str | None = None, other: str | None = None) -> None:
        """Compare without sign; None means the next instruction."""
        self._emit(_JGE, value, then, other)

    def any_bit(self, bits: int, then: str | None = None, other: str | None = None) -> None:
        """Test whether one of these bits is set; None means the next instruction."""
        self._emit(_JSET, bits, then, other)

    def verdict(self, action: int) -> None:
        """End with this action."""
        self._emit(_RETURN, action)

    def assemble(self) -> bytes:
        """The program as the kernel takes it."""
        return b"".join(
            struct.pack("<HBBI", code, self._jump(at, then), self._jump(at, other), value)
            for at, (code, value, then, other) in enumerate(self._code)
        )

    def _emit(
        self, code: int, value: int, then: str | None = None, other: str | None = None
    ) -> None:
        self._code.append((code, value, then, other))

    def _jump(self, at: int, label: str | None) -> int:
        if label is None:
            return 0
        distance = self._labels[label] - at - 1
        if not 0 <= distance <= _FARTHEST:
            raise ValueError(f"jump to {label} spans {distance} instructions")
        return distance
