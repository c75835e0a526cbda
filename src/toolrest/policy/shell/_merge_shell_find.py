"""Where does `find` begin, and what does its `{}` stand for?"""

from __future__ import annotations

from toolrest.policy.shell.script import Simple

_NARROW = ("-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-type")


def find_starts(simple: Simple) -> list[int]:
    """The places of the folders that `find` begins with."""
    starts = []
    for index in range(1, len(simple.argv)):
        word = simple.argv[index]
        if word in ("-H", "-L", "-P"):
            continue
        if word[:1] in ("-", "(", "!", ",") and not simple.mark(index):
            break
        starts.append(index)
    return starts


def find_is_narrow(simple: Simple) -> bool:
    """True when a test on name or kind spares the folder that `find` begins with."""
    argv = simple.argv
    return any(
        word in _NARROW and argv[place + 1 : place + 2] not in (("*",), ("d",))
        for place, word in enumerate(argv)
    )


def found_by(simple: Simple) -> str:
    """What `{}` stands for: something beneath one literal folder, or anything."""
    starts = find_starts(simple)
    if len(starts) > 1 or any(simple.mark(index) for index in starts):
        return ""
    start = simple.argv[starts[0]] if starts else "."
    return f"{start.rstrip('/')}/{{}}" if find_is_narrow(simple) else start
