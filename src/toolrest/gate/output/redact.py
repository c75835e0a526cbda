"""Redaction: the values of known secrets are kept out of everything that leaves the gate.

Every occurrence of every spelling is covered, also where occurrences overlap, and each covered
stretch becomes the label of what was in it. A stream gives the same text as the whole would,
whatever the chunking, and holds back only what may still turn out to be the start of a secret.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolrest.config.secrets import (
    LOOK_BACK,
    SECRET_NAMES,
    SHORTEST_TOKEN,
    find_tokens,
    is_secret_name,
    is_secret_value,
    url_password,
)
from toolrest.gate.output.open_token import open_token
from toolrest.gate.output.secret_values import PatternStage, compile_pattern, label, spellings

_PROBE = 8
_PIECE = 1 << 16
_TOKEN = label("token")
# Python refuses to spell integers of more than 4,300 digits.
_LARGEST_SPELLED = 10**4000


class Redactor:
    """Replaces secret values by `[redacted:NAME]`; with nothing to look for it costs nothing.

    Values shorter than eight characters and paths are not looked for. A value spelled in
    another way than plain, JSON-escaped, URL-encoded or base64 is not found. With `tokens`, what
    has the shape of a well-known service's token, or is a private key, is replaced too.
    """

    def __init__(
        self, secrets: Mapping[str, str], patterns: Iterable[str] = (), *, tokens: bool = False
    ) -> None:
        self._tokens = tokens
        self._secrets = dict(secrets)
        self._patterns = tuple(
            (compile_pattern(pattern), label(f"pattern-{number}"))
            for number, pattern in enumerate(patterns, 1)
        )
        self._set(spellings(secrets))
        self.active = bool(self._texts or self._patterns or tokens)

    def _set(self, labels: dict[str, str]) -> None:
        texts = tuple(sorted(labels, key=len))
        self._prefixes = frozenset(
            form[:size] for form in texts for size in range(1, min(_PROBE, len(form)))
        )
        # Labels first: another thread may be at work, and must find one for every text.
        self._labels = labels
        lengths = [len(form) for form in texts] or [0]
        shortest = min(lengths[0] or SHORTEST_TOKEN, SHORTEST_TOKEN) if self._tokens else lengths[0]
        self.shortest = 0 if self._patterns else shortest
        """Texts that have fewer characters hold no secret."""
        self._texts = texts
        self._lengths = lengths

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Redact these values too from now on, except those that `can_hide` refuses."""
        self._secrets |= secrets
        self._set(spellings(self._secrets))
        self.active = bool(self._texts or self._patterns or self._tokens)

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str],
        *,
        names: Sequence[str] = SECRET_NAMES,
        patterns: Iterable[str] = (),
    ) -> Redactor:
        """A redactor for variables that are secret by name or value, and for tokens."""
        names = tuple(names)
        secrets: dict[str, str] = {}
        for name, value in environ.items():
            password = url_password(value)
            if password is not None:
                secrets[f"{name}.password"] = password
            if is_secret_name(name, names) or is_secret_value(value):
                secrets[name] = value
        return cls(secrets, patterns, tokens=True)

    def redact(self, text: str) -> str:
        """Return the text with every secret replaced."""
        if not self.active:
            return text
        if len(text) > _PIECE:  # one search over all of it would stop every other thread
            stream = self.stream()
            pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
            return "".join([*map(stream.feed, pieces), stream.flush()])
        if len(text) >= (self.shortest or self._lengths[0]):
            found = self._find(text, len(text))
            if found:
                text, _, _ = _cover(text, found, len(text), 0, "")
        for pattern, name in self._patterns:
            stage = PatternStage(pattern, name)
            text = stage.feed(text) + stage.flush()
        return text

    def redact_json(self, value: Any) -> Any:
        """Redact every string of a JSON value, keys and whole numbers included."""
        if not self.active:
            return value
        root = [value]
        # An explicit stack: a hostile value may be nested deeper than Python may recurse. The
        # copies are remembered, so that one that contains itself comes to an end.
        copies: dict[int, Any] = {}
        waiting: list[Any] = [root]
        while waiting:
            holder = waiting.pop()
            for key, item in list(holder.items() if type(holder) is dict else enumerate(holder)):
                if isinstance(item, Mapping | list | tuple):
                    copy = copies.get(id(item))
                    if copy is None:
                        copy = copies[id(item)] = self._shallow(item)
                        waiting.append(copy)
                    holder[key] = copy
                else:
                    holder[key] = self._scalar(item)
        return root[0]

    def stream(self) -> StreamRedactor:
        """Return a redactor for text that arrives in pieces."""
        return StreamRedactor(self)

    def _shallow(self, item: Mapping[Any, Any] | Sequence[Any]) -> dict[Any, Any] | list[Any]:
        if isinstance(item, Mapping):
            return {self._scalar(key): inner for key, inner in item.items()}
        return list(item)

    def _scalar(self, item: Any) -> Any:
        if isinstance(item, str):
            return self.redact(item)
        if type(item) is int and 10 ** (_PROBE - 1) <= abs(item) < _LARGEST_SPELLED:
            text = str(item)
            return item if (redacted := self.redact(text)) == text else redacted
        return item

    def _find(self, text: str, until: int, before: str = "") -> list[tuple[int, int, str]]:
        """Occurrences as (start, -end, label) in order of start, the longest first.

        All that start before `until`; `before` is the end of what the text follows on.
        """
        forms = self._texts
        if len(text) < self._lengths[-1]:
            forms = forms[: bisect_right(self._lengths, len(text))]
        present = [form for form in forms if form in text]
        tokens = find_tokens(text, before, until) if self._tokens else []
        if not present and not tokens:
            return []
        found = [(start, -end, _TOKEN) for start, end in tokens]
        for form in present:
            at = text.find(form)
            while at >= 0:
                found.append((at, -at - len(form), self._labels[form]))
                at = text.find(form, at + 1)
        found.sort()
        return found

    def _open_end(self, text: str, before: str) -> int:
        """Index of the earliest unfinished secret at the end of the text."""
        hold = self._open_value(text)
        return min(hold, open_token(text, before)) if self._tokens else hold

    def _open_value(self, text: str) -> int:
        length = len(text)
        hold = length
        for size in range(min(_PROBE - 1, length), 0, -1):
            if text[length - size :] in self._prefixes:
                hold = length - size
                break
        for form in self._texts:
            probe = form[:_PROBE]
            at = text.find(probe, max(0, length - len(form) + 1), hold + _PROBE)
            while 0 <= at < hold:
                if form.startswith(text[at:]):
                    hold = at
                    break
                at = text.find(probe, at + 1, hold + _PROBE)
        return hold


class StreamRedactor:
    """Redacts a text piece by piece: the pieces it returns join to the redacted whole."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stages = [PatternStage(*pattern) for pattern in redactor._patterns]
        self._held = ""
        self._before = ""
        self._covered = 0
        self._label = ""

    def feed(self, chunk: str) -> str:
        """Take a piece; return what can no longer become part of a secret."""
        if not self._redactor.active:
            return chunk
        text = self._held + chunk
        out = self._advance(text, self._redactor._open_end(text, self._before))
        for stage in self._stages:
            out = stage.feed(out)
        return out

    def flush(self) -> str:
        """Return the rest; the next piece starts a new text."""
        if not self._redactor.active:
            return ""
        out = self._advance(self._held, len(self._held))
        self._covered, self._label, self._before = 0, "", ""
        for stage in self._stages:
            out = stage.feed(out) + stage.flush()
        return out

    def _advance(self, text: str, until: int) -> str:
        found = self._redactor._find(text, until, self._before)
        out, self._covered, self._label = _cover(text, found, until, self._covered, self._label)
        self._held = text[until:]
        self._before = (self._before + text[max(0, until - LOOK_BACK) : until])[-LOOK_BACK:]
        return out


def _cover(
    text: str, found: list[tuple[int, int, str]], until: int, covered: int, last: str
) -> tuple[str, int, str]:
    """Replace what starts before `until`; return also how far beyond it the last one reaches.

    `covered` characters at the start are already replaced, by the label `last`.
    """
    pieces: list[str] = []
    at = covered
    for start, negative_end, name in found:
        if start >= until:
            break
        if -negative_end <= at:
            continue
        if start >= at:
            pieces += (text[at:start], name)
        elif name != last:
            pieces.append(name)
        at, last = -negative_end, name
    if at < until:
        pieces.append(text[at:until])
        at = until
    return "".join(pieces), at - until, last
