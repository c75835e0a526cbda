"""The settings for model providers and model families."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, NamedTuple

from toolrest.config.schema.families import ModelWire, PatchForm, TruncationMode
from toolrest.config.schema.table import Table
from toolrest.config.schema.types import Count, Price, Range, ShellName, Text, Texts
from toolrest.errors import ConfigError

BUILT_IN_PROVIDERS: Final = (
    *("openai", "anthropic", "openrouter", "gemini", "xai", "deepseek", "mistral", "moonshot"),
    *("groq", "ollama", "llamacpp", "lmstudio", "vllm", "litellm", "azure", "bedrock", "vertex"),
    "openai-compatible",
)
"""Providers that need no row here; what they are is known to the wire."""


class ModelName(NamedTuple):
    """A model's name at its provider, and the provider where the name said it."""

    provider: str | None
    name: str


def split_model(text: str, own: Iterable[str], *, provider_is_set: bool) -> ModelName:
    """Take `PROVIDER:NAME` apart; ConfigError where a provider is meant that there is not.

    A colon alone makes no provider (`qwen3:8b`, `…:free`, `ft:…`): where one is set, only a word
    that is probably a misspelt provider is refused.
    """
    word, colon, name = text.partition(":")
    if not (colon and name):
        return ModelName(None, text)
    known = (*BUILT_IN_PROVIDERS, *own)
    if word in known:
        return ModelName(word, name)
    near = nearest_provider(word, known)
    if provider_is_set and near is None:
        return ModelName(None, text)
    hint = f"did you mean {near}:{name}?" if near else f"there are {', '.join(sorted(known))}"
    raise ConfigError(
        f"model: no provider is called {word!r}; {hint} "
        f"(a model whose name is {text} needs its provider before it: PROVIDER:{text})"
    )


def nearest_provider(word: str, known: Iterable[str]) -> str | None:
    """The provider that a word probably misspells. One with a digit is a model (`llama3`)."""
    # Only for a provider that there is not.
    import difflib

    if any(map(str.isdigit, word)):
        return None
    return next(iter(difflib.get_close_matches(word.lower(), known, 1, 0.82)), None)


class TruncationRow(Table):
    """The limit of an output that a model family is shown."""

    mode: TruncationMode
    limit: Count


class FamilyRow(Table):
    """`[model_families.NAME]`: a family of the user's; unset fields come from `like`."""

    prefixes: Texts = ()
    like: Text | None = None
    shell: ShellName | None = None
    prefer_function_tools: bool | None = None
    patch: PatchForm | None = None
    reasoning_tools: bool | None = None
    parallel: bool | None = None
    truncation: TruncationRow | None = None
    wire: ModelWire | None = None


class Capabilities(Table):
    """`[model_providers.NAME.capabilities]`: what an endpoint can do; unset is the wire's usual.

    `text_calls`: tool calls that a model wrote as text count when it made no others.
    """

    parallel_tool_calls: bool | None = None
    tool_choice: bool | None = None
    usage: bool | None = None
    images: bool | None = None
    tool_images: Literal["inline", "user_message"] | None = None
    developer_role: bool | None = None
    json_schema: bool | None = None
    json_schema_with_tools: bool | None = None
    reasoning: Literal["turn", "always", "never"] | None = None
    repair: bool | None = None
    text_calls: bool | None = None
    max_tools: Count | None = None
    schema_subset: Literal["codex"] | None = None


class RequestOptions(Table):
    """`[model_providers.NAME.request]`, and `[model_providers.NAME.models.MODEL]` for one model.

    What is unset is not sent. `extra_body` is put into each request last. `context_window` "auto"
    asks the server.
    """

    tool_choice: Literal["auto", "required", "none"] | None = None
    parallel_tool_calls: bool | None = None
    temperature: Annotated[float, Range(0, 2)] | None = None
    top_p: Annotated[float, Range(0, 1)] | None = None
    seed: int | None = None
    stop: Texts = ()
    stream: bool | None = None
    first_token_timeout_ms: Count | None = None
    context_window: Count | Literal["auto"] | None = None
    extra_body: dict[str, Any] = {}


class ModelPrice(Table):
    """`[model_prices."MODEL"]`: dollars for a million tokens; unset is the price of input."""

    input: Price
    output: Price
    cached_input: Price | None = None
    cache_write: Price | None = None


class ModelProvider(Table):
    """`[model_providers.NAME]`: a model's endpoint and its wire.

    A row with the name of a built-in provider changes only what it sets. Header values of
    `env_http_headers` are names of variables.
    """

    name: str = ""
    base_url: Text | None = None
    env_key: Text | None = None
    env_key_instructions: Text | None = None
    experimental_bearer_token: Text | None = None
    wire_api: ModelWire | None = None
    query_params: dict[str, str] = {}
    http_headers: dict[str, str] = {}
    env_http_headers: dict[str, str] = {}
    request_max_retries: Annotated[int, Range(0)] | None = None
    stream_max_retries: Annotated[int, Range(0)] | None = None
    stream_idle_timeout_ms: Count | None = None
    connect_timeout_ms: Count | None = None
    requires_openai_auth: bool = False
    supports_websockets: bool = False
    capabilities: Capabilities = Capabilities()
    request: RequestOptions = RequestOptions()
    models: dict[str, RequestOptions] = {}
