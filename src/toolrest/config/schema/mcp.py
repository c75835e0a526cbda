"""The settings for MCP servers."""

from __future__ import annotations

from typing import Annotated, Literal

from toolrest.config.schema.table import Table
from toolrest.config.schema.types import (
    Arguments,
    Patterns,
    Range,
    Seconds,
    Text,
    Texts,
    ToolApproval,
)


class McpServerTool(Table):
    """`[mcp_servers.NAME.tools.TOOL]`: how one tool of the server is approved."""

    approval_mode: ToolApproval = "auto"


class McpServer(Table):
    """`[mcp_servers.NAME]`: a program that speaks MCP (`command`), or an address (`url`).

    A layer may set only a part of it; the whole is checked when it is used.
    """

    type: Literal["stdio", "streamable_http", "http", "sse"] | None = None
    command: Text | None = None
    args: Arguments = ()
    env: dict[str, str] = {}
    env_vars: Texts = ()
    cwd: Text | None = None
    url: Text | None = None
    headers: dict[str, str] = {}
    http_headers: dict[str, str] = {}
    env_http_headers: dict[str, str] = {}
    bearer_token_env_var: Text | None = None
    scopes: Texts = ()
    oauth_client_id: Text | None = None
    oauth_client_secret_env_var: Text | None = None
    enabled: bool = True
    required: bool = False
    trusted: bool = False
    enabled_tools: Patterns | None = None
    disabled_tools: Patterns = ()
    startup_timeout_sec: Seconds = 10.0
    tool_timeout_sec: Seconds = 60.0
    tool_timeout_max_sec: Seconds = 600.0
    default_tools_approval_mode: ToolApproval = "auto"
    tools: dict[str, McpServerTool] = {}
    supports_parallel_tool_calls: bool = False
    always_load: bool = False
    result_view: Literal["auto", "content", "structured", "both"] = "auto"
    network: bool | Texts = True
    writable_roots: Texts = ()


class McpOptions(Table):
    """`[mcp]`: settings of all servers. `tool_budget` is a share of the model's window."""

    wait: bool = True
    tool_budget: Annotated[float, Range(0, 1)] = 0.10
    oauth_credentials_store: Literal["auto", "keyring", "file"] = "auto"
    oauth_callback_port: Annotated[int, Range(1, 65535)] | None = None
