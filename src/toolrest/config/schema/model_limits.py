"""Limits of models: context window and longest output, by the start of the model's name."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Thinking: TypeAlias = Literal["none", "budget", "adaptive"]
"""The thinking mode of a Claude model: none, a budget of tokens, or adaptive."""


class ModelInfo(NamedTuple):
    """Limits that requests need. `context_window` None: unknown, so nothing is assumed."""

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
