"""Errors, drawn as one tree of exceptions.

    ToolrestError                   everything that Toolrest raises on purpose
    ├── ConfigError                 a setting cannot be read or honoured
    │   └── TableError              (config/schema/table.py) one table with all its problems
    ├── ToolDefinitionError         a tool cannot be registered as it is written
    ├── AuditError                  the audit log cannot be written or does not verify
    ├── ToolCallError               a tool call failed; `message` is for the model
    │   ├── RespondToModel          the usual case: the turn goes on
    │   │   ├── UnknownSession      (process/sessions/table.py) no session has this number
    │   │   ├── StdinClosed         (process/sessions/table.py) the command has no terminal
    │   │   └── StdinFailed         (process/sessions/table.py) the terminal takes no input
    │   ├── MissingLocalShellCallId a local_shell_call has neither call_id nor id
    │   ├── Rejected                an approval or the policy denied the call
    │   ├── SandboxDenied           the OS sandbox blocked the call
    │   ├── Timeout                 the call's time ran out
    │   └── Fatal                   a broken contract or an unwritable journal: the turn ends
    ├── PatchError                  (patch/errors.py) a patch cannot be read or applied
    │   ├── ParseError              (patch/errors.py) the text is not a patch
    │   ├── ApplyError              (patch/errors.py) the patch does not fit what is on disk
    │   │   └── MatchError          (patch/errors.py) a hunk's lines are not in the file
    │   ├── EditError               (patch/errors.py) a string edit has no target, or several
    │   └── ImplicitPatch           (patch/forms/shell_command.py) a shell was given a patch
    ├── PendingError                (gate/approval/pending.py) a pending approval is unusable
    ├── StartFailed                 (process/child.py) a command cannot be started
    ├── SandboxUnavailable          (sandbox/errors.py) nothing here can enforce the policy
    │   ├── SandboxBusy             (sandbox/errors.py) not while another command runs
    │   │   └── SandboxChanged      (sandbox/errors.py) its view changed meanwhile; start again
    │   └── FolderNotShown          (sandbox/errors.py) not in this folder
    ├── ModelError                  (wire/model.py) a request to a model failed
    ├── McpError                    (mcp/errors.py) an MCP server cannot be used
    │   ├── McpUnavailable          (mcp/errors.py) no connection to the server
    │   │   └── McpLoginNeeded      (mcp/errors.py) a session's login is not enough
    │   ├── McpTimeout              (mcp/errors.py) the server did not answer in time
    │   ├── McpRefused              (mcp/errors.py) the server answered with an error
    │   └── McpNeverStarts          (mcp/connection.py) not in this session
    ├── AgentError                  (agent/conversation/result.py) a run without an answer
    ├── WorkspaceError              (batch/tasks/workspace.py) a task's repository is not there
    │   ├── WorkspaceRefused        (batch/tasks/workspace.py) as its server says
    │   └── WorkspaceUnavailable    (batch/tasks/workspace.py) at present: no connection, no space
    ├── StillOpen                   (batch/tasks/journal.py) a task's session is open elsewhere
    ├── ChatError                   (chat/app.py) the chat itself failed; its session goes on
    ├── ClipboardError              (chat/composer/clipboard.py) no picture can be pasted
    ├── CopyError                   (chat/commands/copying.py) nothing can be copied
    ├── OwnCommandError             (chat/own_commands.py) a person's own command cannot start
    ├── EditorError                 (chat/composer/editor.py) $EDITOR cannot be started
    ├── ControlError                (control/controls.py) a running session refuses a request
    │   └── NoSession               (control/client.py) it does not run, or has no control socket
    │       └── NoAnswer            (control/client.py) it is there and does not answer
    ├── PromptError                 (chat/commands/mcp_prompts.py) a server's prompt is unusable
    ├── CheckpointError             (agent/undo/records.py) a checkpoint is not saved or read
    │   └── TooSlow                 (agent/undo/records.py) saving would take too long now
    └── UndoError                   (agent/undo/records.py) nothing was taken back

Those without a file are defined here, the others in the room that raises them;
tests/test_errors.py compares the drawing with the classes.

Exceptions are for the host program and for tool authors. What reaches a model is a
`Failure`: a kind it can branch on, a message with what to do, and the fields at fault.
"""

from __future__ import annotations

# The script `apply_patch` loads this module; without typing and dataclasses it starts in half
# the time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    FailureKind: TypeAlias = Literal[
        "input_invalid",
        "tool_not_found",
        "approval_denied",
        "policy_denied",
        "sandbox_denied",
        "execution_failed",
        "timed_out",
        "aborted",
        "fatal",
    ]


class Failure:
    """The failure of a call: its kind, the message for the model, the argument paths at fault.

    `said` is the message for people, where theirs is another one.
    """

    __slots__ = ("fields", "kind", "message", "said")

    def __init__(
        self, kind: FailureKind, message: str, fields: tuple[str, ...] = (), said: str = ""
    ) -> None:
        self.kind = kind
        self.message = message
        self.fields = fields
        self.said = said

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Failure):
            return NotImplemented
        return (self.kind, self.message, self.fields) == (other.kind, other.message, other.fields)

    def __hash__(self) -> int:
        return hash((self.kind, self.message, self.fields))

    def __repr__(self) -> str:
        return f"Failure({self.kind!r}, {self.message!r}, {self.fields!r})"


class ToolrestError(Exception):
    """Base of every error that Toolrest raises on purpose.

    `hints` are sentences that say what to do about it; `str()` has them behind the reason.
    """

    hints: tuple[str, ...] = ()

    def __init__(self, *reason: object, hints: tuple[str, ...] = ()) -> None:
        super().__init__(*reason)
        if hints:
            self.hints = hints

    def __str__(self) -> str:
        """The reason and the hints in one line."""
        return told(self)

    @property
    def plain(self) -> str:
        """The message without the hints."""
        return super().__str__()


def told(error: ToolrestError, between: str = " ") -> str:
    """An error's reason, and then what to do about it: the one place that joins them."""
    if not error.hints:
        return error.plain
    end = "" if error.plain.endswith((".", "!", "?")) else "."
    return between.join((f"{error.plain}{end}", *error.hints))


class ConfigError(ToolrestError):
    """A setting cannot be read or honoured; the message names the key and where it was set."""


class ToolDefinitionError(ToolrestError):
    """A tool cannot be registered as written; the message names the tool and the cause."""


class AuditError(ToolrestError):
    """The audit log cannot be written, or a line of it does not verify."""


class ToolCallError(ToolrestError):
    """A tool call failed. `message` is what the model reads; `said`, people where it differs."""

    kind: FailureKind = "execution_failed"
    setting: str = ""
    """The setting that denied the call in a person's place."""

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind | None = None,
        fields: tuple[str, ...] = (),
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields
        self.said = said
        if kind is not None:
            self.kind = kind

    @property
    def failure(self) -> Failure:
        """The typed value that goes into the output."""
        return Failure(self.kind, self.message, self.fields, self.said)


class RespondToModel(ToolCallError):
    """The call failed, the turn goes on, and the model reads the message."""


class MissingLocalShellCallId(ToolCallError):
    """A `local_shell_call` item came with neither `call_id` nor `id`."""

    kind: FailureKind = "input_invalid"

    def __init__(self) -> None:
        super().__init__("LocalShellCall without call_id or id")


class Rejected(ToolCallError):
    """An approval or the policy denied the call."""

    kind: FailureKind = "policy_denied"


class SandboxDenied(ToolCallError):
    """The OS sandbox blocked what the call tried to do.

    `output` is what the model reads unless the call is approved to run outside; the gate asks.
    `subjects` are the paths and hosts that were refused, as far as they are known. What
    `ended_well` all the same is not run again unasked.
    """

    kind: FailureKind = "sandbox_denied"

    def __init__(
        self,
        message: str,
        output: object = None,
        subjects: tuple[tuple[str, str], ...] = (),
        *,
        ended_well: bool = False,
    ) -> None:
        super().__init__(message)
        self.output = output
        self.subjects = subjects
        self.ended_well = ended_well


class Timeout(ToolCallError):
    """The call did not finish in its time."""

    kind: FailureKind = "timed_out"


class Fatal(ToolCallError):
    """A handler broke its contract, or a journal cannot be written: the turn must end."""

    kind: FailureKind = "fatal"


def os_words(error: OSError) -> str:
    """The message of an OSError as models know it: `No such file or directory (os error 2)`."""
    if not error.errno:
        return str(error) or type(error).__name__
    return f"{error.strerror} (os error {error.errno})"
