"""In which spellings a secret value may turn up in a text, and which values count at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

MIN_LENGTH = 8
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=_-]{16,}")
_ADDRESS = re.compile(r"(?:unix|file):(?://|path=)?(/[^,;]*).*")
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9_.-]")
# Characters at the start of base64 text that also hold bits of what stood before the value.
_SHARED = (0, 2, 3)


def spellings(secrets: Mapping[str, str]) -> dict[str, str]:
    """Map every spelling of every value to its label; a value's own text wins over a derived one.

    Short values and paths are left alone: they are common words of ordinary output.
    """
    labels: dict[str, str] = {}
    kept = [(name, value.strip()) for name, value in sorted(secrets.items())]
    kept = [(name, value) for name, value in kept if can_hide(value)]
    for name, value in kept:
        labels.setdefault(value, label(name))
    for name, value in kept:
        for form in _derived(value):
            labels.setdefault(form, label(name))
    return labels


def label(name: str) -> str:
    """Build what stands in the place of a value."""
    return f"[redacted:{_NOT_IN_LABEL.sub('_', name)[:64]}]"


def can_hide(value: str) -> bool:
    """Whether a value can be looked for: short ones and paths are too common."""
    return len(value) >= MIN_LENGTH and not _is_path(value)


def _is_path(value: str) -> bool:
    """Whether a value is a path. Only what is there tells: passwords begin with `~` or `./` too.

    One base64 key in 64 starts with a slash, so of an absolute path the first folder must exist.
    """
    address = _ADDRESS.fullmatch(value)
    path = address[1] if address else value
    if path[0] == "/":
        return os.path.lexists("/" + path.lstrip("/").split("/", 1)[0][:255])
    if path.startswith("~/"):
        return os.path.lexists(os.path.expanduser(path))
    return path.startswith(("./", "../")) and os.path.lexists(path)


def _derived(value: str) -> Iterator[str]:
    # Slow to import, and only needed where there is a secret.
    import json
    from urllib.parse import quote, quote_plus

    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    data = value.encode("utf-8", "surrogatepass")
    for escaped in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)
    for text in _base64(data):
        yield text
        yield text.replace("+", "-").replace("/", "_")
    if "\n" in value:
        yield value.replace("\n", "\r\n")
        # Numbered or quoted line by line, a key would otherwise slip through.
        yield from (line for line in value.split() if _KEY_LINE.fullmatch(line))


def _base64(data: bytes) -> Iterator[str]:
    from base64 import b64encode

    whole = b64encode(data).decode()
    yield whole
    yield whole.rstrip("=")
    for before, shared in enumerate(_SHARED):
        text = b64encode(bytes(before) + data).decode()
        yield text[shared : (before + len(data)) * 8 // 6]
