"""A provider: one endpoint with its address, key, headers, time limits and capabilities.

Capabilities are declared, usual for its kind, or learned from its refusals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from toolrest.config.secrets import secrets_in, url_password
from toolrest.secret import SafeUrl, Secret
from toolrest.urls import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolrest.config.schema.families import ModelWire
    from toolrest.config.schema.providers import Capabilities


Reasoning: TypeAlias = Literal["turn", "always", "never"]
"""Whether a Chat server gets its own reasoning back: until the next user message, or always."""


class Profile(Struct, frozen=True):
    """Capabilities of one endpoint; see `[model_providers.NAME.capabilities]`.

    `near` is a server of this machine or its network, where people run their own models.
    `text_calls` accepts calls that a model wrote as text. `instructions_item` sends the
    instructions as the first item, as Codex does, and not in their own field. Without
    `json_schema_with_tools` a schema would keep the model from making calls. `nine_char_ids`: ids
    of calls have nine letters or digits. `brings_tools_in`: an output may name tools that a model
    knows from there on, so that what is cached before it stays.
    """

    parallel_tool_calls: bool = True
    tool_choice: bool = True
    usage: bool = True
    images: bool = True
    tool_images: Literal["inline", "user_message"] = "user_message"
    developer_role: bool = False
    json_schema: bool = True
    json_schema_with_tools: bool = True
    reasoning: Reasoning = "turn"
    repair: bool = True
    text_calls: bool = False
    max_tools: int | None = None
    schema_subset: Literal["codex"] | None = None
    instructions_item: bool = False
    near: bool = False
    nine_char_ids: bool = False
    brings_tools_in: bool = False

    def declared(self, given: Capabilities) -> Profile:
        """The profile with what the settings declare."""
        stated = {name: value for name, value in given.as_dict().items() if value is not None}
        return replace(self, **stated)


OPENAI: Final = Profile(developer_role=True, tool_images="user_message", instructions_item=True)
HOSTED: Final = Profile()
LOCAL: Final = Profile(text_calls=True, json_schema_with_tools=False, near=True)
LOCAL_RESPONSES: Final = replace(OPENAI, json_schema_with_tools=False, near=True)

_COMPLAINT: Final = re.compile(
    r"unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed"
    r"|extra (inputs|fields)|extra_forbidden|is unsupported|additional propert"
    r"|does ?n.t support|invalid (field|param|key)"
    r"|cannot be (used|set|specified)|not available|requires|input should be",
    re.IGNORECASE,
)


def refused_options(message: str, optional: Iterable[str]) -> list[str]:
    """The optional fields of a request that the server's refusal names."""
    if not _COMPLAINT.search(message):
        return []
    return [name for name in optional if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message)]


_NO_KEY: Final = Secret()


class Provider(Struct, frozen=True):
    """A resolved endpoint. `key`, `headers` and `query_params` hold secrets, never shown.

    `key_variable` is where the key came from, for messages. Times are in seconds.
    """

    id: str
    base_url: SafeUrl
    wire: ModelWire = "responses"
    name: str = ""
    key: Secret = _NO_KEY
    key_variable: str | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    query_params: Mapping[str, Secret] = field(default_factory=dict)
    request_max_retries: int = 4
    stream_max_retries: int = 5
    idle_timeout: float = 300.0
    connect_timeout: float = 30.0
    profile: Profile = HOSTED
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of requests by the model's name; those under "" are for every model."""

    def options(self, model: str) -> dict[str, Any]:
        """The options of requests to a model: its own over those for every model."""
        every, own = self.requests.get("", {}), self.requests.get(model, {})
        extra = {**every.get("extra_body", {}), **own.get("extra_body", {})}
        return {**every, **own, **({"extra_body": extra} if extra else {})}

    def __repr__(self) -> str:
        return f"Provider(id={self.id!r}, wire={self.wire!r})"

    def url(self, path: str) -> str:
        """The URL of a request. Parameters are appended as they are written, in their order."""
        url = f"{self.base_url.reveal().rstrip('/')}/{path}"
        if not self.query_params:
            return url
        parameters = (f"{key}={value.reveal()}" for key, value in self.query_params.items())
        return f"{url}?{'&'.join(parameters)}"

    def shown_url(self, path: str) -> str:
        """The address without its parameters and credentials, which may be secret."""
        try:
            return parse_url(f"{self.base_url.reveal().rstrip('/')}/{path}").without_query
        except ValueError:
            return f"the provider {self.id!r}"

    @property
    def place(self) -> str:
        """The provider and its address without secrets: where unknown keys go back to."""
        return f"{self.id} {self.shown_url('')}"

    @property
    def limits_ids(self) -> bool:
        """Whether the ids of calls may have 64 characters, as OpenAI's API has it."""
        return (
            self.wire == "responses"
            or self.profile.developer_role
            or self.is_azure
            or "//api.openai.com" in str(self.base_url)
        )

    @property
    def is_azure(self) -> bool:
        """Whether this is an Azure deployment, which stores what it is sent."""
        marks = ("openai.azure.", "cognitiveservices.azure.", "aoai.azure.", "azure-api.")
        more = ("azurefd.", "windows.net/openai")
        address = str(self.base_url)
        return self.name.lower() == "azure" or any(mark in address for mark in marks + more)

    def without_secrets(self, text: str) -> str:
        """A server's message without our key and other secrets, should it repeat them."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            if len(secret) >= 8:
                text = text.replace(secret, "[redacted]")
        return text

    def _secrets(self) -> Iterator[str]:
        yield self.key.reveal()
        yield url_password(self.base_url.reveal()) or ""
        for value in self.headers.values():
            yield value.reveal().removeprefix("Bearer ")
        for name, value in self.query_params.items():
            if not name.endswith("version"):
                yield value.reveal()
        extra = (options.get("extra_body") for options in self.requests.values())
        yield from secrets_in([*extra])
