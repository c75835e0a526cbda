"""What a yes may be remembered as: one key for each thing that a call touches.

A key is shown, stored and matched in this one form, so what a person reads is what is kept and
what is kept is what later calls are held against.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

from toolrest.policy.paths.names import inside
from toolrest.policy.terminal_safe import display_safe
from toolrest.records import dataclass

KeyKind: TypeAlias = Literal["write", "run", "connect", "call", "tool"]
KINDS: tuple[KeyKind, ...] = get_args(KeyKind)
_DEFAULTS: dict[str, Any] = {"root": "", "exact": False, "outside": False}


@dataclass(frozen=True, slots=True)
class GrantKey:
    """One thing that may be done.

    `write` names a path, `run` the words of a command, `connect` a host, `call` another
    server's tool with its pin, `tool` a tool whose effects are not declared (and, as a second
    word, the fingerprint of one call of it). `exact` commands have no further words. `root`
    limits commands to a folder. `outside` is a yes to leaving the sandbox; a yes without it is
    none to that.
    """

    kind: KeyKind
    words: tuple[str, ...]
    root: str = ""
    exact: bool = False
    outside: bool = False

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        data: dict[str, Any] = {"kind": self.kind, "words": list(self.words)}
        if self.kind == "run":
            data |= {"root": self.root, "exact": self.exact}
        return data | {"outside": self.outside}

    @staticmethod
    def from_json(data: object) -> GrantKey:
        """From what was stored; ValueError for anything that `to_json` does not write."""
        if not isinstance(data, Mapping):
            raise ValueError("a key must be a table")
        kind, words = data.get("kind"), data.get("words")
        if kind not in KINDS or not _is_texts(words):
            raise ValueError("a key needs a known kind and words")
        root, exact, outside = (data.get(name, d) for name, d in _DEFAULTS.items())
        if not (isinstance(root, str) and isinstance(exact, bool) and isinstance(outside, bool)):
            raise ValueError("root must be a text, exact and outside true or false")
        key = GrantKey(cast("KeyKind", kind), tuple(cast("list[str]", words)), root, exact, outside)
        if key.to_json() != dict(data):
            raise ValueError(f"a key of kind {kind} has other fields than it should")
        return key

    def covers(self, need: GrantKey, cwds: Sequence[str] = ()) -> bool:
        """Whether a call that needs this much may go on; for commands `cwds` are where it runs."""
        if self.kind != need.kind or self.outside != need.outside:
            return False
        if self.kind != "run":
            return self.words == need.words
        if self.root and not (cwds and all(inside(cwd, self.root) for cwd in cwds)):
            return False
        if self.exact:
            return self.words == need.words
        return need.words[: len(self.words)] == self.words

    def sentence(self) -> str:
        """What is allowed, in words that say all of it and that cannot deceive a reader."""
        words = display_safe(_SENTENCES[self.kind](self))
        return f"{words}, outside the sandbox" if self.outside else words


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(w, str) for w in value)


def quoted(words: Sequence[str]) -> str:
    """Words so that their borders can be seen: no two lists of words look the same."""
    return "[" + ", ".join(json.dumps(word, ensure_ascii=False) for word in words) + "]"


def _run(key: GrantKey) -> str:
    what = "exactly the command" if key.exact else "commands that start with"
    where = f"in {json.dumps(key.root, ensure_ascii=False)} and below" if key.root else "anywhere"
    return f"{what} {quoted(key.words)}, {where}"


def _tool(key: GrantKey) -> str:
    if len(key.words) == 1:
        return f"any call of the tool {quoted(key.words)}"
    return f"this very call of the tool {quoted(key.words)}"


_SENTENCES = {
    "write": lambda key: f"writing {quoted(key.words)}",
    "run": _run,
    "connect": lambda key: f"connecting to {quoted(key.words)}",
    "call": lambda key: f"calls of {quoted(key.words)}",
    "tool": _tool,
}
