"""The names of the slash commands."""

from __future__ import annotations

from toolrest.timeline.session_text import own_prompts

COMMANDS = {
    "help": "the commands and keys",
    "status": "model, sandbox, approvals, tokens, session",
    "model": "another model or effort: /model [NAME [EFFORT]]",
    "approvals": "when to ask: /approvals on-request|untrusted|never|…",
    "sandbox": "what may be written: /sandbox read-only|workspace-write",
    "new": "a new session in this folder",
    "clear": "a new session on an empty screen",
    "resume": "go on with another session: /resume [ID]",
    "fork": "go on with a copy of this session",
    "back": "go back to an earlier message, in a copy (Esc Esc)",
    "compact": "summarise the conversation now: /compact [what to keep]",
    "undo": "take back what the last turn changed",
    "diff": "what this session has changed",
    "copy": "copy the last answer: /copy [NUMBER of a code block|all]",
    "output": "the last output, whole (Ctrl-O)",
    "ps": "background commands: /ps ID attaches, /ps kill ID ends one",
    "init": "let the model write an AGENTS.md for this folder",
    "tools": "the tools on offer",
    "mcp": "MCP servers and their state",
    "permissions": "what is granted, and what is asked about",
    "theme": "other colours: /theme [terminal|light|dark|none]",
    "export": "this session as Markdown, in the pager",
    "feedback": "write a report that you may send; nothing is sent",
    "exit": "leave (Ctrl-D)",
    "quit": "leave (Ctrl-D)",
}


def known_commands(home: str) -> dict[str, str]:
    """Every command with its help."""
    return COMMANDS | {name: f"your prompt {name}.md" for name in own_prompts(home)}
