"""Which built-in tools a session offers: settings and the model's family decide."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolrest.gate.tool import Tool

if TYPE_CHECKING:
    from toolrest.config.families import Family, PatchForm, ShellForm
    from toolrest.config.model import Tools
    from toolrest.tools.commands import Surroundings

FILE_TOOLS = ("read_file", "list_dir", "grep_files")


def built_in(settings: Tools, family: Family, surroundings: Surroundings) -> list[Tool]:
    """The built-in tools for these settings; a tool that is switched off has no handler."""
    from toolrest.tools.list_dir import ListDir
    from toolrest.tools.read_file import ReadFile
    from toolrest.tools.update_plan import UpdatePlan

    wanted = FILE_TOOLS if settings.experimental_tools is None else settings.experimental_tools
    tools: list[Tool] = [UpdatePlan()] if settings.include_plan_tool else []
    tools += [tool for tool in (ListDir(), ReadFile()) if tool.name in wanted]
    if settings.include_apply_patch_tool:
        from toolrest.tools.apply_patch import ApplyPatch

        tools.append(ApplyPatch(_patch_form(family)))
    form = family.shell if settings.shell_type == "family" else settings.shell_type
    return [*tools, *_shell_tools(form, surroundings)]


def _patch_form(family: Family) -> PatchForm:
    if family.patch == "freeform" and family.prefer_function_tools:
        return "function"
    return family.patch


def _shell_tools(form: ShellForm, surroundings: Surroundings) -> list[Tool]:
    """The form that the model knows; the older ones have handlers whatever is offered."""
    if form == "disabled":
        return []
    from toolrest.tools.shell import LocalShell, Shell
    from toolrest.tools.shell_command import ShellCommand

    array = LocalShell if form == "local_shell" else Shell
    tools: list[Tool] = [
        array(surroundings, offered=form in ("shell", "local_shell")),
        ShellCommand(surroundings, offered=form == "shell_command"),
    ]
    if form == "unified_exec":
        from toolrest.tools.exec_command import ExecCommand
        from toolrest.tools.write_stdin import WriteStdin

        tools += [ExecCommand(surroundings), WriteStdin()]
    return tools


def switched_on(tools: Iterable[Tool], settings: Tools) -> list[Tool]:
    """What `[tools] enabled` and `disabled` leave, of any tool; `disabled` wins."""
    return [tool for tool in tools if is_on(tool.name, settings)]


def is_on(name: str, settings: Tools) -> bool:
    """Whether a tool of this name may be offered."""
    if any(fnmatchcase(name, pattern) for pattern in settings.disabled):
        return False
    enabled = settings.enabled
    return enabled is None or any(fnmatchcase(name, pattern) for pattern in enabled)
