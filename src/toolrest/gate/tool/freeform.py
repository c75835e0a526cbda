"""Checks of raw text before a freeform tool sees it: size, UTF-8, grammar, the tool's own.

A grammar is checked on the event loop, so the work is bounded: texts up to 64 KiB for patterns
and grammars that LALR can read, 8 KiB and half a second for the others. A text that cannot be
checked is refused, with the limit. A tool that takes more says `checks_grammar = False` and
brings its own `check`. Patterns that could run for ever are refused when the tool is offered.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any

from toolrest.errors import RespondToModel, ToolDefinitionError

if TYPE_CHECKING:
    from toolrest.gate.tool.tool import Grammar, Tool

CHECKED_CHARACTERS = 65_536
EARLEY_CHARACTERS = 8_192
_EARLEY_SECONDS = 0.5
_MAX_STEPS = 64 * CHECKED_CHARACTERS


class _GrammarTooSlow(Exception):
    """Raised when the grammar is too ambiguous for this text."""


class _Clock(threading.local):
    """The deadline of the check that runs in this thread."""

    ends = 0.0


_clock = _Clock()


def takes_raw(tool: Tool, text: str) -> bool:
    """Whether a text is a freeform tool's input as it is, and not JSON arguments."""
    if tool.kind != "custom" and not tool.takes_any_payload:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return True
    return not isinstance(value, dict) or (tool.kind == "custom" and "input" not in value)


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


def _check_grammar(tool: Tool, grammar: Grammar, text: str) -> None:
    parser = compile_grammar(grammar)
    is_earley = grammar.syntax == "lark" and parser.options.parser == "earley"
    limit = EARLEY_CHARACTERS if is_earley else CHECKED_CHARACTERS
    if len(text) > limit:
        problem = f"its grammar can only be checked up to {limit} characters"
        raise _invalid(tool, f"{problem}, and there are {len(text)}; send less at once")
    if grammar.syntax == "regex":
        _check_pattern(tool, parser, text)
    else:
        _check_lark(tool, parser, text)


def _check_pattern(tool: Tool, pattern: re.Pattern[str], text: str) -> None:
    if pattern.fullmatch(text) is not None:
        return
    begun = pattern.match(text)
    where = place(text, begun.end() if begun else 0)
    raise _invalid(tool, f"does not match the pattern {pattern.pattern} at {where}")


def _check_lark(tool: Tool, parser: Any, text: str) -> None:
    from lark import UnexpectedEOF, UnexpectedInput

    _clock.ends = monotonic() + _EARLEY_SECONDS
    try:
        parser.parse(text)
    except UnexpectedInput as error:
        if parser.options.parser == "lalr" and _reads_otherwise(tool, text):
            return
        if isinstance(error, UnexpectedEOF):
            problem = f"ends too early, at {place(text, len(text))}"
        else:
            where = place(text, getattr(error, "pos_in_stream", None) or 0)
            problem = f"does not follow the grammar at {where}"
        raise _invalid(tool, problem) from None
    except (_GrammarTooSlow, RecursionError):
        raise _invalid(
            tool, "its grammar has too many readings of this text to check it; send less at once"
        ) from None


def _reads_otherwise(tool: Tool, text: str) -> bool:
    """Whether Earley accepts what LALR did not: LALR resolves each conflict in one way only."""
    from lark import UnexpectedInput

    if tool.grammar is None or len(text) > EARLEY_CHARACTERS:
        return False
    try:
        _earley(tool.grammar.definition).parse(text)
    except (UnexpectedInput, _GrammarTooSlow, RecursionError):
        return False
    return True


@lru_cache(maxsize=64)
def compile_grammar(grammar: Grammar) -> Any:
    """A parser for the grammar; ToolDefinitionError when it is not one, or could run for ever.

    LALR takes linear time. Only a grammar that needs more gets Earley, whose worst case is cubic.
    """
    if grammar.syntax == "regex":
        return _compile_pattern(grammar.definition)
    from lark import GrammarError, Lark, LarkError

    try:
        try:
            parser = Lark(grammar.definition, parser="lalr")
        except GrammarError:
            parser = _earley(grammar.definition)
    except (LarkError, RecursionError, re.error) as error:
        raise ToolDefinitionError(f"bad Lark grammar: {_first_line(error)}") from None
    for terminal in parser.terminals:
        _refuse_danger(terminal.pattern.to_regexp(), f"bad Lark grammar: {terminal.name}")
    return parser


@lru_cache(maxsize=64)
def _earley(definition: str) -> Any:
    from lark import Lark

    parser = Lark(definition, parser="earley")
    engine: Any = parser.parser.parser
    engine.term_matcher = _timed(engine.term_matcher)
    return parser


def _compile_pattern(definition: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(definition)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolDefinitionError(f"bad pattern: {error}") from None
    _refuse_danger(definition, f"bad pattern: {definition[:200]!r}", whole=True)
    return pattern


def _refuse_danger(pattern: str, what: str, *, whole: bool = False) -> None:
    from toolrest.config.regex_cost import danger

    problem = danger(pattern, longest=CHECKED_CHARACTERS, budget=_MAX_STEPS, whole=whole)
    if problem:
        raise ToolDefinitionError(f"{what} {problem}")


def _timed(match: Callable[..., Any]) -> Callable[..., Any]:
    """The matcher of an Earley parser, with a time limit; it is called once a position."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        if monotonic() > _clock.ends:
            raise _GrammarTooSlow
        return match(*args, **kwargs)

    return timed


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]


def _invalid(tool: Tool, problem: str) -> RespondToModel:
    return RespondToModel(
        f"{tool.name} received input it cannot use: {problem}",
        kind="input_invalid",
        fields=("input",),
    )
