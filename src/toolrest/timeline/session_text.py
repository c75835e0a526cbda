"""Answers to slash commands as lines of text, and prompts that stand for commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolrest.private_files import regular_file
from toolrest.sandbox.weak import WEAK, WEAK_SENTENCE
from toolrest.timeline.draw import dollars

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation

INIT = """\
Look around in this folder and write an AGENTS.md for those who work on it with tools like you: what
it is, how it is built and tested, the layout, the habits of its code. Short, exact, checked by \
running what you write down. If there is one already, improve it."""
_PRICES = " (a price is not known: set [model_prices] in config.toml)"


def status(conversation: Conversation) -> list[str]:
    """Model, folder, sandbox, approvals, tokens, session."""
    total = conversation.accounting.total
    window, cost = conversation.accounting.window, conversation.accounting.cost()
    share = f"{conversation.tokens / window:.0%} of {window:,}" if window else "window –"
    return [
        f"model      {conversation.model.name}",
        f"folder     {conversation.rest.workspace}",
        *_sandbox(conversation),
        f"approvals  {conversation.rest.approval_policy}",
        f"context    {conversation.tokens:,} tokens, {share}",
        f"used       {total.input:,} tokens in ({total.cached_input:,} of them cached), "
        f"{total.output:,} out",
        f"cost       {dollars(cost)}{_PRICES if cost is None else ''}",
        f"session    {conversation.id}",
    ]


def is_weak(conversation: Conversation) -> bool:
    """Whether the session's sandbox was found, and is a weak one."""
    runner = conversation.rest.session.runner.made
    return runner is not None and runner.enclosure.weak


def _sandbox(conversation: Conversation) -> list[str]:
    settings = conversation.rest.settings
    line = f"sandbox    {settings.sandbox_mode}"
    runner = conversation.rest.session.runner.made
    if runner is not None and runner.enclosure.why_none:
        return [line, runner.enclosure.why_none]
    if not is_weak(conversation):
        return [line]
    if settings.sandbox.accept_weak:
        return [f"{line}, {WEAK}"]
    return [line, WEAK_SENTENCE]


def tools(conversation: Conversation) -> list[str]:
    """The tools on offer, with their risk."""
    rows = conversation.rest.table()
    width = max((len(str(row["name"])) for row in rows), default=0)
    return [f"{row['name']:<{width}}  {row['risk']}" for row in rows]


def mcp(conversation: Conversation) -> list[str]:
    """MCP servers and their state."""
    pool = conversation.rest.mcp
    found = [f"{name}: {c.state}" for name, c in pool.connections.items()] if pool else []
    return found or ["No MCP server is configured; `toolrest mcp add` adds one."]


def permissions(conversation: Conversation) -> list[str]:
    """What is asked about, and where grants are."""
    policy = conversation.rest.approval_policy
    return [
        f"approvals {policy}, sandbox {conversation.rest.settings.sandbox_mode}",
        "stored grants: toolrest grants list",
        "what a command would get: toolrest policy check",
    ]


async def undo(conversation: Conversation, turn: int | None = None) -> list[str]:
    """Take back what the session's last turn changed; what was put back, and what was not.

    UndoError when that is another turn than `turn`: a person was shown that one.
    """
    result = await conversation.rest.undo(turn, own=True)
    done = [f"{item.action} {item.path}" for item in result.done]
    left = [
        f"{what}: {kept.path} ({kept.why})"
        for what, paths in (
            ("not done", result.failed),
            ("stays", result.plan.kept),
            ("cannot be brought back", result.plan.lost),
        )
        for kept in paths
    ]
    if not done:
        return ["Undid nothing:" if left else "There is nothing to undo.", *left]
    files = f"{len(done)} file{'s' * (len(done) != 1)}"
    rest = f", {len(left)} left as they are" if left else ""
    return [f"Undid the last turn: {files}{rest}", *done, *left]


def own_prompts(home: str) -> dict[str, str]:
    """The user's own prompts in `$TOOLREST_HOME/prompts`: the path of each by its name."""
    folder = os.path.join(home, "prompts")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    return {
        name[:-3]: os.path.join(folder, name)
        for name in names
        if name.endswith(".md") and name[:-3].replace("-", "_").isidentifier()
    }


def own_prompt(path: str, arguments: str) -> str:
    """The text of one of them, with the arguments in it or behind it."""
    with open(path, encoding="utf-8", errors="replace", opener=regular_file) as file:
        text = file.read()
    if "$ARGUMENTS" in text:
        return text.replace("$ARGUMENTS", arguments).strip()
    return f"{text}\n{arguments}".strip()
