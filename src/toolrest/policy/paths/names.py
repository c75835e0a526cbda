"""Comparison of path names: folding and containment for path rules.

Deny rules compare folded text, so that a case-insensitive file system or an invisible character
opens no side door. Allow rules compare exact text.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable

# HFS+ drops these when it looks a name up, so `.g<U+200C>it` would be `.git` there.
_IGNORED = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)


def fold(path: str) -> str:
    """The form in which deny rules compare paths."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", path.translate(_IGNORED)).casefold()


def inside(path: str, root: str) -> bool:
    """True when `path` is `root` or beneath it; `/root-evil` is not inside `/root`."""
    return path == root or path.startswith(root if root.endswith("/") else root + "/")


def prefixes(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths with one closing slash each, for `(path + "/").startswith(...)`."""
    return tuple(path if path.endswith("/") else path + "/" for path in paths)


def unique(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths in order, each once."""
    return tuple(dict.fromkeys(paths))


def both_forms(path: str) -> tuple[str, ...]:
    """A path as it is written and as it is once its symlinks are followed."""
    return unique((os.path.normpath(path), os.path.realpath(path)))
