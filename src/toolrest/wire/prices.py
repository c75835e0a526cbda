"""What tokens cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolrest.wire.model import Usage

if TYPE_CHECKING:
    from toolrest.config.schema.providers import ModelPrice


class Rates(Struct, frozen=True):
    """Dollars for a million tokens; without a price of their own, cached ones cost like input."""

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def dollars(self, usage: Usage) -> float:
        """The dollars for these tokens."""
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        fresh = max(0, usage.input - usage.cached_input - usage.cache_write_input)
        total = fresh * self.input + usage.cached_input * cached
        total += usage.cache_write_input * written + usage.output * self.output
        return total / 1_000_000


class Price(Rates, frozen=True):
    """The price of a model. `long`: the rates of requests with more input than `long_above`."""

    long_above: int | None = None
    long: Rates | None = None

    @classmethod
    def of(cls, row: ModelPrice) -> Price:
        """The price of a row of `[model_prices]`."""
        return cls(row.input, row.output, row.cached_input, row.cache_write)


def as_charged(usage: Usage, price: Price | None) -> Usage:
    """The usage of one request, with what is charged at the rates of long ones marked."""
    if price is None or price.long_above is None or usage.input <= price.long_above:
        return usage
    return replace(usage, long=replace(usage, long=None))


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The dollars for these tokens; None without a price."""
    if price is None:
        return None
    total = price.dollars(usage)
    if price.long is not None and usage.long is not None:
        total += price.long.dollars(usage.long) - price.dollars(usage.long)
    return total
