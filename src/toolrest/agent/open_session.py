"""Open a session: new, resumed from its journal, or forked from another."""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolrest import __version__
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.prompt import Opening, base_instructions, opening_for
from toolrest.agent.history.journal import HeldRollout, NoJournal, SessionJournal
from toolrest.agent.rest import Toolrest
from toolrest.agent.setup.hooks import agent_hooks
from toolrest.agent.subagents.delegation import delegate
from toolrest.config.trust import git_root
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.wire.providers import model_for, with_default_model

if TYPE_CHECKING:
    from toolrest.agent.conversation.output_type import OutputType
    from toolrest.agent.conversation.result import Output
    from toolrest.agent.history.rollout import Rollout
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.session import Shared
    from toolrest.wire.model import Model, Usage

_WITH_PERSON = ("chat", "acp", "host")
"""Sources of sessions with a person, who is not kept waiting for MCP servers."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def open_session(
    config: Config,
    model: Model | None = None,
    *,
    resume: str | None = None,
    ephemeral: bool = False,
    on_ask: OnAsk | None = None,
    env: Mapping[str, str] | None = None,
    make_model: Callable[[Config], Model] | None = None,
    source: str = "exec",
    trusted: bool | None = None,
) -> Conversation:
    """A session with these settings; `resume` is the path of an earlier one's rollout.

    Without a model, the one that the settings name. `make_model` makes it, and those of
    sub-agents; a session that gets only a model has no sub-agents. `ephemeral` writes no
    journal. Every `source` but `exec` is a front end where a person goes along.
    """
    environ = os.environ if env is None else env
    if model is None:
        if make_model is None:
            config = with_default_model(config, environ)
        make_model = make_model or provided(environ)
        model = make_model(config)

    def make_rest(session_id: str) -> Toolrest:
        return Toolrest(
            config.workspace or ".", config=config, on_ask=on_ask, env=environ,
            session_id=session_id,
        )  # fmt: skip

    return open_with(
        make_rest,
        lambda _: model,
        resume=resume,
        ephemeral=ephemeral,
        environ=environ,
        make_model=make_model,
        source=source,
        interactive=source != "exec",
        opening=lambda rest: opening_for(rest, trusted=trusted),
        waits=source not in _WITH_PERSON,
    )


def open_with(
    make_rest: Callable[[str], Toolrest],
    main_model: Callable[[Config], Model],
    *,
    resume: str | None,
    ephemeral: bool,
    environ: Mapping[str, str],
    opening: Callable[[Toolrest], Opening],
    make_model: Callable[[Config], Model] | None = None,
    source: str = "library",
    instructions: str | None = None,
    owns_model: bool = True,
    holds_calls: bool = False,
    shares: Shared | None = None,
    output: OutputType[Output] | None = None,
    raises: bool = False,
    waits: bool = True,
    interactive: bool = False,
) -> Conversation[Output]:
    """A session with the tools that `make_rest` makes for its id, and this model.

    `make_model` makes the models of sub-agents; without it there are none. A model that the
    session does not own is theirs, too.
    """
    begins = Resumed(resume, holds=not ephemeral) if resume else New(source)
    journal: SessionJournal = NoJournal()
    try:
        rest = make_rest(begins.id)
        model = main_model(rest.config)
        if not ephemeral:
            journal = SessionJournal(rest.session.redactor)
        conversation: Conversation[Output] = Conversation(
            rest,
            model,
            journal=journal,
            history=begins.history,
            usage=begins.usage,
            spent=begins.spent,
            opening=opening(rest),
            instructions=begins.instructions(rest.config) if instructions is None else instructions,
            hooks=agent_hooks(rest, resumed=resume is not None),
            agents=delegate(rest, make_model, environ=environ, shared=None if owns_model else model)
            if make_model
            else None,
            owns_model=owns_model,
            holds_calls=holds_calls,
            shares=shares,
            output=output,
            raises=raises,
            waits=waits,
            interactive=interactive,
        )
        if rest.settings.notify:
            from toolrest.agent.setup.notify import notify_turns

            notify_turns(rest, environ)
        begins.enter(conversation)
    except BaseException:
        journal.close()
        begins.close()
        raise
    return conversation


def provided(environ: Mapping[str, str]) -> Callable[[Config], Model]:
    """What makes the model that the settings name."""

    def make(config: Config) -> Model:
        return model_for(config, environ)

    return make


class New:
    """The beginning of a new session: an id, and nothing said yet."""

    history: Sequence[JSONObject] = ()
    usage: Usage | None = None
    spent: Mapping[str, Usage] | None = None

    def __init__(self, source: str) -> None:
        self.id = str(uuid.uuid4())
        self._source = source

    def instructions(self, config: Config) -> str:
        """The instructions of the settings."""
        return base_instructions(config.value)

    def enter(self, conversation: Conversation) -> None:
        """Start the journal."""
        if not isinstance(conversation.journal, NoJournal):
            _create(conversation, self._source)

    def close(self) -> None:
        """Give up what is held."""


class Resumed(New):
    """The beginning of an earlier session's next run: its rollout, locked before it is read."""

    def __init__(self, path: str, *, holds: bool) -> None:
        from toolrest.agent.history.rollout import read_rollout

        self._held = HeldRollout(path) if holds else None
        try:
            rollout = self._rollout = read_rollout(path)
            self.id, self.history = rollout.thread_id, rollout.items
            self.usage, self.spent = rollout.usage, rollout.spent
            if not _ID.fullmatch(self.id):
                raise ConfigError(f"{path}: the session's id {self.id!r} cannot be used")
        except BaseException:
            self.close()
            raise

    def instructions(self, config: Config) -> str:
        """The session's own instructions, unless the settings now name a file."""
        if config.value.model_instructions_file is None:
            stored = self._rollout.meta.get("base_instructions")
            text = stored.get("text") if isinstance(stored, dict) else None
            if isinstance(text, str) and text:
                return text
        return super().instructions(config)

    def enter(self, conversation: Conversation) -> None:
        """Go on with the journal, and tell what differs from the earlier run."""
        if self._held is not None:
            conversation.journal.resume(self._held, self._rollout.lines)
        conversation.transcript.never_again(self._rollout.call_ids)
        conversation.weak_sandbox_said = self._rollout.weak_sandbox_said
        if self._rollout.loss is not None:
            conversation.warnings.append(self._rollout.loss)
        _note_differences(conversation, self._rollout)

    def close(self) -> None:
        """Unlock the rollout, unless the journal has it."""
        if self._held is not None:
            self._held.close()


def _create(conversation: Conversation, source: str) -> None:
    def meta(now: str) -> JSONObject:
        cwd = conversation.rest.cwd
        return {
            "id": conversation.id,
            "session_id": conversation.id,
            "timestamp": now,
            "cwd": cwd,
            "originator": "toolrest",
            "cli_version": __version__,
            "source": source,
            "model_provider": getattr(getattr(conversation.model, "provider", None), "id", None),
            "base_instructions": {"text": conversation.instructions},
            "git": git_facts(cwd),
        }

    conversation.journal.create(conversation.rest.config.home, conversation.id, meta)


def _note_differences(conversation: Conversation, rollout: Rollout) -> None:
    before = rollout.context.get("model")
    if isinstance(before, str) and before != conversation.model.name:
        message = (
            f"this session was recorded with {before} and goes on with {conversation.model.name}"
        )
        conversation.warnings.append(message)
    there, here = rollout.meta.get("cwd"), conversation.rest.cwd
    if isinstance(there, str) and there != here:
        conversation.warnings.append(f"this session was recorded in {there} and goes on in {here}")


def git_facts(cwd: str) -> JSONObject | None:
    """Branch and commit of the folder, read from git's own files; None outside a repository."""
    root = git_root(cwd)
    head = _line(os.path.join(root, ".git", "HEAD")) if root else None
    if head is None or root is None:
        return None
    if not head.startswith("ref: "):
        return {"commit_hash": head}
    ref = head[5:]
    facts: JSONObject = {"branch": ref.removeprefix("refs/heads/")}
    commit = _line(os.path.join(root, ".git", *ref.split("/"))) if ".." not in ref else None
    return facts | {"commit_hash": commit} if commit else facts


def _line(path: str) -> str | None:
    """The first line of one of git's files; None for a link or a pipe that a repository has."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, 500) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    line = data.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return line if line.startswith("ref: ") or _HASH.fullmatch(line) else None


def fork(home: str, path: str, keep: int | None = None) -> str:
    """Copy a session, or its first `keep` items, under a new id; returns the id.

    The original stays as it is.
    """
    from toolrest.agent.history.rollout import read_rollout

    rollout = read_rollout(path)
    new = str(uuid.uuid4())
    journal = SessionJournal()
    before = rollout.meta
    try:
        journal.create(
            home,
            new,
            lambda now: {
                **before, "id": new, "session_id": new, "timestamp": now,
                "forked_from_id": rollout.thread_id,
            },
        )  # fmt: skip
        for item in rollout.items[:keep]:
            journal.write("response_item", item)
        if rollout.context:
            journal.write("turn_context", rollout.context)
    finally:
        journal.close()
    return new
