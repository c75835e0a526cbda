"""`python -m toolrest.patch` is the `apply_patch` command."""

from __future__ import annotations

from toolrest.patch.command import script

script()
