"""Checks of raw text before a freeform tool sees it: size, UTF-8, grammar, the tool's own."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from toolrest.errors import RespondToModel, ToolDefinitionError
from toolrest.gate.tool import Grammar, Tool

_EARLEY_LIMIT = 32_768


def check_freeform(tool: Tool, text: str) -> None:
    """Raise RespondToModel when the text cannot be what the tool takes, with line and column."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise _invalid(tool, f"not valid UTF-8 at {place(text, error.start)}") from None
    if size > tool.max_input_bytes:
        raise _invalid(tool, f"{size} bytes are more than the limit of {tool.max_input_bytes}")
    if tool.grammar is not None and tool.checks_grammar:
        _check_grammar(tool, tool.grammar, text)
    problem = tool.check(text)
    if problem is not None:
        raise _invalid(tool, problem)


def place(text: str, position: int) -> str:
    """A position as `line L column C`, both counted from 1."""
    before = text[:position]
    line = before.count("\n") + 1
    return f"line {line} column {position - (before.rfind(chr(10)) + 1) + 1}"


def _position(error: Any) -> int:
    return getattr(error, "pos_in_stream", None) or 0


def _check_grammar(tool: Tool, grammar: Grammar, text: str) -> None:
    parser = compile_grammar(grammar)
    if grammar.syntax == "regex":
        if parser.fullmatch(text) is None:
            raise _invalid(tool, f"does not match the pattern {grammar.definition}")
        return
    from lark.exceptions import UnexpectedEOF, UnexpectedInput

    if parser.options.parser == "earley" and len(text) > _EARLEY_LIMIT:
        raise _invalid(
            tool,
            f"its grammar is ambiguous and can only be checked up to {_EARLEY_LIMIT} characters, "
            f"and there are {len(text)}",
        )
    try:
        parser.parse(text)
    except UnexpectedEOF:
        raise _invalid(tool, f"ends too early, at {place(text, len(text))}") from None
    except UnexpectedInput as error:
        where = place(text, _position(error))
        raise _invalid(tool, f"does not follow the grammar at {where}") from None


@lru_cache(maxsize=64)
def compile_grammar(grammar: Grammar) -> Any:
    """A parser for the grammar; ToolDefinitionError when it is not one.

    LALR takes linear time. Only a grammar that needs more gets Earley, whose worst case is
    cubic, and then only for short inputs.
    """
    if grammar.syntax == "regex":
        try:
            return re.compile(grammar.definition)
        except re.error as error:
            raise ToolDefinitionError(f"bad pattern: {error}") from None
    from lark import Lark
    from lark.exceptions import GrammarError, LarkError

    try:
        try:
            return Lark(grammar.definition, parser="lalr")
        except GrammarError:
            return Lark(grammar.definition, parser="earley")
    except LarkError as error:
        raise ToolDefinitionError(f"bad Lark grammar: {error}") from None


def _invalid(tool: Tool, problem: str) -> RespondToModel:
    return RespondToModel(
        f"{tool.name} received input it cannot use: {problem}",
        kind="input_invalid",
        fields=("input",),
    )
