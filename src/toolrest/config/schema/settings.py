"""The settings: their types and defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from toolrest.config.schema.chat import ChatSettings
from toolrest.config.schema.mcp import McpOptions, McpServer
from toolrest.config.schema.providers import FamilyRow, ModelPrice, ModelProvider
from toolrest.config.schema.security import (
    ApprovalSettings,
    CommandLimits,
    CommandRules,
    HookSettings,
    PathSettings,
    Redact,
    SandboxSettings,
    SandboxWorkspaceWrite,
    ShellEnvironmentPolicy,
)
from toolrest.config.schema.table import Table
from toolrest.config.schema.tools import (
    AgentSettings,
    AuditSettings,
    CheckpointSettings,
    Otel,
    SearchSettings,
    Tools,
    ToolSecurity,
    UserInput,
    Web,
    WebUi,
)
from toolrest.config.schema.types import (
    Approval,
    Chars,
    Count,
    Encoding,
    FileNames,
    LongText,
    OnAsk,
    Patterns,
    Range,
    SandboxMode,
    Seconds,
    Text,
    Texts,
    TrustLevel,
)


class Project(Table):
    """`[projects."PATH"]`: whether the files of that folder may configure Toolrest."""

    trust_level: TrustLevel


class Settings(Table):
    """Every setting that can be honoured today, with its default."""

    model: Text | None = None
    model_family: Text | None = None
    model_provider: Text = "openai"
    model_providers: dict[str, ModelProvider] = {}
    model_prices: dict[str, ModelPrice] = {}
    model_context_window: Count | None = None
    model_max_output_tokens: Count | None = None
    model_reasoning_effort: Text | None = None
    model_reasoning_summary: Literal["auto", "concise", "detailed", "none"] | None = None
    hide_agent_reasoning: bool = False
    show_raw_agent_reasoning: bool = False
    model_verbosity: Literal["low", "medium", "high"] | None = None
    model_auto_compact_token_limit: Count | None = None
    model_instructions_file: Text | None = None
    developer_instructions: LongText | None = None
    compact_prompt: LongText | None = None
    project_doc_max_bytes: Annotated[int, Range(0, 2**30)] = 32_768
    project_doc_fallback_filenames: FileNames = ()
    project_root_markers: FileNames = (".git",)
    max_turns: Count | None = None
    max_tool_calls: Count | None = None
    max_tokens: Count | None = None
    approval_policy: Approval = "on-request"
    on_ask: OnAsk = "deny"
    approvals: ApprovalSettings = ApprovalSettings()
    rules: CommandRules = CommandRules()
    sandbox_mode: SandboxMode = "workspace-write"
    sandbox_policy: Literal["docker", "vm", "chroot", "gvisor"] | None = None
    sandbox_workspace_write: SandboxWorkspaceWrite = SandboxWorkspaceWrite()
    sandbox_tmp: Literal["private", "host"] = "private"
    sandbox: SandboxSettings = SandboxSettings()
    limits: CommandLimits = CommandLimits()
    shell_environment_policy: ShellEnvironmentPolicy = ShellEnvironmentPolicy()
    read_roots: Texts | None = None
    hidden_paths: Patterns = ()
    paths: PathSettings = PathSettings()
    legacy_encoding: Encoding | None = None
    tool_output_token_limit: Count | None = None
    tool_result_max_chars: Chars | None = None
    tool_timeout_sec: Seconds = 600.0
    max_parallel_calls: Annotated[int, Range(1, 1024)] = 16
    max_calls_per_session: Count | None = None
    tools: Tools = Tools()
    tool_security: ToolSecurity = ToolSecurity()
    audit: AuditSettings = AuditSettings()
    user_input: UserInput = UserInput()
    hooks: HookSettings = HookSettings()
    notify: Texts = ()
    chat: ChatSettings = ChatSettings()

    web_search: Literal["disabled", "cached", "live"] | None = None
    web: Web = Web()
    web_ui: WebUi = WebUi()
    search: SearchSettings = SearchSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    redact: Redact = Redact()
    agents: AgentSettings = AgentSettings()
    otel: Otel = Otel()
    mcp_servers: dict[str, McpServer] = {}
    active_mcp_servers: Texts | None = None
    mcp: McpOptions = McpOptions()
    model_families: dict[str, FamilyRow] = {}
    projects: dict[str, Project] = {}
    profile: Text | None = None
    profiles: dict[str, dict[str, Any]] = {}
