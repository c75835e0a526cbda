"""How long has the conversation become, and what has it cost?"""

from __future__ import annotations

from toolrest.agent.conversation.events import TokenCount
from toolrest.agent.history.history import History
from toolrest.agent.history.tokens import usage_json
from toolrest.items import JSONObject
from toolrest.records import dataclass, field
from toolrest.wire.model import Usage


@dataclass(slots=True)
class Accounting:
    """Tokens as the server counts them, and an estimate for what it has not seen yet.

    `fixed` are the tokens of instructions and tools. `limit` is where the user wants a summary;
    at nine tenths of the window there is one in any case.
    """

    window: int | None
    limit: int | None
    fixed: int = 0
    total: Usage = field(default_factory=Usage)
    last: Usage = field(default_factory=Usage)

    def tokens(self, history: History) -> int:
        """How many tokens the next request will have, as well as can be told."""
        if self.last.total:
            return self.last.total + history.since_reply
        return self.fixed + history.tokens

    def is_full(self, history: History) -> bool:
        """Whether it is time for a summary."""
        limit = self.limit
        if self.window is not None:
            most = self.window * 9 // 10
            limit = most if limit is None else min(limit, most)
        return limit is not None and self.tokens(history) >= limit

    def line(self, last: Usage) -> JSONObject:
        """For the journal."""
        info = {
            "total_token_usage": usage_json(self.total),
            "last_token_usage": usage_json(last),
            "model_context_window": self.window,
        }
        return {"type": "token_count", "info": info}

    def event(self, last: Usage) -> TokenCount:
        """For whoever listens."""
        return TokenCount(
            total=usage_json(self.total), last=usage_json(last), model_context_window=self.window
        )
