"""Which environment variables are settings, and what they may say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from toolrest.config.layer_check import Layer
from toolrest.config.schema.families import ShellForm
from toolrest.config.keys import Key, quote
from toolrest.config.schema.types import SHELL_SPELLINGS, FileTool
from toolrest.errors import ConfigError

PREFIX, OLD_PREFIX = "TOOLREST_", "MEMO_"
_SWITCH = {"1": True, "true": True, "yes": True, "on": True}
_SWITCH |= {"0": False, "false": False, "no": False, "off": False}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) > 0):
        raise ValueError("a whole number of at least 1")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise ValueError("1 or 0")
    return _SWITCH[text.lower()]


def _shell_form(text: str) -> str:
    form = SHELL_SPELLINGS.get(text, text)
    if form not in get_args(ShellForm):
        raise ValueError("one of " + ", ".join(get_args(ShellForm)))
    return form


def _file_tools(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or not set(names) <= set(get_args(FileTool)):
        raise ValueError("a comma-separated list of " + ", ".join(get_args(FileTool)))
    return names


class Variable(NamedTuple):
    """A variable's name without its prefix, the setting it is, and how its text is read."""

    name: str
    key: Key
    parse: Callable[[str], Any]


VARIABLES = (
    Variable("TOOL_RESULT_MAX_CHARS", ("tool_result_max_chars",), _count),
    Variable("EXPERIMENTAL_TOOLS", ("tools", "experimental_tools"), _file_tools),
    Variable("SHELL_TOOL_TYPE", ("tools", "shell_type"), _shell_form),
    Variable("ENABLE_COLLAB_TOOLS", ("tools", "include_collab_tools"), _switch),
    Variable("ENABLE_MEMORY_TOOL", ("tools", "include_memory_tool"), _switch),
    Variable("SUBAGENT_MAX_AGENTS", ("agents", "max_agents"), _count),
)


def environment_layer(env: Mapping[str, str]) -> Layer:
    """The settings among the variables; an empty one counts as unset, `MEMO_*` as the old name."""
    values: dict[Key, Any] = {}
    labels: dict[Key, str] = {}
    for variable in VARIABLES:
        for name in (PREFIX + variable.name, OLD_PREFIX + variable.name):
            text = env.get(name, "").strip()
            if not text:
                continue
            try:
                values[variable.key] = variable.parse(text)
            except ValueError as error:
                raise ConfigError(
                    f"environment variable {name}: expected {error}, got {quote(text[:40])}"
                ) from None
            labels[variable.key] = f"environment variable {name}"
            break
    return Layer("environment", "environment", values, labels)
