"""Providers of the settings: their endpoint, wire and key, and the models they list."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from toolrest.config.schema.families import ModelWire
from toolrest.config.schema.providers import nearest_provider
from toolrest.errors import ConfigError
from toolrest.secret import SafeUrl, Secret
from toolrest.urls import parse_url
from toolrest.wire.addresses import provider_address, provider_name
from toolrest.wire.apis.responses import ResponsesModel
from toolrest.wire.http.endpoint import Http
from toolrest.wire.model import ModelError, ModelRequest
from toolrest.wire.model_facts import (
    ModelFacts,
    default_model,
    facts_at,
    known_address,
    known_models,
    models_at,
)
from toolrest.wire.model_list import FRESH, ListedModel, models_in, store_list
from toolrest.wire.presets import BUILT_IN, BuiltIn, placeholders, preset_at
from toolrest.wire.provider import HOSTED, LOCAL, LOCAL_RESPONSES, OPENAI, Profile, Provider
from toolrest.wire.stored_keys import stored_keys

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.config.schema.providers import ModelProvider
    from toolrest.wire.client import HttpModel


_MOST_RETRIES: Final = 100
_ABSENT: Final[Mapping[ModelWire, frozenset[str]]] = {
    "chat": frozenset(),
    "responses": frozenset({"seed", "stop"}),
    "anthropic": frozenset({"seed"}),
}


def model_for(config: Config, env: Mapping[str, str] | None = None) -> HttpModel:
    """The model that the settings name; `ConfigError` names what is missing. Opens nothing yet."""
    settings = config.value
    if settings.model is None:
        raise ConfigError(
            "no model is set",
            hints=(
                "Run `toolrest setup`, give -m NAME, or set model in config.toml; `toolrest models`"
                " lists them.",
            ),
        )
    provider = provider_for(config, env)
    facts = facts_at(config, settings.model, provider.id, provider.base_url.reveal())
    model = client_for(provider, settings.model, facts.window, reasons=_reasons(config))
    if settings.model_context_window is not None:
        model.context_window = settings.model_context_window
    model.max_output_tokens = settings.model_max_output_tokens
    return model


def with_default_model(config: Config, env: Mapping[str, str] | None = None) -> Config:
    """The settings with a model: unset, it is the provider's default.

    An unset provider is the first built-in one whose key is there, else OpenAI.
    """
    settings = config.value
    if settings.model is not None:
        return config
    name = settings.model_provider
    if config.source("model_provider") == "default":
        environ = os.environ if env is None else env
        stored = _stored(config)
        keys = {name: row.env_key or "" for name, row in BUILT_IN.items() if row.line}
        there = (name for name, key in keys.items() if environ.get(key, "").strip())
        name = next(there, None) or next((name for name in keys if name in stored), name)
    model = default_model(config, name)
    if model is None:
        return config
    value = settings.replace(model=model, model_provider=name)
    source = f"the default of {name}"
    sources = {**config.sources, ("model",): source, ("model_provider",): source}
    return replace(config, value=value, sources=sources)


def _stored(config: Config) -> Mapping[str, Secret]:
    return stored_keys(config.home) if config.from_files else {}


def _reasons(config: Config) -> bool:
    """Whether to ask for reasoning items: new models of unknown families do reason."""
    return config.family.reasoning_tools or config.family.name == "unknown"


def client_for(
    provider: Provider, model: str, window: int | None = None, *, reasons: bool = False
) -> HttpModel:
    """The client for a model at an endpoint, with its context window if that is known."""
    if provider.wire == "responses":
        return ResponsesModel(provider, model, context_window=window, reasons=reasons)
    if provider.wire == "chat":
        from toolrest.wire.apis.chat import ChatModel

        return ChatModel(provider, model, context_window=window)
    from toolrest.wire.apis.anthropic import AnthropicModel

    return AnthropicModel(provider, model, context_window=window)


def provider_for(config: Config, env: Mapping[str, str] | None = None) -> Provider:
    """The provider that `model_provider` names, with its key read from the environment."""
    row = config.value.model_families.get(config.family.name)
    return named_provider(config, provider_name(config), env, wire=row.wire if row else None)


def lacks_key_or_address(config: Config) -> bool:
    """Whether the provider could be used if its variables were set: a set-up asks for those."""
    known = {}
    for preset in BUILT_IN.values():
        for name in placeholders(preset.base_url):
            known[name] = "https://x" if preset.base_url.startswith(f"{{{name}}}") else "x"
        known[preset.env_key or ""] = "x"
    known |= {row.env_key or "": "x" for row in config.value.model_providers.values()}
    there = {name: value for name, value in os.environ.items() if value.strip()}
    try:
        provider_for(config, known | there)
    except ConfigError:
        return False
    return True


def named_provider(
    config: Config,
    name: str,
    env: Mapping[str, str] | None = None,
    *,
    wire: ModelWire | None = None,
) -> Provider:
    """A provider of the settings or a built-in one, by its name.

    `wire` is the one that the user's row of the model's family names; it counts before the
    provider's own, which may speak several.
    """
    environ = os.environ if env is None else env
    settings = config.value
    row = settings.model_providers.get(name)
    built_in = BUILT_IN.get(name)
    if row is None and built_in is None:
        known = sorted({*BUILT_IN, *settings.model_providers})
        near = nearest_provider(name, known)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"model_provider: no provider is called {name!r}; {hint}")
    return _resolved(name, row, built_in, environ, config, wire)


def _resolved(
    name: str,
    row: ModelProvider | None,
    built_in: BuiltIn | None,
    env: Mapping[str, str],
    config: Config,
    chosen: ModelWire | None,
) -> Provider:
    if row is not None and row.requires_openai_auth and not row.env_key:
        raise ConfigError(
            f"model_providers.{name}.requires_openai_auth: there is no login here; "
            "name the variable with your key in env_key"
        )
    base_url = provider_address(config.value, name, env)
    preset = built_in
    if built_in is None or built_in.profile is None:
        preset = preset_at(base_url) or built_in
    usual = preset.wire if preset else "responses"
    wire: ModelWire = chosen or (row and row.wire_api) or usual
    key, variable = _key(name, row, built_in, env, config)
    headers = _headers(row, built_in, env)
    profile = _profile(preset, base_url, wire)
    if profile.brings_tools_in and preset_at(base_url) is None:  # a gateway may not know how
        profile = replace(profile, brings_tools_in=False)
    return Provider(
        id=name,
        base_url=SafeUrl(base_url),
        wire=wire,
        name=(row and row.name) or (built_in.name if built_in else name),
        key=key,
        key_variable=variable,
        headers=headers,
        query_params={k: Secret(v) for k, v in row.query_params.items()} if row else {},
        profile=profile.declared(row.capabilities) if row else profile,
        requests=_requests(name, row, wire),
        **_patience(row),
    )


def _requests(
    name: str, row: ModelProvider | None, wire: ModelWire
) -> dict[str, Mapping[str, Any]]:
    """The options of requests by model; ConfigError for one that the wire has no field for."""
    if row is None:
        return {}
    requests: dict[str, Mapping[str, Any]] = {"": row.request.given()}
    requests |= {model: options.given() for model, options in row.models.items()}
    for model, options in requests.items():
        place = f"models.{model}" if model else "request"
        for key in options.keys() & _ABSENT[wire]:
            raise ConfigError(
                f"model_providers.{name}.{place}.{key}: the {wire} API has no such field; if your "
                "server takes it all the same, put it into extra_body"
            )
    return requests


def _patience(row: ModelProvider | None) -> dict[str, Any]:
    if row is None:
        return {}
    given: dict[str, Any] = {}
    for key in ("request_max_retries", "stream_max_retries"):
        if (value := getattr(row, key)) is not None:
            given[key] = min(value, _MOST_RETRIES)
    if row.stream_idle_timeout_ms is not None:
        given["idle_timeout"] = row.stream_idle_timeout_ms / 1000
    if row.connect_timeout_ms is not None:
        given["connect_timeout"] = row.connect_timeout_ms / 1000
    return given


def _key(
    name: str,
    row: ModelProvider | None,
    built_in: BuiltIn | None,
    env: Mapping[str, str],
    config: Config,
) -> tuple[Secret, str | None]:
    """The key and its variable; ConfigError names a required variable that is not set.

    A stored key comes last.
    """
    if row is not None and row.env_key is None and row.experimental_bearer_token is not None:
        return Secret(row.experimental_bearer_token.strip()), None
    variable = (row and row.env_key) or (built_in.env_key if built_in else None)
    if variable is None:
        return Secret(), None
    key = env.get(variable, "").strip()
    required = (row is not None and row.env_key is not None) or (
        built_in is not None and built_in.key_required
    )
    if not key and (stored := _stored(config).get(name)):
        return _clean(stored.reveal(), "stored for this provider"), None
    if key or not required:
        return _clean(key, variable), variable if key else None
    hint = f"It holds the key for {name}: set it, or run `toolrest setup`."
    if row and row.env_key_instructions:
        hint = row.env_key_instructions
    raise ConfigError(f"Missing environment variable: `{variable}`.", hints=(hint,))


def _clean(key: str, variable: str) -> Secret:
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"the variable {variable} holds characters that no key has")
    return Secret(key)


def _headers(
    row: ModelProvider | None, built_in: BuiltIn | None, env: Mapping[str, str]
) -> dict[str, Secret]:
    headers: dict[str, str] = {}
    variables = dict(built_in.env_http_headers) if built_in else {}
    if row is not None:
        headers |= row.http_headers
        variables |= row.env_http_headers
    for header, variable in variables.items():
        if value := env.get(variable, "").strip():
            headers[header] = value
    for header, value in headers.items():
        if not (header.isascii() and value.isascii() and f"{header}{value}".isprintable()):
            raise ConfigError(f"the HTTP header {header!r} holds characters that no header may")
    return {header: Secret(value) for header, value in headers.items()}


def _profile(preset: BuiltIn | None, base_url: str, wire: ModelWire) -> Profile:
    if preset is not None and preset.profile is not None and wire == preset.wire:
        return preset.profile
    there = preset_at(base_url)
    if wire == "chat" and there is not None and there.profile is OPENAI:
        return OPENAI  # its Chat API has the same roles, and refuses other servers' `max_tokens`
    return _usual(base_url, wire)


def _usual(base_url: str, wire: ModelWire) -> Profile:
    """The usual capabilities of an endpoint without declared ones."""
    near = _is_near(parse_url(base_url).host)
    if wire == "responses":
        return LOCAL_RESPONSES if near else OPENAI
    return LOCAL if near else HOSTED


def _is_near(host: str) -> bool:
    """Whether a host is this one or in the same network, where people run their own models."""
    if host == "localhost" or host.endswith((".local", ".internal", ".lan")):
        return True
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host


class Offer(NamedTuple):
    """The models of a provider with their facts. `age`: seconds since it was asked, if it was."""

    models: list[ModelFacts]
    age: float | None
    problem: ConfigError | ModelError | None = None
    """Why the provider could not be asked; the models are those known without it."""


async def offered_models(
    config: Config, provider: str | None = None, *, max_age: float = FRESH
) -> Offer:
    """The models of a provider, by default the settings'. It is asked if its list is older.

    Only for commands that a person gave: it opens a connection. The list is kept in the home.
    """
    name = provider_name(config) if provider is None else provider
    address, problem, asked = known_address(config, name), None, None
    kept = models_at(config, address)
    if kept is None or kept.age >= max_age:
        try:
            row = provider_for(config) if provider is None else named_provider(config, name)
            asked = await list_models(row, config.home)
        except (ConfigError, ModelError) as error:
            problem = error
        kept = models_at(config, address)
    names = known_models(config, name, address) if asked is None else [row.id for row in asked]
    facts = [facts_at(config, model, name, address) for model in names]
    return Offer(facts, kept.age if kept else None, problem)


async def list_models(provider: Provider, home: str | None = None) -> list[ListedModel]:
    """The models that the endpoint lists, sorted by name; `ModelError` when it fails.

    With a home the list is stored there, for the facts of its models.
    """
    http = Http(provider)
    model = client_for(provider, "")
    path = "models"
    if provider.wire == "anthropic" and not provider.query_params:
        path += "?limit=1000"
    try:
        document = await http.get_json(path, model.headers(ModelRequest("", [])))
    finally:
        await http.aclose()
        await model.aclose()
    rows = models_in(document)
    if rows is None:
        raise ModelError("server", f"{provider.shown_url('models')} did not answer with a list")
    if home is not None:
        store_list(home, provider.base_url.reveal(), rows)
    return rows
