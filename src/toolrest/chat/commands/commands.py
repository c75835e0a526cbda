"""Slash commands: their names, one-line helps, and what each does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, get_args

from toolrest.agent.history.rollout import read_rollout
from toolrest.agent.history.stored_sessions import find_session, last_said, summaries
from toolrest.agent.open_session import fork
from toolrest.chat.commands.attach import attach
from toolrest.chat.commands.changes import session_diff
from toolrest.chat.commands.copying import copied_text, osc52
from toolrest.chat.commands.mcp_prompts import McpPrompts
from toolrest.chat.commands.models import pick_model
from toolrest.chat.commands.names import COMMANDS, known_commands
from toolrest.chat.composer.git_names import git_names
from toolrest.chat.picker import Picker
from toolrest.chat.session import ServersText
from toolrest.config.schema.chat import ChatSettings, Theme
from toolrest.config.schema.types import ApprovalPolicy, SandboxMode
from toolrest.config.schema.validate import check_table
from toolrest.config.write import edit_user_file
from toolrest.errors import ToolrestError
from toolrest.mcp.errors import McpError
from toolrest.own_code import tool_roots
from toolrest.timeline import session_text
from toolrest.timeline.draw import duration
from toolrest.timeline.stored import markdown, stored_cells
from toolrest.timeline.text import rows, shown, text_width

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.history.stored_sessions import Summary
    from toolrest.chat.app import ChatApp
    from toolrest.process.sessions.table import SessionInfo
    from toolrest.running.runner import Runner

_KEYS = """\
  Enter         sends, or adds to the running turn
  Tab           queues for after the turn; ↑ takes the last queued back
  Alt-Enter     a new line; so do Ctrl-J, and \\ at the end
  @  /  !       a file's name; a command; a command line of your own
  Esc           stops the model; Esc Esc goes back to an earlier message
  Ctrl-O        the last output whole; Ctrl-R searches earlier messages
  Ctrl-G        writes on in $EDITOR; Ctrl-V (Alt-V) pastes a picture
  Ctrl-C        clears, or stops; Ctrl-Z suspends; Ctrl-D leaves"""
_LISTED = 20


class Commands:
    """The commands of a chat, prompts of the user's own, and those of MCP servers."""

    prompts: McpPrompts

    def __init__(self, chat: ChatApp) -> None:
        self._chat = chat
        self._own = session_text.own_prompts(chat.home)
        self._typed = ""
        """The command whose answer is printed next."""
        self._theme_used: Theme | None = None

    @property
    def _conversation(self) -> Conversation:
        return self._chat.session.conversation

    def run(self, text: str) -> bool:
        """Do a command; False when there is none of that name (a path, perhaps)."""
        name, _, rest = text[1:].partition(" ")
        if name in self._own:
            self._try(lambda: self._prompt(self._own[name], rest.strip()))
            return True
        if self.prompts.is_one(name):
            self._chat.spawn(self._filled(name, rest.strip()))
            return True
        if name not in COMMANDS:
            if "/" in name or not name:
                return False
            self._chat.session.notice(f"there is no command /{name}; see /help", "warning")
            return True
        self._typed = text
        action: Callable[[str], None] = getattr(self, f"_{name}")
        self._try(lambda: action(rest.strip()))
        return True

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (ToolrestError, OSError) as error:
            self._chat.session.notice(str(error), "error")
        except Exception as error:  # of one command, not of the chat
            text = f"an error in Toolrest itself: {type(error).__name__}: {error}"
            self._chat.session.notice(text, "error")

    def _prompt(self, path: str, rest: str) -> None:
        self._chat.session.say(session_text.own_prompt(path, rest))

    def opened(self) -> None:
        """Another session is open: its servers have other prompts."""
        self.prompts = McpPrompts(self._conversation.rest)

    async def git_names(self) -> list[str] | None:
        """The workspace's files as git lists them; None where it does not."""
        return await git_names(self._chat.session.conversation.rest)

    async def _filled(self, name: str, words: str) -> None:
        live = self._chat.screen.live
        live.hint = f" waiting for the server {shown(name.partition(':')[0])}"
        try:
            text = await self.prompts.text(name, words)
            self._chat.session.say(ServersText(text))
        except McpError as error:
            self._chat.session.notice(f"/{shown(name)}: {error}", "error")
        finally:
            live.hint = ""

    def _say(self, *lines: str) -> None:
        typed, self._typed = self._typed, ""
        if typed:
            self._chat.screen.say(shown(typed))
        width = self._chat.screen.size[1]
        for line in lines:
            for row in rows(line, width) if _can_wrap(line, width) else [line]:
                self._chat.screen.say(row, "")
        self._chat.screen.say("")

    def _list(self, lines: list[str]) -> None:
        self._say(*(f"  {line}" for line in lines))

    def _help(self, rest: str) -> None:
        known = known_commands(self._chat.home) | self.prompts.known()
        self._say(
            *(f"  /{name:<12} {help_}" for name, help_ in known.items()), "", *_KEYS.split("\n")
        )

    def _status(self, rest: str) -> None:
        self._list(session_text.status(self._conversation))

    def _model(self, rest: str) -> None:
        self._chat.spawn(pick_model(self._chat, rest))

    def _approvals(self, rest: str) -> None:
        self._choose("approval_policy", rest, "When to ask?", get_args(ApprovalPolicy))

    def _sandbox(self, rest: str) -> None:
        self._choose("sandbox_mode", rest, "What may be written?", get_args(SandboxMode))

    def _choose(self, key: str, value: str, question: str, names: tuple[str, ...]) -> None:
        """Change a setting to the value that is named, or that is picked from a list."""
        if value:
            self._change(key, value)
            return
        current = getattr(self._chat.session.conversation.rest.settings, key)

        def take(number: int) -> None:
            self._change(key, names[number])

        title = f"{question} (↑ ↓, Enter; Esc leaves)"
        self._chat.screen.pick(Picker(title, list(names), take, names.index(current)))

    def _change(self, key: str, value: str) -> None:
        self._chat.spawn(self._chat.session.change(**{key: value}))

    def _init(self, rest: str) -> None:
        self._chat.session.say(session_text.INIT)

    def _ps(self, rest: str) -> None:
        runner = self._chat.session.conversation.rest.session.runner.made
        rows = {each.session_id: each for each in runner.sessions.list()} if runner else {}
        *words, number = rest.split() or [""]
        is_number = number.isascii() and number.isdecimal()
        row = rows.get(int(number)) if is_number else None
        if runner is None or not rows:
            self._say("  no command runs in the background")
        elif row is not None and words == ["kill"]:
            self._chat.spawn(self._killed(runner, row.session_id))
        elif row is not None and words in ([], ["attach"]):
            self._chat.over(attach(runner.sessions, row, self._command_of(row)))
        elif rest:
            self._say(f"  no command has the number {shown(rest)}; see /ps")
        else:
            lines = [f"  {n}  {duration(r.age)}  {self._command_of(r)}" for n, r in rows.items()]
            self._say(*lines, "  /ps NUMBER attaches to one, /ps kill NUMBER ends it")

    def background(self) -> list[str]:
        """The commands that run in the background, as they were typed."""
        conversation = self._chat.session.conversation
        runner = conversation.rest.session.runner.made
        if runner is None:
            return []
        at_work = {cell.call_id for cell in self._chat.screen.live.running}
        rows = runner.sessions.list()
        left = (row for row in rows if row.exit_code is None and row.call_id not in at_work)
        return [self._command_of(row) for row in left]

    def _command_of(self, row: SessionInfo) -> str:
        calls = (cell for cell in self._chat.screen.above.calls if cell.call_id == row.call_id)
        cell = next(calls, None)
        return shown((cell.command if cell else None) or " ".join(row.argv))

    async def _killed(self, runner: Runner, number: int) -> None:
        await runner.sessions.stop(number)
        self._say(f"  {number} was ended")

    def _new(self, rest: str) -> None:
        self._chat.spawn(self._chat.session.switch(None))

    def _clear(self, rest: str) -> None:
        self._chat.screen.clear()
        self._new(rest)

    def _resume(self, rest: str) -> None:
        if rest:
            path = find_session(self._chat.home, rest).path
            self._chat.spawn(self._chat.session.switch(path))
            return
        found = self._sessions()
        if not found:
            self._say("  there is no other session of this folder")
            return

        def take(number: int) -> None:
            self._chat.spawn(self._chat.session.switch(found[number].stored.path))

        rows = [f"{each.stored.thread_id[:8]}  {_when(each)}  {each.title}" for each in found]
        title = "Go on with which session? (↑ ↓, Enter; Esc leaves)"
        said = cache(lambda number: last_said(found[number].stored.path))
        self._chat.screen.pick(Picker(title, rows, take, preview=said))

    def _sessions(self) -> list[Summary]:
        current = self._conversation.id
        rows = summaries(self._chat.home, self._chat.workspace)
        others = (row for row in rows if row.stored.thread_id != current and row.title)
        return list(islice(others, _LISTED))

    def _fork(self, rest: str) -> None:
        if path := self._recorded():
            self._chat.spawn(self._forked(path))

    def _recorded(self) -> str | None:
        path = self._conversation.journal.path
        if path is None:
            self._chat.session.notice("this session is not recorded", "warning")
        return path

    async def _forked(self, path: str, keep: int | None = None, text: str = "") -> None:
        """Go on with a copy of the session, or of its beginning, and this text to be sent."""
        await self._chat.session.interrupt()
        new = find_session(self._chat.home, fork(self._chat.home, path, keep))
        await self._chat.session.switch(new.path, is_copy=True)
        self._chat.screen.buffer.text = text
        self._chat.screen.buffer.cursor_position = len(text)

    def _back(self, rest: str) -> None:
        path = self._recorded()
        found = read_rollout(path).messages() if path else []
        was_shown = self._chat.session.was_shown
        earlier = [(at, text) for at, text in found if not was_shown(text)]
        if not earlier:
            self._say("  there is no earlier message in this session")
            return

        def take(number: int) -> None:
            at, text = earlier[number]
            self._chat.spawn(self._forked(path or "", at, text))

        title = "Go back to which message? Files stay as they are (↑ ↓, Enter; Esc leaves)"
        rows = [text for _, text in earlier]
        self._chat.screen.pick(Picker(title, rows, take, len(rows) - 1))

    def _compact(self, rest: str) -> None:
        self._chat.session.compact(rest)

    def _undo(self, rest: str) -> None:
        self._chat.spawn(self._undone())

    async def _undone(self) -> None:
        session = self._chat.session
        if session.busy:
            session.notice("a turn is under way; Esc interrupts it", "warning")
            return
        self._list(await session_text.undo(session.conversation))

    def _diff(self, rest: str) -> None:
        self._chat.spawn(self._changes())

    async def _changes(self) -> None:
        text = await asyncio.to_thread(session_diff, self._conversation)
        if text:
            self._chat.page("changed up to the last turn", text, is_diff=True)
        else:
            self._say("  this session has changed nothing in this folder")

    def _output(self, rest: str) -> None:
        self._chat.actions.show_output()

    def _tools(self, rest: str) -> None:
        self._list(session_text.tools(self._conversation))

    def _mcp(self, rest: str) -> None:
        found = [f"/{name}  {help_}" for name, help_ in self.prompts.known().items()]
        self._list([*session_text.mcp(self._conversation), *found])

    def _theme(self, rest: str) -> None:
        if rest:
            self._use_theme(rest)
            return
        names = list(get_args(Theme))
        current = names.index(self._theme_used or self._conversation.rest.settings.chat.theme)
        title = "Which colours? (↑ ↓, Enter; Esc leaves)"
        picker = Picker(title, names, lambda number: self._use_theme(names[number]), current)
        self._chat.screen.pick(picker)

    def _use_theme(self, name: str) -> None:
        settings = check_table(ChatSettings, {"theme": name})
        path = edit_user_file(self._chat.home, ("chat", "theme"), settings.theme)
        self._theme_used = settings.theme
        self._chat.screen.configure(self.chat_settings())
        note = "; NO_COLOR is set, so there are none" if os.environ.get("NO_COLOR") else ""
        self._say(f"  colours: {settings.theme}, from now on (kept in {path}){note}")

    def chat_settings(self) -> ChatSettings:
        """Those of the session, with the theme that was chosen since they were loaded."""
        found = self._conversation.rest.settings.chat
        return found if self._theme_used is None else found.replace(theme=self._theme_used)

    def _permissions(self, rest: str) -> None:
        grants = self._conversation.rest.session.memory.grants.listed()
        found = [f"granted ({each.scope}): {shown(each.key.sentence())}" for each in grants]
        self._list([*session_text.permissions(self._conversation), *found])

    def _export(self, rest: str) -> None:
        conversation = self._conversation
        text = "\n\n".join(markdown(stored_cells(conversation.history)))
        self._chat.page(f"session {conversation.id[:8]}", conversation.redactor.redact(text))

    def _copy(self, rest: str) -> None:
        name, text = copied_text(stored_cells(self._conversation.history), rest)
        text = self._conversation.redactor.redact(text)
        self._chat.spawn(self._copied(name, text))

    async def _copied(self, name: str, text: str) -> None:
        # Rarely needed.
        from toolrest.chat.composer.clipboard import set_clipboard

        sent, output = osc52(text), self._chat.screen.output
        output.write_raw(sent)
        output.flush()
        count = text.count("\n") + 1
        facts = f"{name} ({count:,} {'line' if count == 1 else 'lines'})"
        if await set_clipboard(text, [*self._conversation.rest.writable_roots, *tool_roots]):
            self._say(f"  Copied {facts}")
        elif sent:
            self._say(f"  Copied {facts}, if your terminal allows that (OSC 52)")
        else:
            self._say(f"  Not copied: {facts} is too long for a terminal; /export shows it")

    def _feedback(self, rest: str) -> None:
        self._chat.spawn(self._reported())

    async def _reported(self) -> None:
        conversation = self._conversation
        if self._chat.report is None:
            self._say("  write one with: toolrest report")
            return
        # It tries the sandbox, which takes a while.
        found = await asyncio.to_thread(
            self._chat.report, conversation.rest.config, conversation.journal.path
        )
        self._say(*(f"  {line}" for line in found))

    def _exit(self, rest: str) -> None:
        self._chat.leave()

    _quit = _exit


def _can_wrap(line: str, width: int) -> bool:
    """Whether a line can be wrapped between words; a path or an id is to be copied whole."""
    return max(map(text_width, line.split()), default=0) < width // 2


def _when(row: Summary) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(row.changed))
