"""Presets: model servers and gateways that need no settings, or only an address.

One row each: wire, address, key, and what such a server refuses or needs. A row of the settings
with another name is known by its address, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from msgspec.structs import replace

from toolrest.config.schema.families import ModelWire
from toolrest.urls import parse_url
from toolrest.wire.provider import HOSTED, LOCAL, OPENAI, Profile

_NO_VALUES: Final[Mapping[str, str]] = {}


class BuiltIn(NamedTuple):
    """A provider that needs no settings. `address_variable` may name another address.

    Names in braces in `base_url` are variables. `hosts` are patterns of its hosts' names.
    """

    name: str
    base_url: str
    wire: ModelWire
    env_key: str | None = None
    key_required: bool = True
    profile: Profile | None = HOSTED
    """None where the address says what is usual there."""
    address_variable: str | None = None
    env_http_headers: Mapping[str, str] = _NO_VALUES
    prices: str | None = None
    """Its name in `models.json`; None where nobody lists prices."""
    line: str | None = None
    """The start of its general models' names; None where only the server knows what it has."""
    hosts: tuple[str, ...] = ()
    hint: str = ""
    """What has to be done at the server's side, for `toolrest setup`."""


BUILT_IN: Final[Mapping[str, BuiltIn]] = {
    "openai": BuiltIn(
        "OpenAI",
        "https://api.openai.com/v1",
        "responses",
        "OPENAI_API_KEY",
        profile=OPENAI,
        address_variable="OPENAI_BASE_URL",
        env_http_headers={
            "OpenAI-Organization": "OPENAI_ORGANIZATION",
            "OpenAI-Project": "OPENAI_PROJECT",
        },
        prices="openai",
        line="gpt-",
        hosts=("api.openai.com",),
    ),
    "anthropic": BuiltIn(
        "Anthropic",
        "https://api.anthropic.com/v1",
        "anthropic",
        "ANTHROPIC_API_KEY",
        profile=replace(HOSTED, brings_tools_in=True),
        address_variable="ANTHROPIC_BASE_URL",
        prices="anthropic",
        line="claude-",
        hosts=("api.anthropic.com",),
    ),
    "openrouter": BuiltIn(
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "chat",
        "OPENROUTER_API_KEY",
        prices="openrouter",
        line="anthropic/claude-",
        hosts=("openrouter.ai",),
    ),
    "gemini": BuiltIn(
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "chat",
        "GEMINI_API_KEY",
        profile=replace(HOSTED, schema_subset="codex"),
        prices="google",
        line="gemini-",
        hosts=("generativelanguage.googleapis.com",),
    ),
    "xai": BuiltIn(
        "xAI",
        "https://api.x.ai/v1",
        "responses",  # its Chat API keeps no reasoning
        "XAI_API_KEY",
        profile=replace(OPENAI, developer_role=False),
        prices="x-ai",
        line="grok-",
        hosts=("api.x.ai",),
    ),
    "deepseek": BuiltIn(
        "DeepSeek",
        "https://api.deepseek.com/v1",
        "chat",
        "DEEPSEEK_API_KEY",
        profile=replace(HOSTED, reasoning="always", json_schema=False, images=False),
        prices="deepseek",
        line="deepseek-v",
        hosts=("api.deepseek.com",),
    ),
    "mistral": BuiltIn(
        "Mistral",
        "https://api.mistral.ai/v1",
        "chat",
        "MISTRAL_API_KEY",
        profile=replace(HOSTED, usage=False, nine_char_ids=True),
        prices="mistral",
        line="mistral-",
        hosts=("api.mistral.ai",),
    ),
    "moonshot": BuiltIn(
        "Moonshot",
        "https://api.moonshot.ai/v1",
        "chat",
        "MOONSHOT_API_KEY",
        profile=replace(HOSTED, reasoning="always"),
        prices="moonshotai",
        line="kimi-k",
        hosts=("api.moonshot.ai", "api.moonshot.cn"),
    ),
    "groq": BuiltIn(
        "Groq",
        "https://api.groq.com/openai/v1",
        "chat",
        "GROQ_API_KEY",
        profile=replace(HOSTED, json_schema=False),
        prices="groq",
        line="openai/gpt-oss-",
        hosts=("api.groq.com",),
    ),
    "ollama": BuiltIn(
        "Ollama",
        "http://localhost:11434/v1",
        "chat",
        "OLLAMA_API_KEY",
        key_required=False,
        profile=LOCAL,
        address_variable="OLLAMA_HOST",
        hint="its window is 4096 tokens unless it is started with OLLAMA_CONTEXT_LENGTH=32768",
    ),
    "llamacpp": BuiltIn(
        "llama.cpp",
        "http://localhost:8080/v1",
        "chat",
        "LLAMA_API_KEY",
        key_required=False,
        profile=LOCAL,
        hint="start llama-server with --jinja, and with -c 32768 or more",
    ),
    "lmstudio": BuiltIn(
        "LM Studio",
        "http://localhost:1234/v1",
        "chat",
        "LM_API_TOKEN",
        key_required=False,
        profile=LOCAL,
        hint="load the model with a context of 32768 tokens or more",
    ),
    "vllm": BuiltIn(
        "vLLM",
        "http://localhost:8000/v1",
        "chat",
        "VLLM_API_KEY",
        key_required=False,
        profile=LOCAL,
        hint="start it with --enable-auto-tool-choice and the model's --tool-call-parser",
    ),
    "litellm": BuiltIn(
        "LiteLLM",
        "http://localhost:4000/v1",
        "chat",
        "LITELLM_PROXY_API_KEY",
        key_required=False,
        hint="drop_params: true in its settings lets it leave out what an upstream refuses",
    ),
    "azure": BuiltIn(
        "Azure OpenAI",
        "{AZURE_OPENAI_ENDPOINT}/openai/v1",
        "responses",
        "AZURE_OPENAI_API_KEY",
        profile=OPENAI,
        prices="azure",
        hosts=("*.openai.azure.com", "*.cognitiveservices.azure.com", "*.services.ai.azure.com"),
        hint="the model is the name of your deployment",
    ),
    "bedrock": BuiltIn(
        "Amazon Bedrock",
        "https://bedrock-runtime.{AWS_REGION}.amazonaws.com/openai/v1",
        "chat",
        "AWS_BEARER_TOKEN_BEDROCK",
        prices="aws",
        hosts=("bedrock-runtime.*.amazonaws.com",),
        hint="the key is a Bedrock API key, not an access key of AWS",
    ),
    "vertex": BuiltIn(
        "Google Vertex AI",
        "https://aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}/locations/global"
        "/endpoints/openapi",
        "chat",
        "VERTEX_ACCESS_TOKEN",
        prices="google",
        hosts=("aiplatform.googleapis.com", "*-aiplatform.googleapis.com"),
        hint="the key is a token of an hour: $(gcloud auth print-access-token)",
    ),
    "openai-compatible": BuiltIn(
        "another server with OpenAI's Chat API",
        "{OPENAI_COMPATIBLE_BASE_URL}",
        "chat",
        "OPENAI_COMPATIBLE_API_KEY",
        key_required=False,
        profile=None,
        hint="the address without /chat/completions, for example https://models.example/v1",
    ),
}


def preset_at(base_url: str) -> BuiltIn | None:
    """The preset whose hosts an address belongs to; None for any other."""
    host = parse_url(base_url).host.lower()
    for row in BUILT_IN.values():
        if any(fnmatchcase(host, pattern) for pattern in row.hosts):
            return row
    return None


def placeholders(template: str) -> list[str]:
    """The variables in an address."""
    return re.findall(r"\{(\w+)\}", template)
