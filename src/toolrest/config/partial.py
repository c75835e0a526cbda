"""Settings from a table, for the price of what the table has.

Building the validators of every setting there is takes longer than all the rest of a command's
start. No setting's check looks at another, so those that are not set need none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import create_model

from toolrest.config.model import Settings, Table


def check(table: Mapping[str, Any]) -> Table:
    """The settings of a table and no others; ValidationError as `Settings` itself would raise."""
    known = Settings.model_fields
    present: dict[str, Any] = {
        name: (known[name].annotation, known[name]) for name in table if name in known
    }
    partial: type[Table] = create_model("Settings", __base__=Table, **present)
    return partial.model_validate(table)


def settings_of(table: Mapping[str, Any]) -> Settings:
    """All settings: those of the table, checked, and the defaults of the others."""
    checked = check(table)
    values = {name: getattr(checked, name) for name in type(checked).model_fields}
    return Settings.model_construct(checked.model_fields_set, **values)
