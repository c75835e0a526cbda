"""Open a session: new, resumed from its journal, or forked from another."""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from toolrest import __version__
from toolrest.agent.conversation.prompt import Opening, base_instructions, opening_for
from toolrest.agent.conversation.session import AgentSession
from toolrest.agent.history.journal import HeldRollout, NoJournal, SessionJournal
from toolrest.agent.rest import Toolrest
from toolrest.agent.setup.hooks import agent_hooks
from toolrest.agent.subagents.delegation import delegate
from toolrest.config.trust import git_root
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.wire.providers import model_for, with_default_model

if TYPE_CHECKING:
    from toolrest.agent.history.rollout import Rollout
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk
    from toolrest.gate.session import Shared
    from toolrest.wire.model import Model

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
) -> AgentSession:
    """A session with these settings; `resume` is the path of an earlier one's rollout.

    Without a model, the one that the settings name. `make_model` makes it, and those of
    sub-agents; a session that gets only a model has no sub-agents. `ephemeral` writes no
    journal.
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
        opening=lambda rest: opening_for(rest, trusted=trusted),
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
) -> AgentSession:
    """A session with the tools that `make_rest` makes for its id, and this model.

    `make_model` makes the models of sub-agents; without it there are none.
    """
    held = HeldRollout(resume) if resume and not ephemeral else None
    journal: SessionJournal = NoJournal()
    try:
        rollout = _rollout(resume) if resume else None
        rest = make_rest(rollout.thread_id if rollout else str(uuid.uuid4()))
        model = main_model(rest.config)
        if instructions is None:
            instructions = _instructions(rest.config, rollout)
        if not ephemeral:
            journal = SessionJournal(rest.session.redactor)
        if held is not None and rollout is not None:
            journal.resume(held, rollout.lines)
        session = AgentSession(
            rest,
            model,
            journal=journal,
            history=rollout.items if rollout else (),
            usage=rollout.usage if rollout else None,
            spent=rollout.spent if rollout else None,
            opening=opening(rest),
            instructions=instructions,
            hooks=agent_hooks(rest, resumed=rollout is not None),
            agents=delegate(rest, make_model, environ=environ) if make_model else None,
            owns_model=owns_model,
            holds_calls=holds_calls,
            shares=shares,
        )
        if rest.settings.notify:
            from toolrest.agent.setup.notify import notify_turns

            notify_turns(rest, environ)
        if rollout is None and not ephemeral:
            _create(journal, session, source)
    except BaseException:
        journal.close()
        if held is not None:
            held.close()
        raise
    if rollout is not None:
        session.history.never_again(rollout.call_ids)
        _note_differences(session, rollout)
    return session


def provided(environ: Mapping[str, str]) -> Callable[[Config], Model]:
    """What makes the model that the settings name."""

    def make(config: Config) -> Model:
        return model_for(config, environ)

    return make


def _rollout(path: str) -> Rollout:
    from toolrest.agent.history.rollout import read_rollout

    rollout = read_rollout(path)
    if not _ID.fullmatch(rollout.thread_id):
        raise ConfigError(f"{path}: the session's id {rollout.thread_id!r} cannot be used")
    return rollout


def _instructions(config: Config, rollout: Rollout | None) -> str:
    """The instructions; a resumed session keeps its own, unless the settings now name a file."""
    if rollout is not None and config.value.model_instructions_file is None:
        stored = rollout.meta.get("base_instructions")
        text = stored.get("text") if isinstance(stored, dict) else None
        if isinstance(text, str) and text:
            return text
    return base_instructions(config.value)


def _create(journal: SessionJournal, session: AgentSession, source: str) -> None:
    def meta(now: str) -> JSONObject:
        cwd = session.rest.session.files.cwd
        return {
            "id": session.thread_id,
            "session_id": session.thread_id,
            "timestamp": now,
            "cwd": cwd,
            "originator": "toolrest",
            "cli_version": __version__,
            "source": source,
            "model_provider": getattr(getattr(session.model, "provider", None), "id", None),
            "base_instructions": {"text": session.instructions},
            "git": git_facts(cwd),
        }

    journal.create(session.rest.config.home, session.thread_id, meta)


def _note_differences(session: AgentSession, rollout: Rollout) -> None:
    before = rollout.context.get("model")
    if isinstance(before, str) and before != session.model.name:
        message = f"this session was recorded with {before} and goes on with {session.model.name}"
        session.warnings.append(message)
    there, here = rollout.meta.get("cwd"), session.rest.session.files.cwd
    if isinstance(there, str) and there != here:
        session.warnings.append(f"this session was recorded in {there} and goes on in {here}")


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
