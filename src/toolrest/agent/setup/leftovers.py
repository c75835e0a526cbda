"""What sessions left that were killed with all their processes: placeholders, half of a patch."""

from __future__ import annotations

import os

from toolrest.config.files import patch_records, placeholder_records
from toolrest.process.helper import litter


def clear(home: str, workspace: str | None = None) -> list[str]:
    """Remove placeholders that no session uses, and take back the patches that were cut off.

    With a workspace, patches in it, above or below. Returns messages for the person, normally none.
    """
    litter.sweep(placeholder_records(home))
    records = patch_records(home)
    try:
        if not os.listdir(records):
            return []
    except OSError:
        return []
    # Normally there is nothing to be read.
    from toolrest.patch.recovery import take_back

    return take_back(records, workspace)
