"""Grant keys: what an approval is remembered as, one key for each thing that a call touches.

A key is shown, stored and matched in this one form, so what a person reads is what is kept and
what is kept is what later calls are held against.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

from msgspec import Struct

from toolrest.policy.paths.names import inside
from toolrest.policy.terminal_safe import display_safe

KeyKind: TypeAlias = Literal["write", "run", "connect", "call", "tool", "reach"]
KINDS: tuple[KeyKind, ...] = get_args(KeyKind)
_DEFAULTS: dict[str, Any] = {
    "root": "",
    "exact": False,
    "outside": False,
    "program": "",
    "shell": "",
}


class GrantKey(Struct, frozen=True):
    """One thing that may be done.

    `write` names a path, `run` the words of a command, `connect` a host, `call` another
    server's tool with its pin, `reach` such a tool after external content was read, `tool` a
    tool whose effects are not declared (and, as a second word, the fingerprint of one call of
    it). `exact` commands have no further words. `root` limits commands to a folder; `program` is
    the executable that the first word stood for and `shell` what ran the line (keys of earlier
    releases have neither). `outside` approves leaving the sandbox, and a key without it does not.
    """

    kind: KeyKind
    words: tuple[str, ...]
    root: str = ""
    exact: bool = False
    outside: bool = False
    program: str = ""
    shell: str = ""

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        data: dict[str, Any] = {"kind": self.kind, "words": list(self.words)}
        if self.kind == "run":
            data |= {"root": self.root, "exact": self.exact}
            data |= {"program": self.program} if self.program else {}
            data |= {"shell": self.shell} if self.shell else {}
        return data | {"outside": self.outside}

    @staticmethod
    def from_json(data: object) -> GrantKey:
        """From what was stored; ValueError for anything that `to_json` does not write."""
        if not isinstance(data, Mapping):
            raise ValueError("a key must be a table")
        kind, words = data.get("kind"), data.get("words")
        if kind not in KINDS or not _is_texts(words):
            raise ValueError("a key needs a known kind and words")
        more = {name: data.get(name, default) for name, default in _DEFAULTS.items()}
        if any(type(more[name]) is not type(default) for name, default in _DEFAULTS.items()):
            raise ValueError("root, program, shell must be texts, exact and outside true or false")
        key = GrantKey(cast("KeyKind", kind), tuple(cast("list[str]", words)), **more)
        if key.to_json() != dict(data):
            raise ValueError(f"a key of kind {kind} has other fields than it should")
        return key

    def covers(self, need: GrantKey, cwds: Sequence[str] = ()) -> bool:
        """Whether a grant of this key covers `need`; for commands `cwds` are where it runs."""
        if self.kind != need.kind or self.outside != need.outside:
            return False
        if self.kind != "run":
            return self.words == need.words
        if self.program not in ("", need.program):
            return False
        if self.shell and need.shell not in ("", self.shell):  # no shell at all does not differ
            return False
        if self.root and not (cwds and all(inside(cwd, self.root) for cwd in cwds)):
            return False
        if self.exact:
            return self.words == need.words
        return need.words[: len(self.words)] == self.words

    def sentence(self) -> str:
        """A sentence that says all that is allowed, and that cannot deceive a reader."""
        sentence = display_safe(_SENTENCES[self.kind](self))
        return f"{sentence}, outside the sandbox" if self.outside else sentence


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(w, str) for w in value)


def quoted(words: Sequence[str]) -> str:
    """A list of words in quotes, so that no two lists look the same."""
    return "[" + ", ".join(json.dumps(word, ensure_ascii=False) for word in words) + "]"


def _run(key: GrantKey) -> str:
    what = "exactly the command" if key.exact else "commands that start with"
    where = f"in {json.dumps(key.root, ensure_ascii=False)} and below" if key.root else "anywhere"
    file = f" ({key.program})" if key.program else ""
    return f"{what} {quoted(key.words)}{file}, {where}"


def _tool(key: GrantKey) -> str:
    if len(key.words) == 1:
        return f"any call of the tool {quoted(key.words)}"
    return f"this very call of the tool {quoted(key.words)}"


def _reach(key: GrantKey) -> str:
    return f"calls of {quoted(key.words)}, also after external content was read"


_SENTENCES = {
    "write": lambda key: f"writing {quoted(key.words)}",
    "run": _run,
    "connect": lambda key: f"connecting to {quoted(key.words)}",
    "call": lambda key: f"calls of {quoted(key.words)}",
    "tool": _tool,
    "reach": _reach,
}
