"""`Toolrest`: a session's tools behind one gate. It takes a model's calls and returns outputs."""

from __future__ import annotations

import asyncio
import copy
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from toolrest.agent.conversation.turn import Turn
from toolrest.agent.offer import NamedTools, Offer
from toolrest.agent.path_policy import default_workspace
from toolrest.agent.reports.session_view import SessionView
from toolrest.agent.setup.assemble import assemble
from toolrest.agent.setup.temporary_home import TemporaryHome
from toolrest.agent.undo.turn_checkpoint import newest_turn, undo_turns
from toolrest.config.loader import default_config
from toolrest.errors import RespondToModel
from toolrest.events import Event
from toolrest.gate.bus import Listener
from toolrest.gate.call.turn import RunningCall
from toolrest.gate.tool.decorator import as_tool
from toolrest.gate.tool.tool import Tool
from toolrest.items import JSONObject, ToolOutput, Wire
from toolrest.tools.catalog import ToolState, check_names, is_on, states

if TYPE_CHECKING:
    from toolrest.agent.mcp.server_requests import Sampler
    from toolrest.agent.undo.checkpoints import Undone
    from toolrest.agent.undo.plan import Own
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.approval.pending import PendingApproval
    from toolrest.gate.approval.request import ReviewDecision
    from toolrest.gate.approval.user_questions import OnQuestion
    from toolrest.gate.decision.repeated_calls import LoopWatch
    from toolrest.mcp.pool import Pool
    from toolrest.tools.dynamic import DynamicCalls, OnDynamicCall
    from toolrest.tools.web.search_services import SearchFunction


class Toolrest(SessionView):
    """Tools for one workspace, with their policy, schedule, limits, events and audit.

    ```python
    async with Toolrest(".", tools=[count_lines, "files"]) as rest:
        specs = rest.specs("chat")                # offer these to the model
        messages += await rest.answer(message)    # hand over its reply, send these back
    ```

    Offered is what `tools` names: your own tools, which passing approves, and built-in ones by
    name or group; `call` reaches every built-in tool. Without `home` the home (audit log, spill
    files, checkpoints) is a temporary folder that is gone after `aclose`.

    Many instances can live in one process; nothing is shared between them, and nothing global
    (signals, working folder, environment, root logger) is touched. Settings come from the
    arguments; pass `config=toolrest.load_config(...)` to honour the user's files as the command
    line does, and to offer what they say. `settings` takes any setting by its dotted name.
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] = ".",
        *,
        tools: Iterable[Any] | None = None,
        override: bool | Iterable[str] = False,
        approval_policy: str | None = None,
        sandbox_mode: str | None = None,
        on_ask: OnAsk | None = None,
        on_question: OnQuestion | None = None,
        model: str | None = None,
        settings: Mapping[str, Any] | None = None,
        home: str | os.PathLike[str] | None = None,
        config: Config | None = None,
        deps: Any = None,
        env: Mapping[str, str] | None = None,
        session_id: str | None = None,
        parent: Toolrest | None = None,
        dynamic_tools: Iterable[Mapping[str, Any]] = (),
        on_dynamic_call: OnDynamicCall | None = None,
    ) -> None:
        environ = os.environ if env is None else env
        self._temporary: TemporaryHome | None = None
        silent = config is not None or tools is not None
        if config is None:
            given = {
                "approval_policy": approval_policy,
                "sandbox_mode": sandbox_mode,
                "model": model,
                "on_ask": on_ask if isinstance(on_ask, str) else None,
            }
            if home is None:
                self._temporary = TemporaryHome(self)
                home, given = self._temporary.path, given | self._temporary.settings
            given |= settings or {}
            config = default_config(given, workspace=workspace, home=home, env=environ)
            tools = tools or ()
        elif settings or approval_policy or sandbox_mode or model or home:
            raise TypeError("give either config or single settings, not both")
        named = None if tools is None else NamedTools(tools)
        own = () if named is None else named.own
        named = parent._named if named is None and parent is not None else named
        self.config = config
        self.session_id = session_id or uuid.uuid4().hex
        self._session = assemble(
            config,
            workspace=default_workspace(workspace),
            session_id=self.session_id,
            on_ask=on_ask if on_ask is not None else config.value.on_ask,
            environ=environ,
            parent=parent.gate.services if parent is not None else None,
            on_question=on_question,
            named=() if named is None else named.names,
        )
        self._gate = self._session.gate
        if self._session.mcp is not None or (parent and parent.gate.services.mcp_access):
            # It needs what few sessions load.
            from toolrest.agent.mcp.access import McpAccess

            self._gate.services.mcp_access = McpAccess(self._gate.services, self.call)
        self._gate.services.deps = deps
        self._turns: WeakSet[Turn] = WeakSet()
        self._closing: asyncio.Task[None] | None = None
        self._named: NamedTools | None = named
        self._offer = Offer(self._gate.registry, config, named, warns=not silent)
        self._closed = False
        self._switched_off: list[Tool] = []
        if named is not None:
            self._gate.registry.offers = named
            named.check(self._gate.registry)
        for tool in own:
            wins = override if isinstance(override, bool) else tool.name in set(override)
            self.add_tool(tool, override=wins)
        self._dynamic: DynamicCalls | None = None
        if dynamic := list(dynamic_tools):
            from toolrest.tools.dynamic import DynamicCalls, add_dynamic_tools

            self._dynamic = DynamicCalls(on_dynamic_call)
            for tool in add_dynamic_tools(self._gate.registry, dynamic, self._dynamic):
                self.add_tool(tool, override=True, approved=False)
        if not config.from_files:  # else the user's own tools come first
            self.check_tool_names()

    async def __aenter__(self) -> Self:
        self._start_servers()
        return self

    def _start_servers(self) -> None:
        if self._session.mcp is not None and not self._closed:
            self._session.mcp.start()

    @property
    def mcp(self) -> Pool | None:
        """The session's MCP servers, if any are configured."""
        return None if self._session.mcp is None else self._session.mcp.session.pool

    @property
    def has_servers(self) -> bool:
        """Whether any MCP servers are configured; loads nothing."""
        return self._session.mcp is not None

    def sample_with(self, sampler: Sampler) -> None:
        """Let MCP servers ask for completions: `sampler` makes them once the user approves."""
        if self._session.mcp is not None:
            self._session.mcp.sample_with(sampler)

    async def wait_for_mcp(self, *names: str, required: bool = False) -> None:
        """Wait until MCP servers are ready or have failed: these, all, or the `required` ones."""
        if self._session.mcp is not None:
            await self._session.mcp.wait(names or None, required=required)

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what still runs and close the session's files. Twice does no harm.

        Once begun it goes through to the end, also when the closing task is cancelled.
        """
        from toolrest.process.wakeup import uncancelled

        self._closed = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await uncancelled(self._closing)

    async def _close(self) -> None:
        if self._dynamic is not None:
            self._dynamic.close()
        for turn in list(self._turns):
            await turn.cancel()
        await self._session.aclose()
        self._gate.services.bus.close()
        if self._temporary is not None:
            self._temporary.remove()

    def add_tool(self, value: Any, *, override: bool = False, approved: bool = True) -> None:
        """Offer one more tool; taking the name of another needs `override=True`.

        Passing it approves it: if it declares no effects, its calls are not asked about, except in
        `strict`. With `approved=False` its name says how risky it is, and it is asked about.
        """
        tool = as_tool(value)
        if not is_on(tool, self.settings.tools, "/".join(tool.mcp or ())):
            self._switched_off.append(tool)
            return
        registry = self._gate.registry
        registry.add(tool, override=override)
        if approved:
            registry.approved.add(tool)
        if self._named is not None:
            self._named.add(tool)

    def check_tool_names(self) -> None:
        """Raise ConfigError for a name in `[tools]` that means no tool; call it after adding."""
        own = self._own()
        check_names(self.settings, (name for tool in own for name in (tool.name, *tool.aliases)))

    def tool_states(self) -> list[ToolState]:
        """Every tool, offered or not: whether it can be called, and why it is not offered."""
        return states(self.settings.tools, self._gate.registry.known(), self._switched_off)

    def _own(self) -> list[Tool]:
        """Tools that are not built in, those that are switched off too."""
        every = (*self._gate.registry.known(), *self._switched_off)
        return [tool for tool in every if tool.group in ("user", "mcp")]

    def use_search(self, function: SearchFunction) -> None:
        """Let `web_search` ask this function: `(query, limit)` to rows of title, url, snippet."""
        from toolrest.tools.web.web_search import FUNCTION

        self._gate.services.state[FUNCTION] = function

    def specs(self, wire: Wire) -> list[Any]:
        """The tools in the form that a model API takes; byte-identical between runs.

        A tool whose schema cannot be used is set aside (see `quarantined`); the rest work.
        """
        return copy.deepcopy(self.offered(wire))

    def offered(self, wire: Wire) -> list[JSONObject]:
        """The specs without a copy, the same list each time: not to be changed."""
        return self._offer.specs(wire)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        call_id: str | None = None,
    ) -> ToolOutput:
        """Call a tool by name, as a turn of its own. Failures come back in the output.

        The arguments are a mapping or JSON text; a freeform tool, and `apply_patch`, take raw text.
        """
        item = self.item(call_id or f"call-{os.urandom(6).hex()}", name, arguments)
        async with self.turn().of_host() as turn:
            return await turn.start(item).output()

    async def answer(self, reply: Any) -> list[Any]:
        """Run every tool call in a model's reply and return what to send back, in its own wire.

        Takes a Responses response, its output list or one item; a Chat Completions message or
        completion; an Anthropic message or its content; as JSON (also its text), objects of the
        `openai` and `anthropic` packages (also raw responses, and coroutines not awaited yet), or
        streams. Of a stream (or a list of its events) the model's own message comes first. No
        calls: an empty list. Anything that is no reply is a TypeError; an error instead of a
        reply, or a stream that broke off, a ModelError.
        """
        async with self.turn() as turn:
            return await turn.answer(reply)

    def turn(
        self,
        before_mutation: Callable[[], Awaitable[None]] | None = None,
        commit: Callable[[], Awaitable[None]] | None = None,
        *,
        loops: LoopWatch | None = None,
    ) -> Turn:
        """A turn: start calls as they arrive, take the outputs in call order.

        `before_mutation` is awaited once, before the first call that may change something (a
        checkpoint, say), `commit` before each of them (a journal, say); readers never wait for
        them. `turn.failure` is the reason of a failed turn. `loops` counts repeated calls; by
        default that of all turns of this session that have none of their own.
        """
        if self._closed:
            raise RuntimeError("this Toolrest is closed")
        self._start_servers()
        turn = Turn(self._gate, before_mutation, commit, self._session.saver, loops)
        self._turns.add(turn)
        return turn

    @property
    def pending(self) -> list[PendingApproval]:
        """Pending approvals of this session (`on_ask="defer"`), oldest first."""
        from toolrest.agent.setup.pending_approvals import waiting

        return waiting(self._gate.services.approvals)

    async def resume(
        self, pending: PendingApproval, answer: ReviewDecision | None = "approved", note: str = ""
    ) -> ToolOutput:
        """Answer a pending approval, also of another process, and run its call at most once.

        With `answer=None` the stored answer of another process counts. PendingError has the reason
        why it cannot be used: changed, expired, used up, of another workspace. A call that is not
        exactly the one that was approved (its files changed meanwhile) asks anew.
        """
        from toolrest.agent.setup.pending_approvals import resume

        return await resume(self, self._gate.services.approvals, pending, answer, note)

    async def cancel(self, call_id: str) -> ToolOutput:
        """Cancel a running call and return its aborted output, once its work is gone."""
        for turn in list(self._turns):
            running: RunningCall | None = turn.abort(call_id)
            if running is not None:
                return await running.output()
        raise RespondToModel(f"no running call has the id {call_id}")

    async def newest_turn(self) -> int | None:
        """The newest turn of this session that changed something and was not undone."""
        return await newest_turn(self._session.saver, self._own_turns)

    async def undo(
        self,
        turn: int | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
        own: bool = False,
    ) -> Undone:
        """Undo what the newest turn changed in the workspace, or turn N and all after it.

        Only paths that these turns changed are touched; later changes by others stay unless
        `force`. With `own`, UndoError unless the newest turn is this session's. The undo is itself
        a turn: `undo(result.number)` undoes it.
        """
        saver, mine = self._session.saver, self._own_turns if own else None
        return await undo_turns(
            saver, self.session_id, turn, force=force, dry_run=dry_run, own=mine
        )

    def _own_turns(self) -> Own:
        from toolrest.agent.history.copies import own_turns

        return own_turns(self.config.home, self.session_id)

    def respond(self, call_id: str, output: str, *, success: bool = True) -> None:
        """Answer a `dynamic_tool_call_request`; KeyError when no such call waits."""
        if self._dynamic is None:
            raise KeyError("this session has no dynamic tools")
        self._dynamic.respond(call_id, {"output": output, "success": success})

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on; returns a function that unsubscribes."""
        return self._gate.services.bus.subscribe(listener)

    def events(self) -> AsyncIterator[Event]:
        """Every event from now on, in order."""
        return self._gate.services.bus.stream()
