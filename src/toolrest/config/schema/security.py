"""The settings for what calls may do: sandbox, environment, limits, approvals, rules, hooks."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from toolrest.config.schema.table import Table
from toolrest.config.schema.types import (
    AnswerSpelling,
    Count,
    Length,
    Matcher,
    Patterns,
    Range,
    Regexes,
    Seconds,
    Size,
    Text,
    Texts,
)

Control: TypeAlias = Literal[
    "writes", "reads", "network", "pids", "unix_sockets", "protected_paths", "own_files"
]


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


class VmSettings(Table):
    """`[sandbox.vm]`: the machine of `sandbox_policy = "vm"`. See `toolrest vm prepare`.

    `kernel` and `modules` are found where they are unset; `accel` takes KVM where it has booted.
    """

    kernel: Text | None = None
    modules: Text | None = None
    memory: Size = 2**30
    cpus: Count | None = None
    accel: Literal["auto", "kvm", "tcg"] = "auto"


class SandboxSettings(Table):
    """`[sandbox]`: what a backend must enforce, and how docker and chroot are to be used.

    `image`, `pull`, `engine`, `engine_args`, `run_args`, `user` and `read_only_root` are for
    `sandbox_policy = "docker"` (podman answers too), `rootfs` is for `"chroot"`. With `accept_weak`
    the sentence about a weak sandbox is not said; the words stay.
    """

    image: Text = "ubuntu:latest"
    engine: Text | None = None
    engine_args: Texts = ()
    run_args: Texts = ()
    user: Text | None = None
    read_only_root: bool = True
    pull: bool = False
    rootfs: Text | None = None
    vm: VmSettings = VmSettings()

    require: tuple[Control, ...] = ("writes", "network", "own_files")
    accept_weak: bool = False


class PathSettings(Table):
    """`[paths]`: globs of paths exempt from being hidden or protected. Not for projects."""

    unhide: Patterns = ()


class CommandLimits(Table):
    """`[limits]`: resource limits of commands. Sizes are bytes or `"2GB"`; unset means no limit."""

    processes: Count | None = None
    memory: Size | None = None
    file_size: Size | None = None


class ApprovalSettings(Table):
    """`[approvals]`: single tools (names or globs), MCP servers, folders, beginnings of commands.

    `allow` approves an ordinary ask; it lifts no denial, nothing on the dangerous list, and lets
    no call out of the sandbox (but a command that is allowed runs where its rule does).
    For `on_ask = "defer"`: how long to wait for an answer, and to keep a pending approval.
    """

    wait_sec: Annotated[float, Range(0, 30 * 86400)] = 0.0
    expire_sec: Seconds = 86_400.0

    tools: dict[str, AnswerSpelling] = {}
    mcp_servers: dict[str, AnswerSpelling] = {}
    paths: dict[str, AnswerSpelling] = {}
    commands: dict[str, AnswerSpelling] = {}


class RuleToken(Table):
    """One word of a command: exactly this, or any of these."""

    token: Text | None = None
    any_of: Texts | None = None


class PrefixRuleRow(Table):
    """A rule for commands that begin with these words; it can only tighten."""

    pattern: tuple[RuleToken, ...]
    decision: Literal["prompt", "forbidden"]
    justification: Text | None = None


class CommandRules(Table):
    """`[rules]`: rules for commands besides those of the rules files."""

    prefix_rules: tuple[PrefixRuleRow, ...] = ()


class HookRow(Table):
    """`[[hooks.EVENT]]`: a program of yours that is run around tool calls.

    `matcher` is a regular expression or glob over whole tool names; `command` an argument vector.
    """

    matcher: Matcher = "*"
    command: Annotated[Texts, Length(1)]
    timeout_sec: Seconds = 60.0
    on_error: Literal["block", "continue", "ask"] = "block"


class HookSettings(Table):
    """`[hooks]`: programs by the event that they are run at."""

    PreToolUse: tuple[HookRow, ...] = ()
    PostToolUse: tuple[HookRow, ...] = ()
    PermissionRequest: tuple[HookRow, ...] = ()
    SessionStart: tuple[HookRow, ...] = ()
    Stop: tuple[HookRow, ...] = ()


class Redact(Table):
    """`[redact]`: regular expressions and names of variables whose values are secret."""

    patterns: Regexes = ()
    names: Patterns = ()
