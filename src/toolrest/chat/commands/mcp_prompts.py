"""Prompts of MCP servers as slash commands: `/SERVER:PROMPT arguments`."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolrest.errors import ToolrestError
from toolrest.items import JSONObject
from toolrest.timeline.text import shown

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest


class PromptError(ToolrestError):
    """A server's prompt that cannot be used as it was asked for."""


class McpPrompts:
    """The prompts of a session's servers; they are listed when the person begins a command."""

    def __init__(self, rest: Toolrest) -> None:
        self._rest = rest
        self._rows: dict[str, JSONObject] = {}
        self._failed: dict[str, str] = {}
        """The servers whose prompts cannot be listed, with the reasons."""
        self._loop = asyncio.get_running_loop()
        self._listing: asyncio.Task[None] | None = None

    def known(self) -> dict[str, str]:
        """The commands that are known by now, with their helps; from any thread."""
        if self._rest.has_servers and self._listing is None:
            self._loop.call_soon_threadsafe(self._begin)
        return {
            shown(name): shown(str(row.get("description") or "a prompt of that server"))
            for name, row in self._rows.items()
        }

    def _begin(self) -> asyncio.Task[None]:
        if self._listing is None:
            self._listing = asyncio.ensure_future(self._list())
        return self._listing

    async def _list(self) -> None:
        pool = self._rest.mcp
        found, self._failed = await pool.prompts() if pool is not None else ({}, {})
        for server, rows in found.items():
            for row in rows:
                if isinstance(row, dict) and isinstance(name := row.get("name"), str):
                    self._rows[f"{server}:{name}"] = row
        if self._failed:
            self._listing = None  # a server that was starting may be there the next time

    def is_one(self, name: str) -> bool:
        """Whether a command may be a prompt of one of the servers."""
        pool = self._rest.mcp if ":" in name and self._rest.has_servers else None
        return pool is not None and name.partition(":")[0] in pool.connections

    async def text(self, name: str, words: str) -> str:
        """The prompt, filled in by its server; PromptError says what is missing."""
        server = name.partition(":")[0]
        await self._rest.wait_for_mcp(server)
        await self._begin()
        if name not in self._rows and server in self._failed:
            await self._begin()  # that list was begun before the server was there
        row, pool = self._rows.get(name), self._rest.mcp
        if row is None or pool is None:
            listed = ", ".join(f"/{shown(each)}" for each in self._rows) or "none"
            failed = "".join(f"; {shown(s)}: {shown(why)}" for s, why in self._failed.items())
            raise PromptError(
                f"there is no prompt /{shown(name)}; the servers have: {listed}{failed}"
            )
        given = _arguments(name, row, words)
        result = await pool.get_prompt(server, str(row["name"]), given)
        self._rest.session.taint.note_external(f"the prompt {name}")
        messages = result.get("messages")
        texts = [_text(each) for each in messages] if isinstance(messages, list) else []
        text = "\n\n".join(each for each in texts if each)
        if not text:
            raise PromptError(f"/{shown(name)} came without a text")
        return text


def _arguments(name: str, row: JSONObject, words: str) -> dict[str, str]:
    """Words as the prompt's arguments: `name=value`, the others in order, the last takes the rest.

    PromptError names those that are missing.
    """
    rows = row.get("arguments")
    known = [each for each in rows if isinstance(each, dict)] if isinstance(rows, list) else []
    names = [str(each.get("name")) for each in known]
    found: dict[str, str] = {}
    loose: list[str] = []
    for word in _split(words):
        key, equals, value = word.partition("=")
        if equals and key in names:
            found[key] = value
        else:
            loose.append(word)
    open_ = [each for each in names if each not in found]
    for number, each in enumerate(open_[: len(loose)]):
        last = number == len(open_) - 1
        found[each] = " ".join(loose[number:]) if last else loose[number]
    wanted = [str(each.get("name")) for each in known if each.get("required")]
    missing = [each for each in wanted if each not in found]
    if missing or (loose and not open_):
        usage = " ".join(f"{each}=…" for each in names)
        problem = f"it wants {', '.join(missing)}" if missing else "it takes no more arguments"
        raise PromptError(shown(f"/{name}: {problem}; write: /{name} {usage}".rstrip()))
    return found


def _split(words: str) -> Sequence[str]:
    try:
        return shlex.split(words)
    except ValueError:  # an apostrophe, say
        return words.split()


def _text(message: Any) -> str:
    """The text of one of a prompt's messages; of other contents their kind."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, dict):
        return ""
    inner = content.get("resource")
    text = inner.get("text") if isinstance(inner, dict) else content.get("text")
    found = text if isinstance(text, str) else f"[{content.get('type')}: left out]"
    return found if message.get("role") == "user" else f"(assistant:) {found}"
