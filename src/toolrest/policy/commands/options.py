"""Reads options the way getopt does: clusters, attached values, `--name=value`, `--`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field


class Options(Struct):
    """Options and operands of one command. Short options are letters, long ones `--name`."""

    flags: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    operands: list[int] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        """True when one of these options was given, long names also when cut short.

        getopt takes any unambiguous beginning of a long name; three letters are taken to be one.
        """
        for name in names:
            if name in self.flags:
                return True
            if name.startswith("--") and any(
                len(flag) > 4 and name.startswith(flag) for flag in self.flags
            ):
                return True
        return False

    def value(self, *names: str) -> str | None:
        """The last value given to one of these options."""
        for name in names:
            if name in self.values:
                return self.values[name][-1]
        return None


def read_options(
    argv: Sequence[str],
    takes: str = "",
    long_takes: frozenset[str] = frozenset(),
    *,
    start: int = 1,
    stop: bool = False,
) -> Options:
    """Sort words into options and operands.

    `takes` are the letters and `long_takes` the long names that take a value. With `stop` the
    first operand ends the options and the operands are everything from there on.
    """
    found = Options()
    index, count = start, len(argv)
    while index < count:
        word = argv[index]
        if word == "--":
            index += 1
            break
        if word[:1] != "-" or word == "-":
            if stop:
                break
            found.operands.append(index)
        elif word.startswith("--"):
            index += _long(word, argv, index, long_takes, found)
        else:
            index += _short(word, argv, index, takes, found)
        index += 1
    found.operands.extend(range(index, count))
    return found


def _long(word: str, argv: Sequence[str], index: int, takes: frozenset[str], found: Options) -> int:
    name, equals, value = word.partition("=")
    found.flags.add(name)
    if equals:
        found.values.setdefault(name, []).append(value)
    elif name in takes and index + 1 < len(argv):
        found.values.setdefault(name, []).append(argv[index + 1])
        return 1
    return 0


def _short(word: str, argv: Sequence[str], index: int, takes: str, found: Options) -> int:
    for place, letter in enumerate(word[1:], 2):
        found.flags.add(letter)
        if letter in takes:
            if place < len(word):
                found.values.setdefault(letter, []).append(word[place:])
            elif index + 1 < len(argv):
                found.values.setdefault(letter, []).append(argv[index + 1])
                return 1
            return 0
    return 0
