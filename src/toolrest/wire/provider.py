"""One endpoint with everything that is needed to ask it: address, key, headers, patience."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from toolrest.records import dataclass, field
from toolrest.wire._merge_profile import HOSTED, Profile

ModelWire: TypeAlias = Literal["responses", "chat", "anthropic"]


@dataclass(frozen=True, slots=True)
class Provider:
    """A resolved endpoint. `key` and `headers` hold secrets: neither is ever shown.

    `key_variable` is where the key came from, for messages. Times are in seconds.
    """

    id: str
    base_url: str
    wire: ModelWire = "responses"
    name: str = ""
    key: str = field(default="", repr=False)
    key_variable: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query_params: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_max_retries: int = 4
    stream_max_retries: int = 5
    idle_timeout: float = 300.0
    connect_timeout: float = 30.0
    profile: Profile = HOSTED

    def url(self, path: str) -> str:
        """Where a request goes. Parameters are appended as they are written, in their order."""
        url = f"{self.base_url.rstrip('/')}/{path}"
        if not self.query_params:
            return url
        return url + "?" + "&".join(f"{key}={value}" for key, value in self.query_params.items())

    def shown_url(self, path: str) -> str:
        """The address without its parameters and credentials, which may be secret."""
        from urllib.parse import urlsplit

        parts = urlsplit(f"{self.base_url.rstrip('/')}/{path}")
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        try:
            port = f":{parts.port}" if parts.port else ""
        except ValueError:
            port = ""
        return f"{parts.scheme}://{host}{port}{parts.path}"

    @property
    def is_azure(self) -> bool:
        """Azure's deployments store what they are sent, and take the key in another header."""
        marks = ("openai.azure.", "cognitiveservices.azure.", "aoai.azure.", "azure-api.")
        more = ("azurefd.", "windows.net/openai")
        return self.name.lower() == "azure" or any(mark in self.base_url for mark in marks + more)

    def without_secrets(self, text: str) -> str:
        """A server's words without our key, should it repeat it."""
        for secret in (self.key, *self.headers.values()):
            if len(secret) >= 8:
                text = text.replace(secret, "[redacted]")
        return text
