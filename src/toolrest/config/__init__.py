"""Settings: TOML layers, profiles, trust, and the source of every value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolrest.config.codex import import_codex as import_codex
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
_HOMES = {
    "Config": "toolrest.config.config",
    "Family": "toolrest.config.schema.families",
    "SettingRow": "toolrest.config.config",
    "Settings": "toolrest.config.schema.settings",
    "default_config": "toolrest.config.loader",
    "family_for": "toolrest.config.schema.families",
    "import_codex": "toolrest.config.codex",
    "load": "toolrest.config.loader",
    "set_value": "toolrest.config.write",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'toolrest.config' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
