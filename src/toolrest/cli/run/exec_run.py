"""One run of `toolrest exec`: open the session, show what happens, end with the right code."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from toolrest.agent.conversation.answer_form import AnswerForm, without_fence
from toolrest.agent.conversation.events import AgentMessage, TaskComplete
from toolrest.agent.conversation.prompt import project_files, prompt_items
from toolrest.agent.conversation.result import TurnResult
from toolrest.agent.history.history import message
from toolrest.agent.open_session import open_session
from toolrest.agent.path_policy import default_workspace, tool_roots
from toolrest.cli.options import SANDBOX_MODES
from toolrest.cli.run.exec_output import EXIT_CODES, ExecOutput, HeldEvents, RunEnd, read_form
from toolrest.cli.run.untrusted import HEADER, UntrustedDenials
from toolrest.cli.startup import settled, users_environment
from toolrest.cli.terminal.terminal import Terminal, is_terminal
from toolrest.config.files import toolrest_home
from toolrest.errors import ConfigError, ToolrestError
from toolrest.items import JSONObject
from toolrest.policy.paths.named_files import check_named, write_named
from toolrest.timeline.plain import PlainPrinter
from toolrest.timeline.text import short_path
from toolrest.wire.model import ModelError, Usage

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation, StopReason
    from toolrest.agent.history.rollout import Rollout
    from toolrest.cli.options import Choices
    from toolrest.cli.terminal.approve import TerminalApprover
    from toolrest.config import Config
    from toolrest.events import Event

_SIGNALS: dict[signal.Signals, StopReason] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
}


_CUT_OFF = "Your last message was cut off. Go on with it."
"""Seconds that the first request waits for servers whose tools are not known yet."""
_WITH_TEXT = (0, 4, 6)
"""Exit codes with which the answer is printed all the same: a limit, a form that is not met."""


class Task(Struct):
    """The task of a run, as the command line gives it."""

    choices: Choices
    prompt: str
    images: tuple[str, ...] = ()
    model: str | None = None
    add_dirs: tuple[str, ...] = ()
    as_json: bool = False
    output_schema: str | None = None
    answer: str | None = None
    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    resume: str | None = None
    last: bool = False
    continues: bool = False
    ephemeral: bool = False
    verbose: bool = False
    wait_mcp: bool | None = None
    no_ask: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether it goes on with an earlier session."""
        return bool(self.resume or self.last)

    def load(self) -> Config:
        """The settings for this run."""
        flags: dict[str, Any] = {
            "model": self.model,
            "max_turns": self.max_turns,
            "max_tool_calls": self.max_tool_calls,
            "max_tokens": self.max_tokens,
            "mcp.wait": self.wait_mcp,
        }
        config = self.choices.load(flags)
        if self.goes_on and self.choices.sandbox is None:
            recorded = self._recorded_sandbox()
            if recorded not in (None, config.value.sandbox_mode):
                flags["sandbox_mode"] = recorded
                config = self.choices.load(flags)
        if not self.add_dirs:
            return config
        roots = config.value.sandbox_workspace_write.writable_roots
        more = [os.path.abspath(folder) for folder in self.add_dirs]
        for folder in more:
            if not os.path.isdir(folder):
                raise ConfigError(f"--add-dir {folder} is not a folder")
        return self.choices.load(
            flags | {"sandbox_workspace_write.writable_roots": [*roots, *more]}
        )

    def _recorded_sandbox(self) -> str | None:
        """The sandbox that the session to go on with had, if it goes on in its own folder."""
        home = toolrest_home(None, os.environ)
        workspace = default_workspace(self.choices.folder)
        rollout = _read(self.earlier(home, workspace))
        policy = rollout.context.get("sandbox_policy")
        if rollout.meta.get("cwd") != os.path.realpath(workspace) or not isinstance(policy, dict):
            return None
        mode = policy.get("type")
        return mode if mode in SANDBOX_MODES else None

    def earlier(self, home: str, workspace: str | None) -> str:
        """The path of the session to go on with."""
        from toolrest.agent.history.stored_sessions import find_session, latest_session

        if self.resume:
            return find_session(home, self.resume).path
        return latest_session(home, workspace).path


def run_task(task: Task) -> int:
    """Run it; returns the exit code. Whatever happens, JSON output ends with a result."""
    out = ExecOutput(task.as_json)
    try:
        outcome = asyncio.run(_Run(task, out).run())
    except ModelError as error:
        outcome = out.give_up(error, "model_" + error.kind, 1)
    except ToolrestError as error:
        outcome = out.give_up(error, "usage", 2)
    except KeyboardInterrupt:
        outcome = out.give_up("interrupted", "interrupted", 130)
    except Exception as error:
        logging.getLogger("toolrest").exception("exec failed")
        message = f"an error in Toolrest itself: {type(error).__name__}: {error}"
        outcome = out.give_up(message, "internal_error", 1)
    out.finish(outcome)
    return 141 if out.broken else outcome.exit_code


class _Run:
    """The steps of one run."""

    def __init__(self, task: Task, out: ExecOutput) -> None:
        self.task = task
        self.out = out
        self._conversation: Conversation | None = None
        self._signal: StopReason | None = None
        self._environ = users_environment()
        self._stops: set[asyncio.Task[None]] = set()
        self._roots: tuple[str, ...] = ()
        self._printer = PlainPrinter()
        self._untrusted: UntrustedDenials | None = None

    async def run(self) -> RunEnd:
        """Open, work, close; a signal ends it at any point."""
        loop = asyncio.get_running_loop()
        me = asyncio.current_task()
        for number, reason in _SIGNALS.items():
            loop.add_signal_handler(number, self._signalled, reason, me)
        try:
            return await self._work()
        except asyncio.CancelledError:
            if self._signal is None:
                raise
            return self.out.give_up(self._signal, self._signal, EXIT_CODES[self._signal])
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _signalled(self, reason: StopReason, me: asyncio.Task[object] | None) -> None:
        self._signal = reason
        if self._conversation is not None and self._conversation.running:
            self._stop(self._conversation, reason)
        elif me is not None:
            me.cancel()

    async def _work(self) -> RunEnd:
        task = self.task
        items = [] if task.continues else prompt_items(task.prompt, task.images)
        config = task.load()
        self._roots = tool_roots(config)
        form = read_form(task.output_schema, self._roots) if task.output_schema else None
        if task.answer is not None:
            with _answer_file(task.answer):
                check_named(task.answer, self._roots)
        if config.warnings:
            from toolrest.cli.terminal.notices import print_warnings

            print_warnings(config)
        if task.add_dirs and config.value.sandbox_mode == "read-only":
            message = "--add-dir has no effect while sandbox_mode is read-only"
            click.echo(f"toolrest: {message}; add: -s workspace-write", err=True)
        self._printer = PlainPrinter(workspace=config.workspace or "")
        conversation = self._conversation = self._open(config)
        settled()
        with ExitStack() as stack:
            held = self._listen(conversation, stack)
            async with conversation, self._announced(conversation, held):
                if task.timeout is not None:
                    timer = asyncio.get_running_loop().call_later(
                        task.timeout, self._stop, conversation, "timeout"
                    )
                    stack.callback(timer.cancel)
                if (
                    task.continues
                    and (ended := self._cut_off(conversation, items, form)) is not None
                ):
                    return self._conclude(ended)
                is_quiet = self.out.as_json or self.task.verbose
                async with nullcontext() if is_quiet else self._printer.working():
                    result = await conversation.run(items, form=form)
        return self._conclude(result)

    def _cut_off(
        self, conversation: Conversation, items: list[JSONObject], form: AnswerForm | None
    ) -> TurnResult | None:
        """The result of a turn whose answer is recorded already: nothing is asked again."""
        rollout = _read(str(conversation.journal.path))
        if rollout.answer is None:
            if rollout.ends_with_message:
                items.append(message("user", _CUT_OFF))
            return None
        answer = rollout.answer if form is None else without_fence(rollout.answer)
        if form is not None and (problems := form.check(answer)) is not None:
            items.append(message("user", form.complaint(problems)))
            return None
        conversation.emit(AgentMessage(message=rollout.answer))
        return TurnResult("completed", "done", answer, None, Usage())

    def _open(self, config: Config) -> Conversation:
        task, approver = self.task, self._approver(config)
        conversation = open_session(
            config,
            on_ask=approver,
            env=self._environ,
            resume=task.earlier(config.home, config.workspace) if task.goes_on else None,
            ephemeral=task.ephemeral,
            trusted=config.trusted,
        )
        conversation.warnings += conversation.rest.rule_warnings()
        conversation.warnings += _ignored_docs(conversation)
        if approver is not None:
            approver.opened(conversation)
        return conversation

    def _approver(self, config: Config) -> TerminalApprover | None:
        """The approver at the terminal, unless an option or `on_ask` says otherwise."""
        if self.task.as_json or self.task.no_ask or config.source("on_ask") != "default":
            return None
        if not is_terminal():
            return None
        # Only at a terminal.
        from toolrest.cli.terminal.approve import TerminalApprover

        return TerminalApprover(Terminal(), self._printer.paused)

    @asynccontextmanager
    async def _announced(self, conversation: Conversation, held: HeldEvents) -> AsyncIterator[None]:
        """Find the kind of sandbox beside the work; the output begins when it is known."""

        async def announce() -> None:
            warm_up = conversation.warm_up()
            accepted = conversation.rest.settings.sandbox.accept_weak
            waits = not (self.out.as_json and accepted)
            weak = await warm_up.found_weak_sandbox() if waits else None
            untrusted = conversation.rest.config.untrusted_folder
            self.out.open(conversation.id, untrusted_folder=untrusted, weak_sandbox=weak)
            held.release()

        announcing = asyncio.ensure_future(announce())
        try:
            yield
        finally:
            await announcing

    def _listen(self, conversation: Conversation, stack: ExitStack) -> HeldEvents:
        rest = conversation.rest
        if rest.config.untrusted_folder:
            self._untrusted = UntrustedDenials(conversation.opening.files)
            stack.callback(rest.subscribe(self._untrusted))
        held = HeldEvents(self.out.thread if self.out.as_json else self._printer)
        stack.callback(rest.subscribe(held))
        if self.out.as_json:
            stack.callback(rest.subscribe(lambda event: self._watch_reader(conversation, event)))
        else:
            settings = rest.settings
            self._printer.say(
                f"{conversation.model.name}, {settings.sandbox_mode}, {settings.approval_policy}, "
                f"{short_path(rest.config.workspace or '.')}, session {conversation.id[:8]}"
            )
            if self._untrusted is not None:
                self._printer.say(HEADER)
        if self.task.verbose or os.environ.get("TOOLREST_LOG"):
            from toolrest.cli.terminal.event_log import log_events

            log_events(rest, self.task.verbose, stack)
        return held

    def _watch_reader(self, conversation: Conversation, event: Event) -> None:
        """Interrupt the turn once the reader of standard output is gone."""
        if self.out.broken and not isinstance(event, TaskComplete):
            self._stop(conversation, "interrupted")

    def _stop(self, conversation: Conversation, reason: StopReason) -> None:
        stopping = asyncio.get_running_loop().create_task(conversation.interrupt(reason))
        self._stops.add(stopping)
        stopping.add_done_callback(self._stops.discard)

    def _conclude(self, result: TurnResult) -> RunEnd:
        outcome = RunEnd.of(result)
        if not self.out.as_json and result.text is not None and outcome.exit_code in _WITH_TEXT:
            self.out.put(result.text)
        if outcome.exit_code == 0 and not (result.text or "").strip():
            click.echo("toolrest: the model ended without an answer", err=True)
        if self.task.answer is not None:
            with _answer_file(self.task.answer):
                data = (result.text or "").encode("utf-8", "replace")
                write_named(self.task.answer, data, self._roots)
        if self._untrusted is not None:
            outcome.denied_untrusted = self._untrusted.count
            if self._untrusted.sentence:
                click.echo(f"toolrest: {self._untrusted.sentence}", err=True)
        return outcome


def _read(path: str) -> Rollout:
    # Only a run that goes on with a session.
    from toolrest.agent.history.rollout import read_rollout

    return read_rollout(path)


def _ignored_docs(conversation: Conversation) -> list[str]:
    opening = conversation.opening
    if opening.docs.enabled or not opening.docs.max_bytes:
        return []
    found = next(project_files(opening.files.cwd, opening.docs), None)
    if found is None:
        return []
    folder = opening.files.workspace
    return [f"{found} is not used: read it, then trust the folder with: toolrest trust {folder}"]


@contextmanager
def _answer_file(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write -o {path}: {error.strerror}") from None
