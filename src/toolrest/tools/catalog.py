"""Which built-in tools a session offers: settings and the model's family decide.

Which built-in tools a model with a small window can do without (R-64).

What stays is enough to read, search, change and run; together it is described in less than 2,000
tokens. The others still answer when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from toolrest.gate.tool.registry import LazyTool
from toolrest.gate.tool.tool import Tool

if TYPE_CHECKING:
    from toolrest.config.schema.families import Family, PatchForm, ShellForm
    from toolrest.config.schema.tools import Tools
    from toolrest.tools.shell.command_tool import SandboxDescription
    from toolrest.tools.web.web_search import SearchOptions
    from toolrest.tools.web.webfetch import WebOptions


FILE_TOOLS = ("read_file", "list_dir", "grep_files")


def built_in(
    settings: Tools,
    family: Family,
    surroundings: Callable[[], SandboxDescription],
    *,
    asks: bool = False,
) -> list[Tool]:
    """The built-in tools for these settings; a tool that is switched off has no handler."""
    wanted = FILE_TOOLS if settings.experimental_tools is None else settings.experimental_tools
    tools: list[Tool] = []
    if settings.include_plan_tool:
        tools.append(LazyTool("update_plan", "plan", _update_plan))
    tools.append(_request_user_input(asks))
    if "list_dir" in wanted:
        tools.append(LazyTool("list_dir", "files", _list_dir))
    if "read_file" in wanted:
        images = settings.include_view_image_tool
        tools.append(LazyTool("read_file", "files", lambda: _read_file(images=images)))
    if "grep_files" in wanted:
        tools.append(LazyTool("grep_files", "files", _grep_files))
        tools.append(LazyTool("glob_files", "files", _glob_files))
    if settings.include_apply_patch_tool:
        tools.append(LazyTool("apply_patch", "patch", lambda: _apply_patch(_patch_form(family))))
    tools += _edit_tools(settings, family)
    if settings.include_view_image_tool:
        tools.append(LazyTool("view_image", "images", _view_image))
    if settings.include_memory_tool:
        tools.append(LazyTool("get_memory", "memory", lambda: _memory("GetMemory")))
        tools.append(LazyTool("save_memory", "memory", lambda: _memory("SaveMemory")))
    if settings.include_collab_tools:
        tools += collab_tools({}, offered=False)
    tools += _mcp_resources()
    form = family.shell if settings.shell_type == "family" else settings.shell_type
    return [*tools, *_shell_tools(form, surroundings)]


def _mcp_resources() -> list[Tool]:
    def load(name: str) -> Tool:
        from toolrest.tools.mcp import resources as mcp_resources

        made: Tool = getattr(mcp_resources, name)()
        return made

    return [
        LazyTool("list_mcp_resources", "mcp_resources", lambda: load("ListMcpResources")),
        LazyTool(
            "list_mcp_resource_templates",
            "mcp_resources",
            lambda: load("ListMcpResourceTemplates"),
        ),
        LazyTool("read_mcp_resource", "mcp_resources", lambda: load("ReadMcpResource")),
    ]


def web_tools(
    web: Callable[[], WebOptions], search: Callable[[], SearchOptions] | None
) -> list[Tool]:
    """Tools that reach the web from our own process."""

    def webfetch() -> Tool:
        from toolrest.tools.web.webfetch import WebFetch

        return WebFetch(web())

    tools: list[Tool] = [LazyTool("webfetch", "web", webfetch)]
    if search is not None:
        options = search

        def web_search() -> Tool:
            from toolrest.tools.web.web_search import WebSearch

            return WebSearch(options())

        tools.append(LazyTool("web_search", "web", web_search))
    return tools


def _update_plan() -> Tool:
    from toolrest.tools.update_plan import UpdatePlan

    return UpdatePlan()


def _request_user_input(asks: bool) -> Tool:
    """Models are told of it where somebody can answer."""

    def load() -> Tool:
        from toolrest.tools.request_user_input import RequestUserInputTool

        return RequestUserInputTool(offered=asks)

    return LazyTool("request_user_input", "plan", load, offered=asks)


def _list_dir() -> Tool:
    from toolrest.tools.files.list_dir import ListDir

    return ListDir()


def _read_file(*, images: bool) -> Tool:
    from toolrest.tools.files.read_file import ReadFile

    return ReadFile(images=images)


def _view_image() -> Tool:
    from toolrest.tools.images.view_image import ViewImage

    return ViewImage()


def _grep_files() -> Tool:
    from toolrest.tools.files.grep_files import GrepFiles

    return GrepFiles()


def _glob_files() -> Tool:
    from toolrest.tools.files.glob_files import GlobFiles

    return GlobFiles()


def _memory(kind: str) -> Tool:
    from toolrest.tools import memory

    made: Tool = getattr(memory, kind)()
    return made


def _apply_patch(form: PatchForm) -> Tool:
    from toolrest.tools.files.apply_patch import ApplyPatch

    return ApplyPatch(form)


def _edit_tools(settings: Tools, family: Family) -> list[Tool]:
    """Always with a handler. Models get apply_patch; where its form cannot make files, this too."""
    named = settings.enabled or ()
    writes = family.patch == "string_edits" or "write_file" in named
    edits = "edit_file" in named

    def edit() -> Tool:
        from toolrest.tools.files.edit_file import EditFile

        return EditFile(offered=edits)

    def write() -> Tool:
        from toolrest.tools.files.write_file import WriteFile

        return WriteFile(offered=writes)

    return [
        LazyTool("edit_file", "patch", edit, offered=edits),
        LazyTool("write_file", "patch", write, offered=writes),
    ]


def _patch_form(family: Family) -> PatchForm:
    if family.patch == "freeform" and family.prefer_function_tools:
        return "function"
    return family.patch


def _shell_tools(form: ShellForm, surroundings: Callable[[], SandboxDescription]) -> list[Tool]:
    """The form that the model knows; the older ones have handlers whatever is offered."""
    if form == "disabled":
        return []

    def array() -> Tool:
        from toolrest.tools.shell.shell import LocalShellTool, ShellTool

        kind = LocalShellTool if form == "local_shell" else ShellTool
        return kind(surroundings(), offered=form in ("shell", "local_shell"))

    def line() -> Tool:
        from toolrest.tools.shell.shell_command import ShellCommand

        return ShellCommand(surroundings(), offered=form == "shell_command")

    names = ("local_shell", "shell") if form == "local_shell" else ("shell", "local_shell")
    tools: list[Tool] = [
        LazyTool(
            names[0],
            "shell",
            array,
            aliases=("container.exec", names[1]),
            offered=form in ("shell", "local_shell"),
        ),
        LazyTool("shell_command", "shell", line, offered=form == "shell_command"),
    ]
    if form == "unified_exec":
        tools.append(LazyTool("exec_command", "shell", lambda: _exec_command(surroundings)))
        tools.append(LazyTool("write_stdin", "shell", _write_stdin))
    return tools


def _exec_command(surroundings: Callable[[], SandboxDescription]) -> Tool:
    from toolrest.tools.shell.exec_command import ExecCommand

    return ExecCommand(surroundings())


def _write_stdin() -> Tool:
    from toolrest.tools.shell.write_stdin import WriteStdin

    return WriteStdin()


def collab_tools(roles: Mapping[str, str], *, offered: bool) -> list[Tool]:
    """The tools of sub-agents; models are told of them where there is somebody to run one."""

    def spawn() -> Tool:
        from toolrest.tools.agents.collab import SpawnAgent

        tool = SpawnAgent(roles)
        tool.offered = offered
        return tool

    def named(name: str) -> Callable[[], Tool]:
        def make() -> Tool:
            from toolrest.tools.agents import collab

            tool: Tool = getattr(collab, name)()
            tool.offered = offered
            return tool

        return make

    rest = {
        "send_input": "SendInput",
        "resume_agent": "ResumeAgent",
        "wait": "Wait",
        "close_agent": "CloseAgent",
    }
    return [
        LazyTool("spawn_agent", "agents", spawn, offered=offered),
        *(LazyTool(name, "agents", named(kind), offered=offered) for name, kind in rest.items()),
    ]


def switched_on(tools: Iterable[Tool], settings: Tools) -> list[Tool]:
    """What `[tools] enabled` and `disabled` leave, of any tool; `disabled` wins."""
    return [tool for tool in tools if is_on(tool.name, settings)]


def is_on(name: str, settings: Tools, other: str = "") -> bool:
    """Whether a tool of this name may be offered; `other` is a second name that it goes by."""
    names = (name, other) if other else (name,)
    if any(fnmatchcase(each, pattern) for each in names for pattern in settings.disabled):
        return False
    enabled = settings.enabled
    return enabled is None or any(fnmatchcase(n, pattern) for n in names for pattern in enabled)


SMALL_WINDOW: Final = 16_384
"""Models with a window of at most so many tokens get the small set without being asked to."""

SPARED: Final = frozenset(
    {
        "close_agent",
        "get_memory",
        "glob_files",
        "list_mcp_resource_templates",
        "list_mcp_resources",
        "read_mcp_resource",
        "request_user_input",
        "resume_agent",
        "save_memory",
        "send_input",
        "spawn_agent",
        "update_plan",
        "view_image",
        "wait",
        "web_search",
        "webfetch",
    }
)
