"""What an endpoint can do: declared, usual for its kind, or learned from its refusals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from toolrest.records import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolrest.config.schema.providers import Capabilities

Reasoning: TypeAlias = Literal["turn", "always", "never"]
"""How long a Chat server gets its own reasoning back: until the user speaks again, or always."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Capabilities of one endpoint; see `[model_providers.NAME.capabilities]`.

    `text_calls` lets calls that a model wrote as text count. `instructions_item` sends the
    instructions as the first item, as Codex does, and not in their own field.
    """

    parallel_tool_calls: bool = True
    tool_choice: bool = True
    usage: bool = True
    images: bool = True
    tool_images: Literal["inline", "user_message"] = "user_message"
    developer_role: bool = False
    json_schema: bool = True
    reasoning: Reasoning = "turn"
    repair: bool = True
    text_calls: bool = False
    max_tools: int | None = None
    schema_subset: Literal["codex"] | None = None
    instructions_item: bool = False

    def declared(self, given: Capabilities) -> Profile:
        """The profile with what the settings declare."""
        stated = {name: value for name, value in given.as_dict().items() if value is not None}
        return replace(self, **stated)


OPENAI: Final = Profile(developer_role=True, tool_images="user_message", instructions_item=True)
HOSTED: Final = Profile()
LOCAL: Final = Profile(text_calls=True)

_COMPLAINT: Final = re.compile(
    r"unsupported|not supported|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed"
    r"|extra (inputs|fields)|additional propert|does ?n.t support|invalid (field|param|key)"
    r"|cannot be (used|set|specified)|not available|requires|input should be",
    re.IGNORECASE,
)


def refused_options(message: str, optional: Iterable[str]) -> list[str]:
    """Which of a request's optional fields the server's refusal names."""
    if not _COMPLAINT.search(message):
        return []
    return [name for name in optional if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message)]
