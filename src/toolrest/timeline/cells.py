"""Cells: the messages, calls, questions, sub-agents, plans and notices of a session, in order."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from toolrest.process.output.terminal_text import PlainText

CallState: TypeAlias = Literal["begun", "waiting", "running", "done", "failed", "denied"]
TAIL = 5
"""Lines of output that a drawn call shows."""


class Cell(Struct, kw_only=True, eq=False):
    """Base: `done` when nothing of it will change any more."""

    time: float = 0.0
    done: bool = True


class UserCell(Cell, kw_only=True):
    """A message of the user."""

    text: str


class MessageCell(Cell, kw_only=True):
    """A message of the model, whole or still being written."""

    text: str = ""


class ReasoningCell(Cell, kw_only=True):
    """Reasoning of the model, or its summary."""

    text: str = ""


class PlanStep(Struct, frozen=True):
    """A step of the plan; its status is `pending`, `in_progress` or `completed`."""

    text: str
    status: str


class PlanCell(Cell, kw_only=True):
    """The model's plan."""

    steps: tuple[PlanStep, ...]
    explanation: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether every step is done."""
        return all(step.status == "completed" for step in self.steps)


class NoticeCell(Cell, kw_only=True):
    """A message of Toolrest: a note, a warning, an error, or that the sandbox is weak."""

    level: Literal["note", "warning", "error", "weak"]
    text: str
    detail: str = ""
    is_repeat: bool = False
    """It was said already, and only counts on: the next try to reach the model."""


class EndCell(Cell, kw_only=True):
    """The end of a turn, with what it did. Tokens count the whole conversation.

    Its seconds are without the time that a person took to answer.
    """

    status: str
    reason: str = ""
    error: str = ""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """Dollars; None where a price is not known."""
    commands: int = 0
    files: int = 0
    """Files that its patches changed."""


class FileDiff(Struct, frozen=True):
    """The change of one file: a unified diff, or the whole text of an added or deleted file."""

    path: str
    kind: Literal["add", "delete", "update"]
    text: str
    moved_to: str = ""


class Output(Struct, eq=False):
    """The output of a call so far, as plain text: its end is kept, all of it is counted."""

    kept: deque[str] = field(default_factory=deque)
    size: int = 0
    dropped: int = 0
    """Lines at the beginning that are not kept."""
    MOST: ClassVar[int] = 512 * 1024
    _plain: PlainText = field(default_factory=PlainText)
    _open: bool = False

    def feed(self, text: str) -> None:
        """Add a piece of output."""
        self._add(self._plain.feed(text))

    def flush(self) -> None:
        """End the output: what is left of its last line counts."""
        self._add(self._plain.flush())

    def _add(self, text: str) -> None:
        if not text:
            return
        lines = text.split("\n")
        ends = lines[-1] == ""
        if ends:
            lines.pop()
        if self._open and self.kept:
            self.kept[-1] += lines.pop(0)
        self.kept.extend(lines)
        self._open = not ends
        self.size += len(text)
        while self.size > self.MOST and len(self.kept) > 1:
            self.size -= len(self.kept.popleft()) + 1
            self.dropped += 1
        if self.size > 2 * self.MOST:  # one endless line
            self.kept[-1] = self.kept[-1][-self.MOST :]
            self.size = self.MOST

    @property
    def count(self) -> int:
        """The number of lines, kept or not."""
        return self.dropped + len(self.kept)

    @property
    def text(self) -> str:
        """The kept lines."""
        return "\n".join(self.kept)

    def tail(self, most: int = TAIL) -> list[str]:
        """The last lines, without the empty ones at the end."""
        at = len(self.kept)
        while at and not self.kept[at - 1].strip():
            at -= 1
        return [self.kept[n] for n in range(max(0, at - most), at)]


class CallCell(Cell, kw_only=True):
    """A tool call: what it is, how far it is, what came of it."""

    call_id: str
    tool: str
    arguments: str = ""
    icon: str = "other"
    hidden: bool = False
    """It shows in a cell of its own (the plan), unless it fails."""
    state: CallState = "begun"
    command: str | None = None
    """The command line, where it is one."""
    cwd: str = ""
    output: Output = field(default_factory=Output)
    result: str = ""
    """What the model is given; the output that was printed meanwhile is in `output`."""
    progress: str = ""
    reason: str = ""
    """Why it was denied, or failed."""
    rule: str = ""
    is_stopped: bool = False
    """It was ended with its turn, whose end says so."""
    exit_code: int | None = None
    ran: float | None = None
    """Seconds of its command alone, without the time in which it was asked about."""
    asked: float | None = None
    """Since when an approval is waited for."""
    waited: float = 0.0
    """Seconds that approvals took."""
    seconds: float = 0.0
    sandbox: str = "none"
    is_confined: bool = True
    """Whether it runs in the sandbox: as decided at first, then as it was."""
    spill: str | None = None
    files: tuple[FileDiff, ...] = ()
    notes: tuple[str, ...] = ()
    """Connections that the sandbox blocked, states of sub-agents."""
    done: bool = False

    @property
    def left_sandbox(self) -> bool:
        """Whether it is a command that was allowed to run outside the sandbox."""
        return self.command is not None and not self.is_confined

    def shown_output(self) -> Output:
        """The printed output, the changes of a patch, or the result where no program ran."""
        ran = self.command is not None and self.exit_code is not None
        changes = "\n".join(f"{file.kind} {file.path}\n{file.text}" for file in self.files)
        if self.output.count or ran or not (changes or self.result):
            return self.output
        found = Output()
        found.feed(changes or self.result)
        found.flush()
        return found

    def forget_output(self) -> None:
        """Keep its facts alone: what it printed or changed is shown no more."""
        self.output, self.result, self.files = Output(), "", ()


class Question(Struct, frozen=True):
    """One question of the model; `options` are the labels of the answers that it offers."""

    id: str
    header: str
    text: str
    options: tuple[str, ...] = ()
    is_secret: bool = False


class QuestionCell(CallCell, kw_only=True):
    """A call that asks the person questions; `answers` are by the questions' ids."""

    questions: tuple[Question, ...]
    answers: dict[str, tuple[str, ...]] = field(default_factory=dict)


class AgentCell(Cell, kw_only=True):
    """A sub-agent on one task: what it does now, and what became of it.

    `path` is its place among the agents (`root/explorer-1`), `state` a word of the contract:
    `running`, `completed`, `errored`, `shutdown`.
    """

    agent_id: str
    path: str
    task: str = ""
    state: str = "running"
    doing: str = ""
    """The call that it is in, in one line."""
    calls: int = 0
    last: str = ""
    """Its last message, or why it failed."""
    seconds: float = 0.0
    done: bool = False

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def depth(self) -> int:
        """How many agents it is nested in."""
        return max(0, self.path.count("/") - 1)
