"""Addresses of stores and repositories as they are shown: names and passwords are left out."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)[^\s/?#'\"]+@")


def without_users(text: str) -> str:
    """A text in whose addresses (`sftp://user:password@host/…`) no user and no password is."""
    return _USER.sub("", text)
