"""Which settings there are, their types, their defaults and what each one does."""

# Without `from __future__ import annotations`: pydantic would compile each annotation by itself,
# which takes as long as all the rest of this module, whenever a command starts.

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from toolrest.config.families import PatchForm, ShellForm, TruncationMode
from toolrest.items import Wire

ApprovalPolicy: TypeAlias = Literal[
    "untrusted", "on-failure", "on-request", "never", "auto", "strict", "dangerous"
]
SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
OnAsk: TypeAlias = Literal["deny", "allow", "fail", "defer"]
TrustLevel: TypeAlias = Literal["trusted", "untrusted"]
FileTool: TypeAlias = Literal["read_file", "list_dir", "grep_files"]

APPROVAL_PRESETS = {"none": "never", "required": "strict", "sandbox": "on-failure"}
SHELL_SPELLINGS = {"default": "shell", "local": "local_shell"}

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})", re.ASCII)


def parse_size(value: Any) -> Any:
    """Bytes from a number or a text like `100MB` (1000s) or `64KiB` (1024s)."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError('expected bytes or a size like "100MB" or "64KiB"')
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def _spelled(spellings: dict[str, str]) -> BeforeValidator:
    def canonical(value: Any) -> Any:
        return spellings.get(value, value) if isinstance(value, str) else value

    return BeforeValidator(canonical)


def _pattern(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value or "\0" in value:
        raise ValueError("expected a name, path or glob that is not empty")
    if value.startswith("!"):
        raise ValueError("a pattern that starts with ! would take back another one; remove it")
    return value


def _regex(value: Any) -> Any:
    try:
        re.compile(value)
    except TypeError:
        return value
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression ({error})") from None
    return value


def _encoding(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    import codecs

    try:
        b"a".decode(value)
        codecs.getincrementaldecoder(value)
        return codecs.lookup(value).name
    except (LookupError, ValueError, TypeError):
        raise ValueError('expected the name of a text encoding, such as "cp1252"') from None


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _file_name(value: Any) -> Any:
    if isinstance(value, str) and (value in ("", ".", "..") or "/" in value or "\0" in value):
        raise ValueError("expected the name of a file, without a folder")
    return value


Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=4096)]
LongText: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000_000)]
Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_listed)]
_Pattern: TypeAlias = Annotated[str, BeforeValidator(_pattern)]
_Regex: TypeAlias = Annotated[Text, BeforeValidator(_regex)]
Regexes: TypeAlias = Annotated[tuple[_Regex, ...], BeforeValidator(_listed)]
Patterns: TypeAlias = Annotated[tuple[_Pattern, ...], BeforeValidator(_listed)]
_FileName: TypeAlias = Annotated[Text, BeforeValidator(_file_name)]
FileNames: TypeAlias = Annotated[tuple[_FileName, ...], BeforeValidator(_listed)]
Encoding: TypeAlias = Annotated[str, BeforeValidator(_encoding)]
Arguments: TypeAlias = Annotated[
    tuple[Annotated[str, Field(max_length=32_768)], ...], BeforeValidator(_listed)
]
ToolApproval: TypeAlias = Literal["auto", "prompt", "approve"]
Count: TypeAlias = Annotated[int, Field(ge=1, le=2**53)]
Size: TypeAlias = Annotated[int, BeforeValidator(parse_size), Field(ge=1, le=2**60)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=30 * 86400, allow_inf_nan=False)]
Approval: TypeAlias = Annotated[ApprovalPolicy, _spelled(APPROVAL_PRESETS)]
Shell: TypeAlias = Annotated[Literal["family", ShellForm], _spelled(SHELL_SPELLINGS)]


class Table(BaseModel):
    """A TOML table whose keys are all known and whose values are never coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class SandboxWorkspaceWrite(Table):
    """`[sandbox_workspace_write]`: what `workspace-write` adds to the workspace itself."""

    writable_roots: Texts = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


class ShellEnvironmentPolicy(Table):
    """`[shell_environment_policy]`: which variables commands get. Patterns know `*` and `?`.

    Names that look like secrets are withheld unless `ignore_default_excludes`; keys of model
    providers always.
    """

    inherit: Literal["all", "core", "none"] = "all"
    ignore_default_excludes: bool = False
    exclude: Patterns = ()
    include_only: Patterns = ()
    set: dict[str, str] = {}


class Sandbox(Table):
    """`[sandbox]`: what a backend must enforce, and how docker and chroot are to be used.

    `image`, `engine`, `engine_args`, `run_args`, `user` and `read_only_root` are for
    `sandbox_policy = "docker"` (podman answers too), `rootfs` is for `"chroot"`.
    """

    image: Text | None = None
    engine: Text | None = None
    engine_args: Texts = ()
    run_args: Texts = ()
    user: Text | None = None
    read_only_root: bool = True
    rootfs: Text | None = None

    require: Annotated[
        tuple[
            Literal[
                "writes",
                "reads",
                "network",
                "pids",
                "unix_sockets",
                "protected_paths",
                "own_files",
            ],
            ...,
        ],
        BeforeValidator(_listed),
    ] = ("writes", "network", "own_files")


class CommandLimits(Table):
    """`[limits]`: how much commands may take. Sizes are bytes or `"2GB"`; unset means no limit."""

    processes: Count | None = None
    memory: Size | None = None
    file_size: Size | None = None


class Tools(Table):
    """`[tools]`: which tools are offered and in which form.

    `enabled` unset means the default set; else only what matches it. `disabled` wins.
    `small_context` offers only the few that a small window has room for; unset, the model's
    window decides.
    """

    enabled: Patterns | None = None
    disabled: Patterns = ()
    shell_type: Shell = "family"
    experimental_tools: Annotated[tuple[FileTool, ...], BeforeValidator(_listed)] | None = None
    include_plan_tool: bool = True
    include_apply_patch_tool: bool = True
    include_view_image_tool: bool = True
    include_collab_tools: bool = True
    include_memory_tool: bool = True
    tools_web_search_request: bool = False
    small_context: bool | None = None
    limits: dict[str, Count] = {}


class ToolSecurity(Table):
    """`[tool_security]`: ceilings and the audit log. Sizes are bytes or `"100MB"`."""

    max_file_access_size: Size = 100_000_000
    max_shell_commands_per_session: Count | None = None
    allowed_network_domains: Texts = ()
    ask_after_external_content: bool = True
    audit_log_enabled: bool = True
    audit_log_path: Text | None = None


def _matcher(value: Any) -> Any:
    """A regular expression or a glob; what is neither would match nothing, and guard nothing."""
    is_glob = (
        isinstance(value, str) and set("*?[") & set(value) and not set("|()+^$\\{") & set(value)
    )
    return value if is_glob else _regex(value)


class UserInput(Table):
    """`[user_input]`: answers to a model's questions, by id (or glob), where nobody is there."""

    answers: dict[str, str] = {}


class HookRow(Table):
    """`[[hooks.EVENT]]`: a program of yours that is run around tool calls.

    `matcher` is a regular expression or glob over whole tool names; `command` an argument vector.
    """

    matcher: Annotated[Text, BeforeValidator(_matcher)] = "*"
    command: Annotated[Texts, Field(min_length=1)]
    timeout_sec: Seconds = 60.0
    on_error: Literal["block", "continue", "ask"] = "block"


HookRows: TypeAlias = Annotated[tuple[HookRow, ...], BeforeValidator(_listed)]


class Hooks(Table):
    """`[hooks]`: programs by the event that they are run at."""

    PreToolUse: HookRows = ()
    PostToolUse: HookRows = ()
    PermissionRequest: HookRows = ()
    SessionStart: HookRows = ()
    Stop: HookRows = ()


class Web(Table):
    """`[web]`: how `webfetch` reads pages."""

    robots: bool = True
    max_size: Size = 5_000_000
    timeout_sec: Seconds = 30.0


class Search(Table):
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
    max_results: Annotated[int, Field(ge=1, le=50)] = 10


class Checkpoints(Table):
    """`[checkpoints]`: what is saved before a turn changes the workspace, for `toolrest undo`.

    An untracked file over `max_file_size` is left out, and those past `max_size` in all.
    """

    enabled: bool = True
    max_file_size: Size = 100_000_000
    max_size: Size = 2_000_000_000


Saying: TypeAlias = Literal["allow", "ask", "deny"]


class Approvals(Table):
    """`[approvals]`: single tools (names or globs), MCP servers, folders, beginnings of commands.

    `allow` lifts an ordinary question; it lifts no denial, nothing on the dangerous list, and
    does not let a call out of the sandbox (but a command that is allowed runs where its rule does).
    For `on_ask = "defer"`: how long to wait for an answer, and to keep a question.
    """

    wait_sec: Annotated[float, Field(ge=0, le=30 * 86400, allow_inf_nan=False)] = 0.0
    expire_sec: Seconds = 86_400.0

    tools: dict[str, Saying] = {}
    mcp_servers: dict[str, Saying] = {}
    paths: dict[str, Saying] = {}
    commands: dict[str, Saying] = {}


class RuleToken(Table):
    """One word of a command: exactly this, or any of these."""

    token: Text | None = None
    any_of: Texts | None = None


class PrefixRuleRow(Table):
    """A rule for commands that begin with these words; it can only tighten."""

    pattern: Annotated[tuple[RuleToken, ...], BeforeValidator(_listed)]
    decision: Literal["prompt", "forbidden"]
    justification: Text | None = None


class CommandRules(Table):
    """`[rules]`: rules for commands besides those of the rules files."""

    prefix_rules: Annotated[tuple[PrefixRuleRow, ...], BeforeValidator(_listed)] = ()


class Redact(Table):
    """`[redact]`: regular expressions and names of variables whose values are secret."""

    patterns: Regexes = ()
    names: Patterns = ()


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


class Agents(Table):
    """`[agents]`: how many sub-agents may work at once, how deep they may nest, and how long.

    The limits hold for each sub-agent's task; a role may set its own.
    """

    max_agents: Count = 4
    max_depth: Annotated[int, Field(ge=0, le=16)] = 1
    max_seconds: Seconds | None = 1800.0
    max_turns: Count | None = None
    max_tool_calls: Count | None = None
    max_tokens: Count | None = None
    roles: dict[str, AgentRole] = {}


class Otel(Table):
    """`[otel]`: tracing; without the opentelemetry package it does nothing."""

    enabled: bool = True


class TruncationRow(Table):
    """How much of an output a model family is shown."""

    mode: TruncationMode
    limit: Count


class FamilyRow(Table):
    """`[model_families.NAME]`: a row of one's own; what is unset comes from `like`."""

    prefixes: Texts = ()
    like: Text | None = None
    shell: Annotated[ShellForm, _spelled(SHELL_SPELLINGS)] | None = None
    prefer_function_tools: bool | None = None
    patch: PatchForm | None = None
    reasoning_tools: bool | None = None
    parallel: bool | None = None
    truncation: TruncationRow | None = None
    wire: Wire | None = None


class Capabilities(Table):
    """`[model_providers.NAME.capabilities]`: what an endpoint can do; unset is the wire's usual.

    `text_calls`: tool calls that a model wrote as text count when it made no others.
    """

    parallel_tool_calls: bool | None = None
    tool_choice: bool | None = None
    usage: bool | None = None
    images: bool | None = None
    tool_images: Literal["inline", "user_message"] | None = None
    developer_role: bool | None = None
    json_schema: bool | None = None
    reasoning: Literal["turn", "always", "never"] | None = None
    repair: bool | None = None
    text_calls: bool | None = None
    max_tools: Count | None = None
    schema_subset: Literal["codex"] | None = None


class ModelProvider(Table):
    """`[model_providers.NAME]`: where a model is and how to speak to it.

    A row with the name of a built-in provider changes only what it sets. Header values of
    `env_http_headers` are names of variables.
    """

    name: str = ""
    base_url: Text | None = None
    env_key: Text | None = None
    env_key_instructions: Text | None = None
    experimental_bearer_token: Text | None = None
    wire_api: Literal["responses", "chat", "anthropic"] | None = None
    query_params: dict[str, str] = {}
    http_headers: dict[str, str] = {}
    env_http_headers: dict[str, str] = {}
    request_max_retries: Annotated[int, Field(ge=0)] | None = None
    stream_max_retries: Annotated[int, Field(ge=0)] | None = None
    stream_idle_timeout_ms: Count | None = None
    connect_timeout_ms: Count | None = None
    requires_openai_auth: bool = False
    supports_websockets: bool = False
    capabilities: Capabilities = Capabilities.model_construct()


class Project(Table):
    """`[projects."PATH"]`: whether the files of that folder may configure Toolrest."""

    trust_level: TrustLevel


class McpServerTool(Table):
    """`[mcp_servers.NAME.tools.TOOL]`: how one tool of the server is approved."""

    approval_mode: ToolApproval = "auto"


class McpServer(Table):
    """`[mcp_servers.NAME]`: a program that speaks MCP (`command`), or an address (`url`).

    A layer may say only a part of it; whether the whole makes sense is asked when it is used.
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
    """`[mcp]`: what concerns all servers. `tool_budget` is a share of the model's window."""

    tool_budget: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.10
    oauth_credentials_store: Literal["auto", "keyring", "file"] = "auto"
    oauth_callback_port: Annotated[int, Field(ge=1, le=65535)] | None = None


class Settings(Table):
    """Every setting that can be honoured today, with its default."""

    model: Text | None = None
    model_family: Text | None = None
    model_provider: Text = "openai"
    model_providers: dict[str, ModelProvider] = {}
    model_context_window: Count | None = None
    model_max_output_tokens: Count | None = None
    model_reasoning_effort: Text | None = None
    model_reasoning_summary: Literal["auto", "concise", "detailed", "none"] | None = None
    model_verbosity: Literal["low", "medium", "high"] | None = None
    model_auto_compact_token_limit: Count | None = None
    model_instructions_file: Text | None = None
    developer_instructions: LongText | None = None
    compact_prompt: LongText | None = None
    project_doc_max_bytes: Annotated[int, Field(ge=0, le=2**30)] = 32_768
    project_doc_fallback_filenames: FileNames = ()
    project_root_markers: FileNames = (".git",)
    max_turns: Count | None = None
    max_tool_calls: Count | None = None
    max_tokens: Count | None = None
    approval_policy: Approval = "on-request"
    on_ask: OnAsk = "deny"
    approvals: Approvals = Approvals.model_construct()
    rules: CommandRules = CommandRules.model_construct()
    sandbox_mode: SandboxMode = "workspace-write"
    sandbox_policy: Literal["docker", "vm", "chroot"] | None = None
    sandbox_workspace_write: SandboxWorkspaceWrite = SandboxWorkspaceWrite.model_construct()
    sandbox_tmp: Literal["private", "host"] = "private"
    sandbox: Sandbox = Sandbox.model_construct()
    limits: CommandLimits = CommandLimits.model_construct()
    shell_environment_policy: ShellEnvironmentPolicy = ShellEnvironmentPolicy.model_construct()
    read_roots: Texts | None = None
    hidden_paths: Patterns = ()
    legacy_encoding: Encoding | None = None
    tool_output_token_limit: Count | None = None
    tool_result_max_chars: Count | None = None
    tool_timeout_sec: Seconds = 600.0
    max_parallel_calls: Annotated[int, Field(ge=1, le=1024)] = 16
    max_calls_per_session: Count | None = None
    tools: Tools = Tools.model_construct()
    tool_security: ToolSecurity = ToolSecurity.model_construct()
    user_input: UserInput = UserInput.model_construct()
    hooks: Hooks = Hooks.model_construct()

    web_search: Literal["disabled", "cached", "live"] | None = None
    web: Web = Web.model_construct()
    search: Search = Search.model_construct()
    checkpoints: Checkpoints = Checkpoints.model_construct()
    redact: Redact = Redact.model_construct()
    agents: Agents = Agents.model_construct()
    otel: Otel = Otel.model_construct()
    mcp_servers: dict[str, McpServer] = {}
    active_mcp_servers: Texts | None = None
    mcp: McpOptions = McpOptions.model_construct()
    model_families: dict[str, FamilyRow] = {}
    projects: dict[str, Project] = {}
    profile: Text | None = None
    profiles: dict[str, dict[str, Any]] = {}
