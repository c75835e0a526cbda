"""The settings of a session: every layer found, checked and merged into one typed value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolrest.config.config import (
    UNTRUSTED_DEFAULT,
    Config,
    PathLike,
    Surface,
    with_model,
)
from toolrest.config.files import (
    config_file,
    read_toml,
    real_path,
    toolrest_home,
    unsafe_owner,
    user_home,
)
from toolrest.config.keys import flatten, nest, toml_text
from toolrest.config.layer_check import Layer, LayerSource, check_layer
from toolrest.config.layers import environment_layer, flags_layer, merge, override_layer
from toolrest.config.schema.families import UNKNOWN, no_family
from toolrest.config.schema.providers import split_model
from toolrest.config.schema.settings import Settings
from toolrest.config.schema.types import TrustLevel
from toolrest.config.schema.validate import check_table
from toolrest.config.trust import git_root, nearest_level
from toolrest.errors import ConfigError

PROJECT_FILE = os.path.join(".toolrest", "config.toml")


def load(
    *,
    home: PathLike | None = None,
    workspace: PathLike | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
    profile: str | None = None,
    env: Mapping[str, str] | None = None,
    surface: Surface = "library",
) -> Config:
    """Load the settings for a workspace, from every layer: `load_config(workspace=".")`.

    Highest first: `overrides` (`-c`), `flags`, the environment, the profile, the files of a
    trusted project, the user's file, defaults. Lists that forbid or hide are joined over all
    layers, and of ceilings the lowest counts. The files of an untrusted project are not even read.
    """
    env = os.environ if env is None else env
    start = _Start(toolrest_home(home, env), user_home(env), _real(workspace), surface)
    user = _file_layer(start.place("user", config_file(start.home)))
    top = [
        environment_layer(env),
        flags_layer(flags or {}, start.place("flags", "flag")),
        override_layer(overrides, start.place("override", "-c")),
    ]
    level = nearest_level(start.workspace, _projects(user)) if start.workspace else None
    below = [_default_layer(start, level), *([user] if user else [])]
    project, warnings = _project_layers(start, level, user, below)
    chosen = profile or top[-1].values.get(("profile",)) or _value(user, "profile")
    profiles = _profile_layers(start, chosen, user) if chosen else []
    if profile:
        top.append(Layer("flags", "--profile", {("profile",): profile}))
    layers = [*below, *project, *profiles, *top]
    folders, more = _rules_folders(start, level, user)
    config = _assemble(start, level, layers, [*warnings, *more], project)
    config.from_files, config.rules_folders = True, folders
    return config


load_config = load


def default_config(
    settings: Mapping[str, Any] | None = None,
    *,
    workspace: PathLike | None = None,
    home: PathLike | None = None,
    env: Mapping[str, str] | None = None,
    surface: Surface = "library",
) -> Config:
    """Defaults, the environment's variables and the given settings; no file is read."""
    env = os.environ if env is None else env
    start = _Start(toolrest_home(home, env), user_home(env), _real(workspace), surface)
    layers = [_default_layer(start, None), environment_layer(env)]
    if settings:
        layers.append(flags_layer(settings, start.place("flags", "argument")))
    return _assemble(start, None, layers, (), ())


class _Start(NamedTuple):
    home: str
    user_home: str
    workspace: str | None
    surface: Surface

    def place(self, kind: Any, label: str, folder: str | None = None) -> LayerSource:
        if kind in ("flags", "override"):
            folder = self.workspace or os.getcwd()
        return LayerSource(kind, label, folder, self.user_home)


def _real(path: PathLike | None) -> str | None:
    return None if path is None else real_path(path)


def _value(layer: Layer | None, *key: str) -> Any:
    return layer.values.get(key) if layer else None


def _default_layer(start: _Start, level: TrustLevel | None) -> Layer:
    if start.surface == "library":
        return Layer("default", "default", {("sandbox_mode",): "workspace-write"})
    if level == "trusted":
        return Layer(
            "default", "default in a trusted folder", {("sandbox_mode",): "workspace-write"}
        )
    return Layer("default", UNTRUSTED_DEFAULT, {("sandbox_mode",): "read-only"})


def _file_layer(place: LayerSource) -> Layer | None:
    raw = read_toml(place.label)
    return None if raw is None else check_layer(raw, place)


def _projects(user: Layer | None) -> dict[str, TrustLevel]:
    if user is None:
        return {}
    return {key[1]: level for key, level in user.values.items() if key[0] == "projects"}


def _project_folders(start: _Start) -> Iterator[str]:
    """The project's folders, outermost first, without one whose `.toolrest` is the user's home."""
    workspace = start.workspace
    if workspace is None:
        return
    own = os.path.realpath(start.home)
    for folder in dict.fromkeys((git_root(workspace) or workspace, workspace)):
        if os.path.realpath(os.path.join(folder, ".toolrest")) != own:
            yield folder


def _project_layers(
    start: _Start, level: TrustLevel | None, user: Layer | None, below: Sequence[Layer]
) -> tuple[list[Layer], list[str]]:
    layers: list[Layer] = []
    warnings: list[str] = []
    for folder in _project_folders(start):
        file = os.path.join(folder, PROJECT_FILE)
        if not os.path.lexists(file):
            continue
        if level != "trusted" or not _speaks(folder, user):
            warnings.append(_ignored(file, folder))
            continue
        layer = _project_layer(start, folder, file, [*below, *layers])
        if layer is not None:
            layers.append(layer)
    return layers, warnings


def _speaks(folder: str, user: Layer | None) -> bool:
    """Whether the files of one of the project's folders count.

    In a folder below the one that was trusted they may be a command's: no sandbox keeps the name
    from it there. So that folder needs an entry of its own.
    """
    projects = _projects(user)
    if git_root(folder) in (None, folder):
        return nearest_level(folder, projects) == "trusted"
    return projects.get(folder) == "trusted"


def _ignored(path: str, folder: str) -> str:
    return (
        f"{path} is ignored because {folder} is not itself trusted; "
        f"read it, then run: toolrest trust {folder}"
    )


def _rules_folders(
    start: _Start, level: TrustLevel | None, user: Layer | None
) -> tuple[tuple[str, ...], list[str]]:
    """The `.toolrest` folders of trusted projects that have rules, and warnings of others."""
    found: list[str] = []
    warnings: list[str] = []
    for folder in _project_folders(start):
        own = os.path.join(folder, os.path.dirname(PROJECT_FILE))
        if not os.path.isdir(os.path.join(own, "rules")):
            continue
        if level == "trusted" and _speaks(folder, user):
            found.append(own)
        else:
            warnings.append(_ignored(f"{own}/rules", folder))
    return tuple(found), warnings


def _project_layer(start: _Start, folder: str, file: str, below: Sequence[Layer]) -> Layer | None:
    from toolrest.config.project import check_project

    if os.path.realpath(file) != file:
        raise ConfigError(f"{file}: a project's file may not be reached through a symlink")
    layer = _file_layer(start.place("project", file, folder))
    if layer is not None:
        base = flatten(Settings().as_dict()) | merge(below).values
        check_project(layer, base, start.workspace or folder)
    return layer


def _profile_layers(start: _Start, name: str, user: Layer | None) -> list[Layer]:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise ConfigError(f"profile {name!r}: a name has only letters, digits, _ and -")
    file = os.path.join(start.home, f"{name}.config.toml")
    from_file = _file_layer(start.place("profile", file))
    layers = [from_file] if from_file else []
    if user and name in user.profiles:
        label = f"profile {name} ({config_file(start.home)})"
        layers.insert(0, check_layer(user.profiles[name], start.place("profile", label)))
    if not layers:
        raise ConfigError(
            f"there is no profile {name!r}: neither [profiles.{name}] in "
            f"{config_file(start.home)} nor the file {file}"
        )
    return layers


def _assemble(
    start: _Start,
    level: TrustLevel | None,
    layers: Sequence[Layer],
    warnings: Sequence[str],
    project: Sequence[Layer],
) -> Config:
    merged = merge(layers)
    settings = check_table(Settings, nest(merged.values))
    _refuse_approving_project(settings, project)
    _refuse_project_that_names_a_provider(settings, project)
    sources = {key: merged.sources[key] for key in merged.values}
    if settings.sandbox_policy == "chroot" and settings.sandbox.rootfs is None:
        raise ConfigError(
            f'{sources["sandbox_policy",]}: sandbox_policy = "chroot" needs sandbox.rootfs, the '
            "folder of a root file system"
        )
    files = tuple(layer.label for layer in layers if layer.kind in ("user", "project"))
    notes = [*warnings, *merged.warnings, *_loose_files(layers)]
    config = Config(settings, start.home, start.workspace, level, (), files, sources)
    for name, role in settings.agents.roles.items():
        if role.model:  # Only checked: it counts when the role is used.
            with_model(config, role.model, name)
    if settings.model:
        config = with_model(config, settings.model, config.source("model"))
    family = config.family  # Evaluated now, so that an invalid family fails at the start.
    model = config.value.model
    if model and not settings.model_family and family.name == UNKNOWN.name:
        notes.append(no_family(model))
    config.warnings = tuple(notes)
    return config


def _refuse_approving_project(settings: Settings, project: Sequence[Layer]) -> None:
    """Refuse a project's `approval_policy` with `on_ask = "allow"`, which approves every ask."""
    for layer in project:
        if settings.on_ask == "allow" and ("approval_policy",) in layer.values:
            raise ConfigError(
                f"{layer.label}: a project's file may not set approval_policy while "
                'on_ask = "allow" approves every ask'
            )


def _refuse_project_that_names_a_provider(settings: Settings, project: Sequence[Layer]) -> None:
    for layer in project:
        model = layer.values.get(("model",), "")
        if split_model(model, settings.model_providers, provider_is_set=True).provider:
            raise ConfigError(
                f"{layer.label}: a project's file may not set model = {toml_text(model)}: "
                "the provider is yours to choose"
            )


def _loose_files(layers: Sequence[Layer]) -> list[str]:
    users = [layer.label for layer in layers if layer.kind == "user"]
    return [warning for file in users if (warning := unsafe_owner(file))]
