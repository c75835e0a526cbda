"""What the operating system said, in the form that models know."""

from __future__ import annotations

import os


def os_words(error: OSError) -> str:
    """`No such file or directory (os error 2)`, without the path and Python's own form."""
    if error.errno is None:
        return str(error) or type(error).__name__
    return f"{os.strerror(error.errno)} (os error {error.errno})"
