"""Facts about models by the start of their names, for what nobody lists."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

Thinking: TypeAlias = Literal["none", "budget", "adaptive"]
"""The thinking mode of a Claude model: none, a budget of tokens, or adaptive."""
_LARGE: Final = 400_000


class ModelInfo(NamedTuple):
    """Limits that requests need. `context_window` None: unknown, so nothing is assumed.

    `efforts` are the levels of reasoning effort, the weakest first; none are known if it is empty.
    `shares` says that in the window as it is listed there is room for the longest reply, too.
    """

    context_window: int | None = None
    max_output_tokens: int = 16_384
    thinking: Thinking = "adaptive"
    efforts: tuple[str, ...] = ()
    shares: bool = False

    def room(self, listed: int | None) -> int | None:
        """The most tokens of a request where the window is listed as this."""
        if listed is None or not self.shares or listed < _LARGE:
            return listed
        return listed - self.max_output_tokens


_THREE: Final = ("low", "medium", "high")
_FOUR: Final = (*_THREE, "xhigh")
_BUDGETS: Final = ("minimal", *_FOUR)


def _gpt(*efforts: str) -> ModelInfo:
    return ModelInfo(272_000, 128_000, efforts=efforts, shares=True)


def _claude(most: int, thinking: Thinking, *efforts: str) -> ModelInfo:
    return ModelInfo(200_000, most, thinking, efforts)


_CLAUDE_5: Final = ModelInfo(1_000_000, 64_000, "adaptive", (*_FOUR, "max"))


# The first row whose prefix fits is taken. Cautious where vendors differ by plan or beta: a
# window that is too small costs a compaction, one that is too large costs the turn.
_ROWS: Final[tuple[tuple[str, ModelInfo], ...]] = (
    ("gpt-6", _gpt("none", *_FOUR, "max")),
    ("gpt-5.6", _gpt("none", *_FOUR, "max")),
    ("gpt-5.5-pro", _gpt("medium", "high", "xhigh")),
    ("gpt-5.4-pro", _gpt("medium", "high", "xhigh")),
    ("gpt-5.2-pro", _gpt("medium", "high", "xhigh")),
    ("gpt-5.3-codex", _gpt(*_FOUR)),
    ("gpt-5.2-codex", _gpt(*_FOUR)),
    ("gpt-5.1-codex-max", _gpt(*_FOUR)),
    ("gpt-5.1-codex", _gpt(*_THREE)),
    ("gpt-5.1", _gpt("none", *_THREE)),
    ("gpt-5.", _gpt("none", *_FOUR)),
    ("gpt-5-codex", _gpt(*_THREE)),
    ("gpt-5-pro", _gpt("high")),
    ("gpt-5", _gpt("minimal", *_THREE)),
    ("codex-mini", ModelInfo(200_000, 100_000, efforts=_THREE)),
    ("gpt-oss", ModelInfo(131_072, 32_768, efforts=_THREE)),
    ("gpt-4.1", ModelInfo(1_047_576, 32_768)),
    ("gpt-4o", ModelInfo(128_000, 16_384)),
    ("gpt-3.5", ModelInfo(16_385, 4_096)),
    ("o3", ModelInfo(200_000, 100_000, efforts=_THREE)),
    ("o4-mini", ModelInfo(200_000, 100_000, efforts=_THREE)),
    ("claude-3-7", _claude(64_000, "budget", *_BUDGETS)),
    ("claude-3-5", _claude(8_192, "none")),
    ("claude-3", _claude(4_096, "none")),
    ("claude-opus-4-0", _claude(32_000, "budget", *_BUDGETS)),
    ("claude-opus-4-1", _claude(32_000, "budget", *_BUDGETS)),
    ("claude-opus-4-2", _claude(32_000, "budget", *_BUDGETS)),
    ("claude-opus-4-5", _claude(64_000, "budget", *_BUDGETS)),
    ("claude-sonnet-4-0", _claude(64_000, "budget", *_BUDGETS)),
    ("claude-sonnet-4-2", _claude(64_000, "budget", *_BUDGETS)),
    ("claude-sonnet-4-5", _claude(64_000, "budget", *_BUDGETS)),
    ("claude-haiku-4-5", _claude(64_000, "budget", *_BUDGETS)),
    ("claude-opus-4-6", ModelInfo(1_000_000, 64_000, efforts=(*_THREE, "max"))),
    ("claude-sonnet-4-6", ModelInfo(1_000_000, 64_000, efforts=(*_THREE, "max"))),
    ("claude-opus-4-7", _CLAUDE_5),
    ("claude-opus-4-8", _CLAUDE_5),
    ("claude-opus-5", _CLAUDE_5),
    ("claude-sonnet-5", _CLAUDE_5),
    ("claude-haiku-5", _CLAUDE_5),
    ("claude-fable-5", _CLAUDE_5),
    ("claude-mythos-5", _CLAUDE_5),
    ("claude", _claude(64_000, "adaptive", *_THREE)),
    ("gemini-3", ModelInfo(efforts=("minimal", *_THREE))),
    ("gemini-2.5", ModelInfo(efforts=_THREE)),
    ("grok-4.3", ModelInfo(efforts=("none", *_THREE))),
    ("deepseek-v4", ModelInfo(efforts=("low", "high", "max"))),
    ("deepseek-flash", ModelInfo(efforts=("low", "high", "max"))),
    ("kimi-k3", ModelInfo(efforts=("low", "high", "max"))),
)
UNKNOWN_MODEL: Final = ModelInfo()


def model_info(model: str) -> ModelInfo:
    """The row for a model, also when its name has a leading `vendor/`."""
    slug = model.strip().lower()
    for name in (slug, slug.rsplit("/", 1)[-1]):
        for prefix, row in _ROWS:
            if name.startswith(prefix):
                return row
    return UNKNOWN_MODEL
