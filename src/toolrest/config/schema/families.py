"""Model families: the shell and patch form of a model, and how much output it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from toolrest.config.schema.providers import FamilyRow

ShellForm: TypeAlias = Literal["shell", "shell_command", "unified_exec", "local_shell", "disabled"]
PatchForm: TypeAlias = Literal["freeform", "function", "unified", "string_edits"]
ModelWire: TypeAlias = Literal["responses", "chat", "anthropic"]
TruncationMode: TypeAlias = Literal["bytes", "tokens"]


class Truncation(NamedTuple):
    """The limit of one output that a family is shown, and its unit."""

    mode: TruncationMode
    limit: int

    def limited_to(self, tokens: int) -> Truncation:
        """The same unit with a limit given in tokens (four bytes each)."""
        return self._replace(limit=tokens if self.mode == "tokens" else 4 * tokens)


class Family(NamedTuple):
    """A row of the table. `truncation` None means the default for families without a policy.

    `prefer_function_tools`: offer custom and hosted kinds as functions even where the wire has
    them. `reasoning_tools`: the model reasons between calls, so reasoning items stay with them.
    """

    name: str
    prefixes: tuple[str, ...]
    shell: ShellForm = "unified_exec"
    patch: PatchForm = "function"
    truncation: Truncation | None = None
    parallel: bool = False
    prefer_function_tools: bool = False
    reasoning_tools: bool = False
    wire: ModelWire = "responses"


_BYTES = Truncation("bytes", 10_000)
_TOKENS = Truncation("tokens", 10_000)


def _openai(
    name: str,
    prefixes: str,
    shell: ShellForm,
    patch: PatchForm,
    truncation: Truncation,
    *,
    parallel: bool,
    reasoning: bool = True,
) -> Family:
    return Family(
        name, tuple(prefixes.split()), shell, patch, truncation, parallel, reasoning_tools=reasoning
    )


# Order matters: the first row with a prefix of the model's name is taken. Families for which
# Codex has no patch tool get the function form, because apply_patch is offered to every model.
BUILT_IN: tuple[Family, ...] = (
    _openai("o-series", "o3 o4-mini", "shell", "function", _BYTES, parallel=False),
    _openai(
        "gpt-4",
        "gpt-4.1 gpt-4o gpt-3.5",
        "shell",
        "function",
        _BYTES,
        parallel=False,
        reasoning=False,
    ),
    _openai(
        "codex-mini-latest", "codex-mini-latest", "local_shell", "function", _BYTES, parallel=False
    ),
    _openai(
        "gpt-oss", "gpt-oss openai/gpt-oss", "shell", "function", _BYTES, parallel=False
    )._replace(prefer_function_tools=True),
    _openai("test-gpt-5", "test-gpt-5", "shell_command", "function", _TOKENS, parallel=True),
    _openai("exp-codex", "exp-codex codex-1p", "shell_command", "freeform", _TOKENS, parallel=True),
    _openai("exp", "exp-", "unified_exec", "freeform", _BYTES, parallel=True),
    _openai(
        "gpt-5.2-codex",
        "gpt-5.2-codex bengalfox",
        "shell_command",
        "freeform",
        _TOKENS,
        parallel=True,
    ),
    _openai(
        "codex",
        "gpt-5.1-codex gpt-5-codex codex",
        "shell_command",
        "freeform",
        _TOKENS,
        parallel=False,
    ),
    _openai(
        "gpt-5.2", "gpt-5.2 boomslang gpt-5.1", "shell_command", "freeform", _BYTES, parallel=True
    ),
    _openai("gpt-5.5", "gpt-5.5 gpt-5.6 gpt-6", "unified_exec", "freeform", _TOKENS, parallel=True),
    _openai("gpt-5", "gpt-5", "shell", "function", _BYTES, parallel=False),
    Family(
        "claude",
        ("claude",),
        patch="string_edits",
        parallel=True,
        prefer_function_tools=True,
        wire="anthropic",
    ),
    *(
        Family(name, prefixes, patch="string_edits", parallel=True, prefer_function_tools=True)
        for name, prefixes in (
            ("gemini", ("gemini",)),
            ("deepseek", ("deepseek",)),
            ("mistral", ("mistral", "codestral", "devstral", "magistral", "ministral")),
            ("kimi", ("kimi",)),
        )
    ),
    Family(
        "grok",
        ("grok",),
        patch="string_edits",
        parallel=True,
        prefer_function_tools=True,
        reasoning_tools=True,
    ),
    Family("qwen", ("qwen",), patch="string_edits", prefer_function_tools=True, wire="chat"),
)
UNKNOWN = Family("unknown", ())


def family_for(model: str | None, user_rows: Iterable[Family] = ()) -> Family:
    """The first row with a prefix of the model's name, the user's rows before the built-in ones.

    Names are compared in lower case, whole and without a leading `vendor/`.
    """
    if not model:
        return UNKNOWN
    slug = model.strip().lower()
    spellings = (slug, slug.rsplit("/", 1)[-1])
    for row in (*user_rows, *BUILT_IN):
        if any(name.startswith(prefix.lower()) for prefix in row.prefixes for name in spellings):
            return row
    return UNKNOWN


def family_named(name: str, user_rows: Sequence[Family] = (), key: str = "family") -> Family:
    """The row of that name, for the setting `key` (`model_family`, `like`)."""
    rows = {row.name: row for row in (UNKNOWN, *reversed(BUILT_IN), *reversed(user_rows))}
    if name not in rows:
        raise ConfigError(
            f"{key}: no model family is called {name!r}; there are {', '.join(sorted(rows))}"
        )
    return rows[name]


def user_families(rows: Mapping[str, FamilyRow]) -> tuple[Family, ...]:
    """The rows of `[model_families]`, filled up from the row they are like."""
    return tuple(_filled(name, row) for name, row in rows.items())


def _filled(name: str, row: FamilyRow) -> Family:
    prefixes = row.prefixes or (name,)
    key = f"model_families.{name}.like"
    base = family_named(row.like, key=key) if row.like else family_for(prefixes[0])
    stated: dict[str, Any] = {
        field: value
        for field in (
            "shell",
            "patch",
            "parallel",
            "prefer_function_tools",
            "reasoning_tools",
            "wire",
        )
        if (value := getattr(row, field)) is not None
    }
    if row.truncation is not None:
        stated["truncation"] = Truncation(row.truncation.mode, row.truncation.limit)
    return base._replace(name=name, prefixes=prefixes, **stated)


def no_family(model: str) -> str:
    """The warning about a model that no row fits."""
    return f"Unknown model {model!r}: using default tools. To change: model_family"
