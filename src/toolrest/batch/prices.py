"""Prices of models for a batch: one for all on the command line, or those of the settings."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from toolrest.wire.model import Usage
from toolrest.wire.prices import Price, cost_of


class Prices(Struct, frozen=True):
    """The price of every model, or prices by the models' names."""

    every: Price | None = None
    by_model: Mapping[str, Price] = field(default_factory=dict)

    def of(self, spent: Mapping[str, Usage]) -> float | None:
        """The dollars for tokens by model; None where a price is not known."""
        total = 0.0
        for model, usage in spent.items():
            cost = cost_of(usage, self.price(model))
            if cost is None:
                return None
            total += cost
        return round(total, 6) if self.every or self.by_model else None

    def price(self, model: str) -> Price | None:
        """The price of one model."""
        return self.every or self.by_model.get(model)


def no_price(model: str) -> str:
    """What to do about a model whose price is not known."""
    return (
        f'the price of {model} is not known: give --price, or [model_prices."{model}"] in the '
        "settings"
    )
