"""Settings: TOML layers, profiles, trust, and the source of every value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.lazy_names import LazyNames

if TYPE_CHECKING:
    from toolrest.config.codex import import_codex as import_codex
    from toolrest.config.codex import import_memo as import_memo
    from toolrest.config.config import Config as Config
    from toolrest.config.config import SettingRow as SettingRow
    from toolrest.config.loader import default_config as default_config
    from toolrest.config.loader import load as load
    from toolrest.config.schema.families import Family as Family
    from toolrest.config.schema.families import family_for as family_for
    from toolrest.config.schema.settings import Settings as Settings
    from toolrest.config.write import set_value as set_value

# Lower rooms take single names from here (the list of secret names, say) and must not pay for all
# the settings, so nothing is loaded before it is asked for. The same holds inside: what reads and
# writes TOML, checks a layer or knows the models is imported by the function that needs it.
_NAMES = LazyNames(
    __name__,
    {
        "toolrest.config.codex": "import_codex import_memo",
        "toolrest.config.config": "Config SettingRow",
        "toolrest.config.loader": "default_config load",
        "toolrest.config.schema.families": "Family family_for",
        "toolrest.config.schema.settings": "Settings",
        "toolrest.config.write": "set_value",
    },
)
__all__ = _NAMES.names()
__getattr__ = _NAMES.get


def __dir__() -> list[str]:
    return __all__
