"""`Agent`: a model with tools, ready to run a prompt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from toolrest.agent.conversation.output_type import OutputType
from toolrest.agent.conversation.prompt import opening_for
from toolrest.agent.front.streamed import Streamed
from toolrest.agent.offer import NamedTools
from toolrest.agent.open_session import fork as fork_session
from toolrest.agent.open_session import open_with, provided
from toolrest.agent.rest import Toolrest
from toolrest.errors import ConfigError, ToolDefinitionError
from toolrest.gate.context import Context

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation, Prompt
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.approval.user_questions import OnQuestion
    from toolrest.gate.session import Shared
    from toolrest.gate.tool.tool import Tool
    from toolrest.wire.model import Model

Out = TypeVar("Out")


class Agent(Generic[Out]):
    """A model with tools: `Agent("openai:gpt-5.5", tools=[weather]).run_sync("…").text`.

    `model` is `PROVIDER:NAME` (`openai`, `anthropic`, `openrouter`, `ollama`, `lmstudio`, `vllm`,
    or one of `settings["model_providers"]`), a bare name, or a `Model`. `tools` are functions,
    other agents, and built-in tools by name or group (`"files"`, `"shell"`, `"all"`); passing a
    function approves its calls. Commands run in the OS sandbox and may write in `workspace`.

    `output_type` is the type of `result.output`. `on_ask` answers what needs approval: a callback,
    `"deny"` (as without one), `"allow"`, `"fail"` or `"defer"`. `settings` takes any setting by its
    dotted name; `config=load_config()` takes the user's files instead. Without `home` nothing is
    kept after a session; with it, sessions can be resumed.

    An agent holds no connection and no file: each run opens a session and closes it. Functions run
    in this process, outside the sandbox.
    """

    @overload
    def __init__(
        self: Agent[str],
        model: str | Model | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str] = ".",
        instructions: str | None = None,
        on_ask: OnAsk | None = None,
        on_question: OnQuestion | None = None,
        settings: Mapping[str, Any] | None = None,
        config: Config | None = None,
        home: str | os.PathLike[str] | None = None,
        retries: int = 2,
        name: str = "agent",
        description: str = "",
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: str | Model | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str] = ".",
        instructions: str | None = None,
        output_type: type[Out],
        on_ask: OnAsk | None = None,
        on_question: OnQuestion | None = None,
        settings: Mapping[str, Any] | None = None,
        config: Config | None = None,
        home: str | os.PathLike[str] | None = None,
        retries: int = 2,
        name: str = "agent",
        description: str = "",
    ) -> None: ...

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        tools: Iterable[Any] = (),
        workspace: str | os.PathLike[str] = ".",
        instructions: str | None = None,
        output_type: Any = str,
        on_ask: OnAsk | None = None,
        on_question: OnQuestion | None = None,
        settings: Mapping[str, Any] | None = None,
        config: Config | None = None,
        home: str | os.PathLike[str] | None = None,
        retries: int = 2,
        name: str = "agent",
        description: str = "",
    ) -> None:
        if config is not None and (settings or home or isinstance(model, str)):
            raise TypeError("give either config or model, settings and home, not both")
        named = NamedTools(tools)
        self.name = name
        self.description = description
        self._model = None if isinstance(model, str) else model
        self._tools = [*named.own, *named.chosen]
        self._only_own = not named.has_built_in
        self.workspace = workspace
        self._instructions = instructions
        self._output: OutputType[Out] = OutputType(output_type, retries)
        self._on_ask = on_ask
        self._on_question = on_question
        self._config = config
        self._home = home
        self._settings = {**_model_settings(model), **(settings or {})}
        if self._only_own:
            # A function's changes are the program's own business, and a scan of "." takes time.
            self._settings.setdefault("checkpoints.enabled", False)
            self._instructions = instructions or ""

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, model={self._settings.get('model')!r})"

    # Running

    @property
    def home(self) -> str | None:
        """The folder that keeps the sessions; None when they are not kept."""
        home = self._config.home if self._config is not None else self._home
        return None if home is None else os.path.abspath(os.path.expanduser(os.fspath(home)))

    async def run(self, prompt: Prompt, *, deps: Any = None) -> TurnResult[Out]:
        """Run a prompt to its answer: `result.output`, `result.text`, `result.usage`.

        `deps` is what tools get as `ctx.deps`. AgentError when there is no answer. With
        `on_ask="defer"` the status may be `pending`; `session(resume=result.session_id)` goes on.
        """
        async with self.session(deps=deps) as conversation:
            return await conversation.run(prompt)

    def run_sync(self, prompt: Prompt, *, deps: Any = None) -> TurnResult[Out]:
        """`run` for programs without an event loop."""
        if _is_in_a_loop():
            raise RuntimeError("an event loop is running here: use `await agent.run(…)`")
        return asyncio.run(self.run(prompt, deps=deps))

    def stream(self, prompt: Prompt, *, deps: Any = None) -> Streamed[Out]:
        """The events of a run: `async with agent.stream("…") as events: async for event in events`.

        Or read `events.text()`, the answer piece by piece, and then `await events.result()`.
        """
        return Streamed(lambda: self.session(deps=deps), prompt)

    def session(
        self,
        *,
        resume: str | None = None,
        fork: str | None = None,
        deps: Any = None,
        on_ask: OnAsk | None = None,
        workspace: str | os.PathLike[str] | None = None,
        raises: bool = True,
    ) -> Conversation[Out]:
        """A conversation: a new one, an earlier one (`resume=ID`), or a copy of one (`fork=ID`).

        Earlier ones need the agent's `home`. With `raises=False` a turn without an answer is no
        AgentError; its result says so.
        """
        return self._open(resume, fork, deps, on_ask, workspace, raises=raises)

    def _open(
        self,
        resume: str | None = None,
        fork: str | None = None,
        deps: Any = None,
        on_ask: OnAsk | None = None,
        workspace: str | os.PathLike[str] | None = None,
        shares: Shared | None = None,
        raises: bool = True,
        output: OutputType[Any] | None = None,
        waits: bool = True,
    ) -> Conversation[Any]:
        self._check(deps)
        path = None
        if resume or fork:
            path = self._stored(resume, fork)
        asked = on_ask if on_ask is not None else self._on_ask

        def make_rest(session_id: str) -> Toolrest:
            return self._rest(session_id, asked, deps, workspace, shares)

        return open_with(
            make_rest,
            self._make_model,
            resume=path,
            ephemeral=self._home is None and self._config is None,
            environ=os.environ,
            opening=partial(opening_for, only_own=self._only_own),
            make_model=provided(os.environ),
            instructions=self._instructions,
            owns_model=self._model is None,
            holds_calls=True,
            shares=shares,
            output=self._output if output is None else output,
            raises=raises,
            waits=waits,
            interactive=callable(asked) and shares is None,
        )

    def open_for_person(
        self,
        resume: str | None = None,
        on_ask: OnAsk | None = None,
        workspace: str | os.PathLike[str] | None = None,
    ) -> Conversation[str]:
        """A conversation that a person reads: its answers are text, whatever `output_type` is.

        A turn without an answer is no error; its result says so.
        """
        return self._open(
            resume,
            on_ask=on_ask,
            workspace=workspace,
            raises=False,
            output=OutputType(str),
            waits=False,
        )

    def _check(self, deps: Any) -> None:
        """Raise TypeError where a tool takes `Context[X]` and `deps` is no X."""
        for tool in self._tools:
            wanted = getattr(tool, "deps", Any)
            if isinstance(wanted, type) and not _is_a(deps, wanted):
                raise TypeError(
                    f"{getattr(tool, 'name', tool)} takes Context[{wanted.__name__}]: "
                    f"deps must be a {wanted.__name__}, not {type(deps).__name__}"
                )

    def _rest(
        self,
        session_id: str,
        on_ask: OnAsk | None,
        deps: Any,
        workspace: str | os.PathLike[str] | None,
        shares: Shared | None,
    ) -> Toolrest:
        config = self._config
        usual = self.workspace if config is None else config.workspace or self.workspace
        return Toolrest(
            workspace or usual,
            tools=self._tools,
            settings=self._settings if config is None else None,
            home=self._home,  # None where there is a config
            config=config,
            on_ask=on_ask,
            on_question=self._on_question,
            session_id=session_id,
            deps=deps,
            shares=shares,
        )

    def _make_model(self, config: Config) -> Model:
        return self._model if self._model is not None else provided(os.environ)(config)

    def _stored(self, resume: str | None, fork: str | None) -> str:
        from toolrest.agent.history.stored_sessions import find_session

        if resume and fork:
            raise TypeError("give either resume or fork, not both")
        home = self.home
        if home is None:
            raise ConfigError("sessions are kept only with Agent(home=…); this agent has none")
        path = find_session(home, resume or fork or "").path
        return path if resume else find_session(home, fork_session(home, path)).path

    # As a tool

    def as_tool(self, name: str | None = None, description: str | None = None) -> Tool:
        """Return a tool that hands its prompt to this agent; `tools=[agent]` does the same.

        The agent's own calls pass its own gate; what it may not approve itself is asked through
        the calling session. Its tools get the caller's `deps`; its tokens count for the caller.
        """
        from toolrest.gate.tool.function_tool import FunctionTool

        async def ask(prompt: str, ctx: Context) -> Any:
            on_ask = self._on_ask if self._on_ask is not None else ctx.review
            # What one of them has read, the other may be told to send: they share the taint.
            async with self._open(
                deps=ctx.deps, on_ask=on_ask, shares=ctx.session.for_callee()
            ) as conversation:
                return (await conversation.run(prompt)).output

        ask.__annotations__ = {"prompt": str, "ctx": Context, "return": Any}
        text = description or self.description
        if not text:
            raise ToolDefinitionError(
                f"the agent {self.name!r} needs a description to be a tool: Agent(description=…)"
            )
        return FunctionTool(ask, name=name or self.name, description=text, mutating=False)


def _model_settings(model: str | Model | None) -> dict[str, Any]:
    """The setting that a model stands for: `PROVIDER:NAME`, a bare name, or an object's name."""
    if model is None or isinstance(model, str):
        return {"model": model}
    # A colon in an object's own name is not the end of a provider's.
    return {"model": f"openai:{model.name}" if ":" in model.name else model.name}


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_a(value: Any, kind: type) -> bool:
    try:
        return isinstance(value, kind)
    except TypeError:  # a Protocol that cannot be checked
        return True
