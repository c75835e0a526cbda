"""The settings for model providers and model families."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from toolrest.config.schema.families import ModelWire, PatchForm, TruncationMode
from toolrest.config.schema.table import Table
from toolrest.config.schema.types import Count, Price, Range, ShellName, Text, Texts


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
