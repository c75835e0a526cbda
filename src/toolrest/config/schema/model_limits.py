"""How large a model's window is and how much it may write, by the start of its name."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Thinking: TypeAlias = Literal["none", "budget", "adaptive"]
"""How a Claude model is asked to think: not at all, up to so many tokens, or as it sees fit."""


class ModelInfo(NamedTuple):
    """What requests need to know. `context_window` None: nobody knows, so nothing is assumed."""

    context_window: int | None = None
    max_output_tokens: int = 16_384
    thinking: Thinking = "adaptive"


# The first row whose prefix fits is taken. Cautious where vendors differ by plan or beta: a
# window that is too small costs a compaction, one that is too large costs the turn.
_ROWS: tuple[tuple[str, ModelInfo], ...] = (
    ("gpt-5", ModelInfo(272_000, 128_000)),
    ("gpt-6", ModelInfo(272_000, 128_000)),
    ("codex-mini", ModelInfo(200_000, 100_000)),
    ("gpt-oss", ModelInfo(131_072, 32_768)),
    ("gpt-4.1", ModelInfo(1_047_576, 32_768)),
    ("gpt-4o", ModelInfo(128_000, 16_384)),
    ("gpt-3.5", ModelInfo(16_385, 4_096)),
    ("o3", ModelInfo(200_000, 100_000)),
    ("o4-mini", ModelInfo(200_000, 100_000)),
    ("claude-3-7", ModelInfo(200_000, 64_000, "budget")),
    ("claude-3-5", ModelInfo(200_000, 8_192, "none")),
    ("claude-3", ModelInfo(200_000, 4_096, "none")),
    ("claude-opus-4-0", ModelInfo(200_000, 32_000, "budget")),
    ("claude-opus-4-1", ModelInfo(200_000, 32_000, "budget")),
    ("claude-opus-4-2", ModelInfo(200_000, 32_000, "budget")),
    ("claude-opus-4-5", ModelInfo(200_000, 64_000, "budget")),
    ("claude-sonnet-4-0", ModelInfo(200_000, 64_000, "budget")),
    ("claude-sonnet-4-2", ModelInfo(200_000, 64_000, "budget")),
    ("claude-sonnet-4-5", ModelInfo(200_000, 64_000, "budget")),
    ("claude-haiku-4-5", ModelInfo(200_000, 64_000, "budget")),
    ("claude", ModelInfo(200_000, 64_000, "adaptive")),
)
UNKNOWN_MODEL = ModelInfo()


def model_info(model: str) -> ModelInfo:
    """The row for a model, also when its name has a leading `vendor/`."""
    slug = model.strip().lower()
    for name in (slug, slug.rsplit("/", 1)[-1]):
        for prefix, row in _ROWS:
            if name.startswith(prefix):
                return row
    return UNKNOWN_MODEL
