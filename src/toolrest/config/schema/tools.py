"""The settings for tools, sub-agents among them."""

from __future__ import annotations

from typing import Annotated, Literal

from toolrest.config.schema.table import Table
from toolrest.config.schema.types import (
    Approval,
    Chars,
    Count,
    FileTool,
    Patterns,
    Range,
    SandboxMode,
    Seconds,
    Shell,
    Size,
    Text,
    Texts,
)


class Tools(Table):
    """`[tools]`: which tools are offered and in which form.

    `enabled` unset means the default set; else only what matches it. `disabled` wins.
    `small_context` offers only the few that a small window has room for; unset, the model's
    window decides.
    """

    enabled: Patterns | None = None
    disabled: Patterns = ()
    shell_type: Shell = "family"
    experimental_tools: tuple[FileTool, ...] | None = None
    include_plan_tool: bool = True
    include_apply_patch_tool: bool = True
    include_view_image_tool: bool = True
    include_collab_tools: bool = True
    include_memory_tool: bool = True
    tools_web_search_request: bool = False
    small_context: bool | None = None
    limits: dict[str, Chars] = {}


class ToolSecurity(Table):
    """`[tool_security]`: ceilings and the audit log. Sizes are bytes or `"100MB"`."""

    max_file_access_size: Size = 100_000_000
    max_shell_commands_per_session: Count | None = None
    allowed_network_domains: Texts | None = None
    ask_after_external_content: bool = True
    audit_log_enabled: bool = True
    audit_log_path: Text | None = None


class AuditSettings(Table):
    """`[audit]`: whether a call that the audit log cannot record is not run."""

    required: bool = False


class UserInput(Table):
    """`[user_input]`: answers to a model's questions, by id (or glob), where no user can answer."""

    answers: dict[str, str] = {}


class Web(Table):
    """`[web]`: how `webfetch` reads pages."""

    robots: bool = True
    max_size: Size = 5_000_000
    timeout_sec: Seconds = 30.0


class WebUi(Table):
    """`[web_ui]`: the browser page of `toolrest web`."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Range(0, 65535)] = 0
    read_only: bool = False
    control: bool = True
    idle_minutes: Annotated[int, Range(1, 10_080)] = 60
    batch: Text | None = None


class SearchSettings(Table):
    """`[search]`: who answers `web_search` where the model's own server does not.

    `url` is a SearXNG instance, or another address of the service; the key of Brave and Tavily is
    in the variable that `key_env` names. Results of `blocked_domains`, and with `allowed_domains`
    of all others, are not shown.
    """

    backend: Literal["searxng", "brave", "tavily"] | None = None
    url: Text | None = None
    key_env: Text | None = None
    allowed_domains: Texts = ()
    blocked_domains: Texts = ()
    max_results: Annotated[int, Range(1, 50)] = 10


class CheckpointSettings(Table):
    """`[checkpoints]`: what is saved before a turn changes the workspace, for `toolrest undo`.

    An untracked file over `max_file_size` is left out, and those past `max_size` in all.
    """

    enabled: bool = True
    max_file_size: Size = 100_000_000
    max_size: Size = 2_000_000_000


class AgentRole(Table):
    """`[agents.roles.NAME]`: a kind of sub-agent. It narrows the session's rights, never widens.

    `enabled` and `disabled` are names or globs of tools.
    """

    description: Text | None = None
    instructions: Text | None = None
    model: Text | None = None
    reasoning_effort: Text | None = None
    sandbox_mode: SandboxMode | None = None
    approval_policy: Approval | None = None
    enabled: Patterns | None = None
    disabled: Patterns = ()
    max_seconds: Seconds | None = None
    max_turns: Count | None = None
    max_tool_calls: Count | None = None
    max_tokens: Count | None = None


class AgentSettings(Table):
    """`[agents]`: how many sub-agents may work at once, how deep they may nest, and how long.

    The limits hold for each sub-agent's task; a role may set its own.
    """

    max_agents: Count = 4
    max_depth: Annotated[int, Range(0, 16)] = 1
    max_seconds: Seconds | None = 1800.0
    max_turns: Count | None = None
    max_tool_calls: Count | None = None
    max_tokens: Count | None = None
    roles: dict[str, AgentRole] = {}


class Otel(Table):
    """`[otel]`: tracing; without the opentelemetry package it does nothing."""

    enabled: bool = True
