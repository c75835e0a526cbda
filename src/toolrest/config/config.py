"""The merged settings: typed values, and the source of each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.config.files import config_file
from toolrest.config.keys import Key, flatten, format_key, looks_secret, parse_key, toml_text
from toolrest.config.layer_check import pattern_of, unknown_key
from toolrest.config.schema.aliases import ALIASES
from toolrest.config.schema.families import (
    Family,
    Truncation,
    family_for,
    family_named,
    user_families,
)
from toolrest.config.schema.providers import split_model
from toolrest.config.schema.settings import Settings
from toolrest.config.schema.types import TrustLevel
from toolrest.errors import ConfigError

Surface: TypeAlias = Literal["library", "cli"]
PathLike: TypeAlias = "str | os.PathLike[str]"
UNTRUSTED_DEFAULT = "default in an untrusted folder"
"""The source of a `sandbox_mode` that nobody chose."""


class SettingRow(NamedTuple):
    """One setting as `toolrest config show` prints it: `text` is TOML; no secret is in it."""

    key: str
    value: Any
    source: str
    text: str


class Config(Struct, eq=False, dict=True):
    """The settings of a session, and the source of each. `load_config` makes it."""

    value: Settings
    """The settings: `config.value.sandbox_mode`."""
    home: str
    """Toolrest's home folder."""
    workspace: str | None = None
    """The workspace; None before one is chosen."""
    trust_level: TrustLevel | None = None
    """What the user said about the workspace; None when they were not asked."""
    warnings: tuple[str, ...] = ()
    """Messages for the user about the settings."""
    files: tuple[str, ...] = ()
    """The settings files that were read."""
    sources: Mapping[Key, str] = field(default_factory=dict)
    """The source of each value by its key; those that are missing are defaults."""
    from_files: bool = False
    """Whether the user's files were read; only then do their rules and stored grants count."""
    rules_folders: tuple[str, ...] = ()
    """Folders of trusted projects whose rules files count, outermost first."""
    external: bool = False
    """Something else confines the session's programs. Only a host program can set this."""
    editor_servers: frozenset[str] = frozenset()
    """The MCP servers that an editor passed on: their start needs approval."""

    @property
    def trusted(self) -> bool:
        """True when the user has marked the workspace as trusted."""
        return self.trust_level == "trusted"

    @property
    def untrusted_folder(self) -> bool:
        """True when the session is read-only because the folder is not trusted, not by choice."""
        return self.source("sandbox_mode") == UNTRUSTED_DEFAULT

    @cached_property
    def family(self) -> Family:
        """The model's family, with `tool_output_token_limit` applied to its truncation."""
        rows = user_families(self.value.model_families)
        if self.value.model_family is None:
            family = family_for(self.value.model, rows)
        else:
            family = family_named(self.value.model_family, rows, "model_family")
        tokens = self.value.tool_output_token_limit
        if tokens is None:
            return family
        policy = family.truncation or Truncation("tokens", tokens)
        return family._replace(truncation=policy.limited_to(tokens))

    @property
    def file(self) -> str:
        """The user's settings file, whether or not it exists."""
        return config_file(self.home)

    @property
    def audit_place(self) -> tuple[str, str]:
        """Folder of the audit log, and the name of the one file that all sessions share.

        The name is empty where each session has a file of its own: without `audit_log_path`, and
        with one that ends in `/` or is a folder.
        """
        path = self.value.tool_security.audit_log_path or os.path.join(self.home, "audit", "")
        if path.endswith(os.sep) or os.path.isdir(path):
            return path.rstrip(os.sep) or os.sep, ""
        return os.path.split(path)

    def source(self, dotted: str) -> str:
        """Source of a setting's value: a file, a variable, a flag, or `default`."""
        key = parse_key(dotted)
        if key in self.sources:
            return self.sources[key]
        if len(key) == 1 and key[0] in Settings.__annotations__:
            return "default"
        return self.get(dotted).source

    def get(self, dotted: str) -> SettingRow:
        """One setting, by any of its spellings."""
        key = parse_key(dotted)
        if key in ALIASES:
            key = ALIASES[key]
        if key in self._leaves:
            return self._row(key, self._leaves[key])
        if pattern_of(key) is not None:
            raise ConfigError(
                f"{format_key(key)} is a table or is not set; `toolrest config show --all` lists "
                "the keys that have a value"
            )
        raise ConfigError(unknown_key(key))

    def rows(self) -> list[SettingRow]:
        """Every setting with its value and source."""
        return [self._row(key, value) for key, value in self._leaves.items()]

    @cached_property
    def _leaves(self) -> dict[Key, Any]:
        return flatten(self.value.as_dict())

    def _row(self, key: Key, value: Any) -> SettingRow:
        source = self.sources.get(key, "default")
        if value and looks_secret(key):
            hidden = f"({len(value)} hidden)" if isinstance(value, tuple) else "(hidden)"
            return SettingRow(format_key(key), hidden, source, hidden)
        return SettingRow(format_key(key), value, source, toml_text(value))


def with_model(config: Config, model: str, source: str) -> Config:
    """The settings for another model: its name, or PROVIDER:NAME."""
    is_set = config.source("model_provider") != "default"
    own = config.value.model_providers
    provider, name = split_model(model, own, provider_is_set=is_set)
    given = {"model": name} if provider is None else {"model": name, "model_provider": provider}
    sources = dict(config.sources) | {(key,): source for key in given}
    return replace(config, value=config.value.replace(**given), sources=sources)
