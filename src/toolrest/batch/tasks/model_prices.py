"""The prices of the models that tasks name, and which limits in dollars cannot be kept."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolrest.batch.prices import Prices, no_price
from toolrest.batch.tasks.task import BatchTask
from toolrest.config.config import with_model
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.wire.model_facts import model_facts
from toolrest.wire.prices import Price
from toolrest.wire.providers import with_default_model

if TYPE_CHECKING:
    from toolrest.config import Config


class BatchPrices:
    """The prices for a batch: `--price`, else those of the settings and the vendors' lists."""

    def __init__(self, every: Price | None, overrides: tuple[str, ...]) -> None:
        self._every = every
        self._overrides = overrides
        self._models: dict[tuple[str | None, str | None], str | None] = {}
        settings = load(workspace=os.getcwd(), overrides=overrides, surface="cli").value
        self._found = {name: Price.of(row) for name, row in settings.model_prices.items()}

    def of(self, tasks: Iterable[BatchTask], *, max_total: bool) -> Prices:
        """The prices; ConfigError for a limit in dollars on a model without one.

        A folder's own settings can name another model, which shows only when its task runs.
        """
        prices = Prices(self._every, self._found)
        for task in tasks if self._every is None else ():
            model = self._model(task)
            is_limited = max_total or task.max_cost is not None
            if is_limited and model is not None and prices.price(model) is None:
                what = f"task {task.id}: `max_cost`" if task.max_cost else "--max-total-cost"
                raise ConfigError(f"{what} is set, and {no_price(model)}")
        return prices

    def _model(self, task: BatchTask) -> str | None:
        key = task.options.get("profile"), task.options.get("model")
        if key not in self._models:
            self._models[key] = self._look_up(*key)
        return self._models[key]

    def _look_up(self, profile: str | None, model: str | None) -> str | None:
        """The name of the model that a task gets; its price is noted, and those of sub-agents'."""
        try:
            config = load(
                workspace=os.getcwd(),
                overrides=self._overrides,
                flags={} if model is None else {"model": model},
                profile=profile,
                surface="cli",
            )
        except ConfigError:
            return None  # the task's own failure says what is wrong
        config = with_default_model(config)
        self._note(config)
        for name, role in config.value.agents.roles.items():
            if role.model is not None:
                self._note(with_model(config, role.model, f"agents.roles.{name}.model"))
        return config.value.model

    def _note(self, config: Config) -> None:
        """Note the price of the settings' model."""
        name, price = config.value.model, model_facts(config).price
        if name is not None and price is not None:
            self._found.setdefault(name, price)
