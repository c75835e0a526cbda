"""Token usage of a conversation and its sub-agents, and the budget of a turn.

Past a limit of the budget the turn ends with a complete history.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, field

from toolrest.agent.conversation.events import TokenCount
from toolrest.agent.history.history import History
from toolrest.agent.history.tokens import AGENT_TOKENS, text_tokens, usage_json
from toolrest.events import Event
from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps
from toolrest.wire.model import Usage
from toolrest.wire.prices import Price, as_charged, cost_of

if TYPE_CHECKING:
    from toolrest.config import Settings


class Accounting(Struct):
    """Tokens as the server counts them, and an estimate for what it has not seen yet.

    `fixed` counts the tokens of instructions and tools. `limit` is where the user wants a summary;
    at nine tenths of the window there is one in any case. `write` takes the journal's lines.
    """

    window: int | None
    limit: int | None
    fixed: Callable[[], int] = lambda: 0
    total: Usage = field(default_factory=Usage)
    last: Usage = field(default_factory=Usage)
    turn: Usage = field(default_factory=Usage)
    """The tokens of the turn that runs, or ran last."""
    max_tokens: int | None = None
    """The most tokens of that turn."""
    spent: dict[str, Usage] = field(default_factory=dict)
    """The total by the names of the models."""
    price: Callable[[str], Price | None] = lambda _: None
    parent: Accounting | None = None
    """That of the session whose sub-agent this is; it counts the same tokens."""
    is_partial: bool = False
    """A server did not say how many tokens a reply took."""
    emit: Callable[[Event], None] = lambda _: None
    write: Callable[[JSONObject], None] = lambda _: None
    agent_prices: dict[str, Price | None] = field(default_factory=dict)
    """The prices of sub-agents' models, which may have another provider."""

    def cost(self) -> float | None:
        """The dollars for all tokens, sub-agents' included; None where something is unknown."""
        if self.is_partial or sum(self.spent.values(), Usage()).total != self.total.total:
            return None
        costs = [
            cost_of(usage, self.price(name) or self.agent_prices.get(name))
            for name, usage in self.spent.items()
        ]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def begin_turn(self, max_tokens: int | None) -> None:
        """Count a new turn's tokens from here on."""
        self.turn, self.max_tokens = Usage(), max_tokens

    def used_up(self) -> str | None:
        """The message about `max_tokens` that forbids one more request; None while there is room.

        A sub-agent also stops at the limit of the turn that it works for.
        """
        used = self.turn.total or self.turn.input + self.turn.output
        if self.max_tokens is not None and used >= self.max_tokens:
            return f"{used:,} tokens were used, and max_tokens is {self.max_tokens:,}"
        return None if self.parent is None else self.parent.used_up()

    def count(self, usage: Usage | None, model: str) -> None:
        """Count a reply, here and in every session above; its line also marks the reply's end."""
        usage = None if usage is None else as_charged(usage, self.price(model))
        self._add(usage, model)
        if usage is not None:
            self.emit(self.event(usage))
        self.write({"type": "token_count", "info": self._info(usage)})
        above = self.parent
        while above is not None:
            above.agent_prices[model] = self.price(model)
            above._count_agent(usage, model)
            above = above.parent

    def _count_agent(self, usage: Usage | None, model: str) -> None:
        """Count a reply to a sub-agent, which has no journal of its own."""
        self._add(usage, model)
        if usage is not None:
            self.emit(self.event(self.last))
            self.write({"type": AGENT_TOKENS, "model": model, "info": self._info(usage)})

    def _add(self, usage: Usage | None, model: str) -> None:
        if usage is None:
            self.is_partial = True
            return
        self.spent[model] = self.spent.get(model, Usage()) + usage
        self.total = self.total + usage
        self.turn = self.turn + usage

    def tokens(self, history: History) -> int:
        """An estimate of the tokens of the next request."""
        if self.last.total:
            return self.last.total + history.since_reply
        return self.fixed() + history.tokens

    @property
    def ceiling(self) -> int | None:
        """The tokens at which the history has to be compacted."""
        if self.window is None:
            return self.limit
        most = self.window * 9 // 10
        return most if self.limit is None else min(self.limit, most)

    def is_full(self, history: History) -> bool:
        """Whether the history has to be compacted."""
        return self.ceiling is not None and self.tokens(history) >= self.ceiling

    def _info(self, last: Usage | None) -> JSONObject | None:
        """The counts in the journal's line about a reply; None where the server has none."""
        if last is None:
            return None
        return {
            "total_token_usage": usage_json(self.total),
            "last_token_usage": usage_json(last),
            "model_context_window": self.window,
        }

    def event(self, last: Usage) -> TokenCount:
        """The event for a reply."""
        return TokenCount(
            total=usage_json(self.total),
            last=usage_json(last),
            model_context_window=self.window,
            cost=self.cost(),
        )


def fixed_tokens(instructions: str, offered: Callable[[], list[JSONObject]]) -> Callable[[], int]:
    """Counts the tokens of instructions and tools at the first use: the tools are loaded for it."""
    return cache(lambda: text_tokens(instructions) + text_tokens(dumps(offered())))


def difference(after: float | None, before: float | None) -> float | None:
    """What was added to a cost; None where one of them is not known."""
    return None if after is None or before is None else after - before


class Budget(Struct):
    """The limits of a turn and what was used of them. None is no limit.

    A turn here is one request to the model. `Accounting` counts the tokens.
    """

    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    turns: int = 0
    tool_calls: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Budget:
        """A new budget with the limits of the settings."""
        return cls(settings.max_turns, settings.max_tool_calls, settings.max_tokens)

    def used_up(self) -> str | None:
        """The message about the limit that forbids one more request; None while there is room."""
        if self.max_turns is not None and self.turns >= self.max_turns:
            return f"the model was asked {self.turns} times, and max_turns is {self.max_turns}"
        if self.max_tool_calls is not None and self.tool_calls > self.max_tool_calls:
            return f"max_tool_calls is {self.max_tool_calls}, and the model wants more"
        return None

    def take_call(self) -> str | None:
        """Count one more tool call; returns the refusal when it is one too many."""
        self.tool_calls += 1
        if self.max_tool_calls is not None and self.tool_calls > self.max_tool_calls:
            return f"not run: this turn may make {self.max_tool_calls} tool calls (max_tool_calls)"
        return None
