"""The options of a session's virtual machine."""

from __future__ import annotations

from msgspec import Struct, field

from toolrest.config.schema.security import VmSettings


class VmOptions(Struct, frozen=True):
    """The user's settings, and the folder of what is prepared."""

    folder: str
    settings: VmSettings = field(default_factory=VmSettings)
