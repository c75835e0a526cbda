"""`Toolrest`: a session's tools behind one gate. It takes a model's calls and returns outputs."""

from __future__ import annotations

import asyncio
import copy
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from toolrest.agent.offer import NamedTools, Offer, row
from toolrest.agent.path_policy import default_workspace
from toolrest.agent.setup.leftovers import clear
from toolrest.agent.setup.session import make_session
from toolrest.agent.setup.temporary_home import TemporaryHome
from toolrest.agent.setup.tools import user_tools
from toolrest.agent.undo.turn_checkpoint import newest_turn, undo_turns
from toolrest.config.loader import default_config
from toolrest.errors import ConfigError, RespondToModel, ToolDefinitionError
from toolrest.events import Event
from toolrest.gate.bus import Listener
from toolrest.gate.call.turn import RunningCall, Turn
from toolrest.gate.tool.decorator import as_tool
from toolrest.gate.tool.freeform import takes_raw
from toolrest.gate.tool.tool import Tool
from toolrest.items import CustomToolCall, FunctionCall, JSONObject, ToolOutput, Wire
from toolrest.tools.catalog import ToolState, check_names, is_on, states

if TYPE_CHECKING:
    from toolrest.agent.undo.checkpoints import Undone
    from toolrest.agent.undo.plan import Own
    from toolrest.config import Config, Settings
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.approval.pending import PendingApproval
    from toolrest.gate.approval.request import ReviewDecision
    from toolrest.gate.approval.user_questions import OnQuestion
    from toolrest.gate.call.explain import Explanation
    from toolrest.gate.decision.repeated_calls import LoopWatch
    from toolrest.gate.hooks.hooks import Hooks
    from toolrest.gate.session import Sampler, Shared
    from toolrest.gate.tool.call import ToolCall
    from toolrest.mcp.pool import Pool
    from toolrest.policy.rules.rules import Rules
    from toolrest.tools.dynamic import DynamicCalls, OnDynamicCall
    from toolrest.tools.web.search_services import SearchFunction


class Toolrest:
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
        shares: Shared | None = None,
        dynamic_tools: Iterable[Mapping[str, Any]] = (),
        on_dynamic_call: OnDynamicCall | None = None,
    ) -> None:
        environ = os.environ if env is None else env
        single = {"approval_policy": approval_policy, "sandbox_mode": sandbox_mode, "model": model}
        silent = config is not None or tools is not None
        self._temporary: TemporaryHome | None = None
        if config is None:
            single["on_ask"] = on_ask if isinstance(on_ask, str) else None
            config = self._config_of(single, settings or {}, workspace, home, environ)
            tools = tools or ()
        elif settings or home or any(single.values()):
            raise TypeError("give either config or single settings, not both")
        named = _named(tools, shares)
        folder = default_workspace(workspace)
        is_child = shares is not None and shares.offers is not None
        self.warnings: list[str] = [] if is_child else clear(config.home, folder)
        """Messages about what was left: the user's own tools, or a patch that a crash cut off."""
        self.session = make_session(
            config,
            workspace=folder,
            session_id=session_id or uuid.uuid4().hex,
            on_ask=config.value.on_ask if on_ask is None else on_ask,
            on_question=on_question,
            environ=environ,
            call=self._made,
            named=named,
            deps=deps,
            shares=shares,
        )
        """What every call of it shares, for what is built on top: an agent or a server."""
        self._named = named
        self._turns: WeakSet[Turn] = WeakSet()
        self._closing: asyncio.Task[None] | None = None
        self._closed = False
        self._switched_off: list[Tool] = []
        self._offer = Offer(self.session, named, warns=not silent)
        self._dynamic: DynamicCalls | None = None
        self._add_own(() if tools is None or named is None else named.own, override)
        self._add_dynamic(list(dynamic_tools), on_dynamic_call)
        if config.from_files and not is_child:
            self._add_users(None if tools is None else named)
        if named is not None:
            named.check(self.session.registry)
        if not is_child:  # which gets its parent's tools, and settings that the parent has checked
            own_names = (name for tool in self._own() for name in (tool.name, *tool.aliases))
            check_names(self.settings, own_names)

    def _config_of(
        self,
        single: Mapping[str, Any],
        settings: Mapping[str, Any],
        workspace: str | os.PathLike[str],
        home: str | os.PathLike[str] | None,
        environ: Mapping[str, str],
    ) -> Config:
        """The settings of the arguments; without a home in a temporary one."""
        if home is None:
            self._temporary = TemporaryHome(self)
            home, single = self._temporary.path, {**single, **self._temporary.settings}
        return default_config({**single, **settings}, workspace=workspace, home=home, env=environ)

    def _add_own(self, own: Iterable[Tool], override: bool | Iterable[str]) -> None:
        for tool in own:
            wins = override if isinstance(override, bool) else tool.name in set(override)
            self.add_tool(tool, override=wins)

    def _add_dynamic(self, tools: list[Mapping[str, Any]], on_call: OnDynamicCall | None) -> None:
        if not tools:
            return
        from toolrest.tools.dynamic import DynamicCalls, add_dynamic_tools

        self._dynamic = DynamicCalls(on_call)
        for tool in add_dynamic_tools(self.session.registry, tools, self._dynamic):
            self.add_tool(tool, override=True, approved=False)

    def _add_users(self, named: NamedTools | None) -> None:
        """Add the user's own tools; those that the host program does not name are not offered."""
        for tool in user_tools(self.config.home, self.warnings):
            try:
                if named is None or named.names_it(tool) or not self._is_on(tool):
                    self.add_tool(tool, approved=False)
                else:
                    tool.offered = False
                    self.session.registry.add(tool)
            except ToolDefinitionError as error:
                self.warnings.append(f"tool {tool.name} is left out: {error}")

    @property
    def config(self) -> Config:
        """The settings, and the source of each."""
        return self.session.config

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.session.id

    @property
    def workspace(self) -> str:
        """The folder that it was made for."""
        return self.session.files.workspace

    @property
    def cwd(self) -> str:
        """The folder that relative paths and commands start from."""
        return self.session.files.cwd

    @property
    def writable_roots(self) -> tuple[str, ...]:
        """The folders that tools may write without leaving the sandbox."""
        return self.session.files.tool_roots

    @property
    def approval_policy(self) -> str:
        """The approval policy in force: that of the settings, or of the session's mode."""
        return self.session.approval_policy

    async def __aenter__(self) -> Self:
        self._start_servers()
        return self

    def _start_servers(self) -> None:
        if self.session.servers is not None and not self._closed:
            self.session.servers.start()

    @property
    def mcp(self) -> Pool | None:
        """The session's MCP servers, if any are configured."""
        return None if self.session.servers is None else self.session.pool()

    @property
    def has_servers(self) -> bool:
        """Whether any MCP servers are configured; loads nothing."""
        return self.session.servers is not None

    def sample_with(self, sampler: Sampler) -> None:
        """Let MCP servers ask for completions: `sampler` makes them once the user approves."""
        self.session.sampler.bind(sampler)

    async def wait_for_mcp(
        self, *names: str, required: bool = False, unknown: bool = False
    ) -> None:
        """Wait until MCP servers are ready or have failed: these, all, or the `required` ones.

        With `unknown` those, too, whose tools are not known from an earlier session.
        """
        servers = self.session.servers
        if servers is not None and (required or unknown):
            await servers.wait_first(everyone=unknown)
        elif servers is not None:
            await servers.wait(names or None)

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
        await self.session.aclose()
        if self._temporary is not None:
            self._temporary.remove()

    def add_tool(self, value: Any, *, override: bool = False, approved: bool = True) -> None:
        """Offer one more tool; taking the name of another needs `override=True`.

        Passing it approves it: if it declares no effects, its calls are not asked about, except in
        `strict`. With `approved=False` its name says how risky it is, and it is asked about.
        """
        tool = as_tool(value)
        if not self._is_on(tool):
            self._switched_off.append(tool)
            return
        self.session.registry.add(tool, override=override, approved=approved)
        if self._named is not None:
            self._named.add(tool)

    def _is_on(self, tool: Tool) -> bool:
        return is_on(tool, self.settings.tools, "/".join(tool.mcp or ()))

    def tool_states(self) -> list[ToolState]:
        """Every tool, offered or not: whether it can be called, and why it is not offered."""
        known = self.session.registry.known()
        found = states(self.settings.tools, known, self._switched_off, self.unoffered())
        aside = self.quarantined.items()
        return [
            *found,
            *(ToolState(name, False, False, f"set aside: {why}") for name, why in aside),
        ]

    def unoffered(self, wire: Wire | None = None) -> dict[str, str]:
        """Tools that are switched on and yet not offered on a wire, and why.

        Without a wire it is that of the model's provider.
        """
        if wire is None:
            from toolrest.wire.providers import provider_for  # for lists only

            try:
                wire = provider_for(self.config, self.session.environ).wire
            except ConfigError:
                wire = "responses"
        return self._offer.unoffered(wire)

    def _own(self) -> list[Tool]:
        """Tools that are not built in, those that are switched off too."""
        every = (*self.session.registry.known(), *self._switched_off)
        return [tool for tool in every if tool.group in ("user", "mcp")]

    def use_search(self, function: SearchFunction) -> None:
        """Let `web_search` ask this function: `(query, limit)` to rows of title, url, snippet."""
        from toolrest.tools.web.web_search import WebSearch

        tool = self.session.registry.get("web_search")
        if isinstance(tool, WebSearch):
            tool.own = function

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
        return (await self._made(name, arguments, call_id))[1]

    async def _made(
        self, name: str, arguments: Mapping[str, Any] | str | None, call_id: str | None = None
    ) -> tuple[ToolCall | None, ToolOutput]:
        """A call by name that was made, if it came to that, and its output."""
        item = self.item(call_id or f"call-{os.urandom(6).hex()}", name, arguments)
        async with self.turn().of_host() as turn:
            running = turn.start(item)
            output = await running.output()
            return running.made, output

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
        prompt: str = "",
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
        turn = Turn(self.session, before_mutation, commit, loops, prompt)
        self._turns.add(turn)
        return turn

    @property
    def pending(self) -> list[PendingApproval]:
        """Pending approvals of this session (`on_ask="defer"`), oldest first."""
        from toolrest.agent.setup.pending_approvals import waiting

        return waiting(self.session.approvals)

    async def resume(
        self, pending: PendingApproval, answer: ReviewDecision | None = "approved", note: str = ""
    ) -> ToolOutput:
        """Answer a pending approval, also of another process, and run its call at most once.

        With `answer=None` the stored answer of another process counts. PendingError has the reason
        why it cannot be used: changed, expired, used up, of another workspace. A call that is not
        exactly the one that was approved (its files changed meanwhile) asks anew.
        """
        from toolrest.agent.setup.pending_approvals import resume

        return await resume(self, self.session.approvals, pending, answer, note)

    async def cancel(self, call_id: str) -> ToolOutput:
        """Cancel a running call and return its aborted output, once its work is gone."""
        for turn in list(self._turns):
            running: RunningCall | None = turn.abort(call_id)
            if running is not None:
                return await running.output()
        raise RespondToModel(f"no running call has the id {call_id}")

    async def newest_turn(self) -> int | None:
        """The newest turn of this session that changed something and was not undone."""
        return await newest_turn(self.session.undo, self._own_turns)

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
        saver, mine = self.session.undo, self._own_turns if own else None
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
        return self.session.bus.subscribe(listener)

    def events(self) -> AsyncIterator[Event]:
        """Every event from now on, in order."""
        return self.session.bus.stream()

    # Looking

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.config.value

    @property
    def tools(self) -> list[Tool]:
        """Every tool on offer, in the order models see them."""
        return self.session.registry.listed()

    @property
    def quarantined(self) -> dict[str, str]:
        """Tools that were set aside, and why."""
        return dict(self.session.registry.quarantined)

    def find(self, name: str) -> Tool | None:
        """The tool that a call of this name reaches, offered or not."""
        return self.session.registry.get(name)

    def wire_name(self, tool: Tool) -> str:
        """The name under which models see this tool."""
        return self.session.registry.wire_name(tool)

    def skills_index(self) -> str:
        """The index of the skills, for the model; empty when there are none."""
        return self.session.skills.index()

    def supports_parallel(self, name: str) -> bool:
        """Whether a usual call of this tool may run beside others."""
        tool = self.find(name)
        if tool is None:
            raise KeyError(f"no tool named {name}")
        return tool.parallel

    def table(self) -> list[dict[str, object]]:
        """One row a tool: name, risk, mutating, parallel, kind and description."""
        return [row(tool) for tool in self.tools]

    def explain(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Explanation:
        """The decision on a call and its rule, without running it or asking for approval."""
        from toolrest.gate.call.explain import explain

        return explain(self.session, self.item("explain", name, arguments))

    @property
    def rules(self) -> Rules:
        """The rules for commands that are in force."""
        return self.session.known.rules

    def rule_warnings(self) -> tuple[str, ...]:
        """Warnings about them; usually empty."""
        return self.session.known.warnings()

    def effective_policy(self) -> dict[str, Any]:
        """Mode, sandbox, overrides, rules and grants in force, each with where it came from."""
        from toolrest.agent.reports.policy import effective_policy

        return effective_policy(self.session)

    def item(
        self, call_id: str, name: str, arguments: Mapping[str, Any] | str | None
    ) -> FunctionCall | CustomToolCall:
        """The call of a tool with these arguments, or with this raw text."""
        if isinstance(arguments, str):
            tool = self.find(name)
            if tool is not None and takes_raw(tool, arguments):
                return CustomToolCall(call_id, name, arguments)
        return FunctionCall(call_id, name, arguments or {})

    @property
    def hooks(self) -> Hooks:
        """The user's hooks; a session's start and end run them through this."""
        from toolrest.gate.hooks.hooks import Hooks

        walks = self.session.hooks
        return walks.hooks if walks is not None else Hooks.none()


def _named(tools: Iterable[Any] | None, shares: Shared | None) -> NamedTools | None:
    """What `tools=` names; a sub-agent without any has its parent's."""
    if tools is not None:
        return NamedTools(tools)
    offers = None if shares is None else shares.offers
    return offers if isinstance(offers, NamedTools) else None
