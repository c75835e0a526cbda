"""The user's own tools, from installed packages' entry points and from `$TOOLREST_HOME/tools`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence

from toolrest.gate.tool.decorator import as_tool
from toolrest.gate.tool.tool import Tool
from toolrest.policy.paths.imports import may_be_written
from toolrest.policy.paths.names import inside

ENTRY_POINTS = "toolrest.tools"


def user_tools(home: str, problems: list[str]) -> Iterator[Tool]:
    """The user's own tools; each that cannot be used adds a message to `problems`."""
    yield from _from_entry_points(problems)
    yield from _from_files(home, problems)


def _from_entry_points(problems: list[str]) -> Iterator[Tool]:
    folders = [folder for folder in sys.path if not may_be_written(folder)]
    if not _may_have_entry_points(folders):
        return
    from importlib.metadata import distributions

    installed = {found.name: found for found in reversed([*distributions(path=folders)])}
    points = [
        point
        for package in installed.values()
        for point in package.entry_points.select(group=ENTRY_POINTS)
    ]
    for point in sorted(points, key=lambda p: p.name):
        try:
            yield as_tool(point.load())
        except Exception as error:
            problems.append(f"entry point {point.name} ({point.value}) is left out: {error}")


def _may_have_entry_points(folders: Sequence[str]) -> bool:
    """Whether a file of an installed package names our group.

    Every command asks this when it starts, and importlib.metadata takes twenty times as long.
    """
    for folder in folders:
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return True  # an archive, or something else that only a finder can look into
        infos = (name for name in names if name.endswith((".dist-info", ".egg-info")))
        if any(_names_tools(os.path.join(folder, info, "entry_points.txt")) for info in infos):
            return True
    return False


def _names_tools(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return ENTRY_POINTS.encode() in file.read()
    except OSError:
        return False


def _from_files(home: str, problems: list[str]) -> Iterator[Tool]:
    folder = os.path.join(home, "tools")
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = os.path.join(folder, name)
        try:
            refuse_if_others_can_write(folder, home)
            refuse_if_others_can_write(path, home)
            yield from _tools_in(path)
        except Exception as error:
            problems.append(f"{path} is left out: {type(error).__name__}: {error}")


def refuse_if_others_can_write(path: str, home: str) -> None:
    """Code that another user or a tool can change is not loaded.

    Tools never write to our home, also where that lies in a root.
    """
    real = os.path.realpath(path)
    if not inside(real, os.path.realpath(home)) and may_be_written(real):
        raise PermissionError(f"tools can write what {path} leads to")
    status = os.stat(path)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"others can write {path}: run `chmod go-w {path}`")


def _tools_in(path: str) -> list[Tool]:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"toolrest_user_{os.path.basename(path)[:-3]}", path)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, Tool)]
