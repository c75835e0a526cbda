"""What is known about models, and what their tokens cost."""

from __future__ import annotations

import datetime as real
import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.conversation.usage import Accounting
from toolrest.agent.history.tokens import usage_from, usage_json
from toolrest.config import Config
from toolrest.config.loader import load
from toolrest.wire import model_data
from toolrest.wire.model import Usage
from toolrest.wire.model_data import bare_name, known_model, newest_general
from toolrest.wire.model_facts import model_facts
from toolrest.wire.model_list import ListedModel, store_list
from toolrest.wire.presets import BUILT_IN
from toolrest.wire.prices import Price, Rates

ROOT = Path(__file__).parents[2]


def config(home: Path, settings: Mapping[str, Any]) -> Config:
    """Settings as a person's own file and flags make them."""
    return load(home=home, workspace=home, flags=settings, env={}, surface="cli")


# Who says what


def test_the_users_word_counts_before_the_providers_and_that_before_the_data(
    toolrest_home: Path,
) -> None:
    given: dict[str, Any] = {"model": "claude-sonnet-5-5", "model_provider": "anthropic"}
    facts = model_facts(config(toolrest_home, given))
    assert (facts.window, facts.window_source) == (1_000_000, "data")
    assert facts.price == Price(2, 10, 0.1, 2.5)
    assert (facts.price_source, facts.efforts_source) == ("data", "family")
    row = ListedModel("claude-sonnet-5-5", 900_000, Price(3, 9), ("low", "max"))
    store_list(str(toolrest_home), BUILT_IN["anthropic"].base_url, [row])
    facts = model_facts(config(toolrest_home, given))
    assert (facts.window, facts.price, facts.efforts) == (900_000, Price(3, 9), ("low", "max"))
    assert {facts.window_source, facts.price_source, facts.efforts_source} == {"provider"}
    given["model_context_window"] = 5000
    (toolrest_home / "config.toml").write_text(
        '[model_prices."claude-sonnet-5-5"]\ninput = 1\noutput = 1\n'
    )
    facts = model_facts(config(toolrest_home, given))
    assert (facts.window, facts.price) == (5000, Price(1, 1))
    assert (facts.window_source, facts.price_source) == ("settings", "settings")
    other = model_facts(config(toolrest_home, given), "claude-opus-5-5")
    assert other.window == 1_000_000, "the window of the settings is that of their model"


def test_prices_are_those_of_the_address(
    toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"base_url": "https://gateway.example/v1"}
    mine = config(toolrest_home, {"model_provider": "mine", "model_providers.mine": row})
    assert model_facts(mine, "gpt-6.1-sol").price is None
    assert model_facts(mine, "gpt-6.1-sol", "openai").price is not None
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    assert model_facts(mine, "gpt-6.1-sol", "openai").price is None
    row["base_url"] = "https://api.anthropic.com/v1"
    mine = config(toolrest_home, {"model_provider": "mine", "model_providers.mine": row})
    assert model_facts(mine, "claude-opus-5-5").price == Price(4, 20, 0.2, 5)


def test_of_an_unknown_model_nothing_is_said(toolrest_home: Path) -> None:
    facts = model_facts(config(toolrest_home, {}), "made-up", "openai")
    assert (facts.window, facts.price, facts.efforts) == (None, None, ())
    assert (facts.window_source, facts.price_source, facts.efforts_source) == (None, None, None)
    nowhere = model_facts(config(toolrest_home, {}), "claude-opus-5-5", "nobody")
    assert nowhere.price is None


# The data


@pytest.mark.parametrize(
    ("provider", "name", "same"),
    [
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "Claude-Opus-4", "claude-opus-4-0"),
        ("anthropic", "claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
        ("openai", "gpt-5.5-2026-04-23", "gpt-5.5"),
        ("openai", "gpt-5.2-codex", "gpt-5.2"),
        ("google", "google/gemini-4-argon", "gemini-4-argon"),
        ("google", "models/gemini-4-argon", "gemini-4-argon"),
        ("aws", "eu.anthropic.claude-opus-5-5", "regional.anthropic.claude-opus-5-5"),
    ],
)
def test_names_of_the_same_model(provider: str, name: str, same: str) -> None:
    assert known_model(provider, name) == known_model(provider, same) is not None


def test_a_name_that_only_begins_alike_is_another_model() -> None:
    assert known_model("openai", "gpt-5.5-turbo") is None
    assert bare_name("gpt-5.1-codex") == "gpt-5.1-codex"


def test_a_price_changes_on_its_day(monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs(year: int, month: int) -> float:
        class Then(real.datetime):
            @classmethod
            def now(cls, tz: Any = None) -> Then:
                return cls(year, month, 2, tzinfo=tz)

        monkeypatch.setattr(model_data, "datetime", Then)
        known = known_model("google", "gemini-4-argon")
        assert known is not None
        assert known.price is not None
        return known.price.input

    assert (inputs(2026, 11), inputs(2026, 12)) == (2, 4)


def test_the_default_is_the_newest_general_model() -> None:
    assert newest_general("anthropic", "claude-") == "claude-sonnet-5-5"
    assert newest_general("openai", "gpt-") == "gpt-6.1-sol"
    assert newest_general("openrouter", "anthropic/claude-") == "anthropic/claude-sonnet-5.5"
    assert newest_general("google", "gemini-") == "gemini-4-argon"
    assert newest_general("google", "gemini-", ["models/gemini-3.8-flash"]) == (
        "models/gemini-3.8-flash"
    )
    assert newest_general("x-ai", "grok-") == "grok-4.7", "4.20 is older"
    assert newest_general("deepseek", "deepseek-v") == "deepseek-v4-pro"
    assert newest_general("mistral", "mistral-") == "mistral-large-4"
    assert newest_general("moonshotai", "kimi-k") == "kimi-k3.1-pro"
    assert newest_general("groq", "openai/gpt-oss-") == "openai/gpt-oss-120b"
    older = ["claude-opus-4-5-20251101", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"]
    assert newest_general("anthropic", "claude-", older) == "claude-sonnet-4-5-20250929"
    assert newest_general("openai", "gpt-", ["gpt-5.4-pro", "gpt-5.4", "gpt-image-2"]) == "gpt-5.4"
    assert newest_general("openai", "gpt-", ["somebody-elses"]) is None


def test_the_data_is_as_it_was_imported() -> None:
    """A version of genai-prices that pyproject.toml names needs `make model-data`."""
    path = ROOT / "src" / "toolrest" / "wire" / "models.json"
    text = path.read_text()
    made = runpy.run_path(str(ROOT / "release" / "make_model_data.py"))
    day = real.date.fromisoformat(json.loads(text)["date"])
    assert made["document"](day) == text
    assert "Pydantic Services Inc." in (ROOT / "THIRD_PARTY_NOTICES.md").read_text()


# Costs


def test_long_requests_cost_more_and_a_resumed_session_knows_it() -> None:
    price = Price(1, 10, long_above=100_000, long=Rates(2, 20))
    costs = Accounting(None, None, price={"m": price}.get)
    short, long = Usage(100_000, output=1000, total=101_000), Usage(200_000, total=200_000)
    costs.count(short, "m")
    assert costs.cost() == pytest.approx(0.11)
    costs.count(long, "m")
    assert costs.cost() == pytest.approx(0.11 + 0.4)
    again = usage_from(json.loads(json.dumps(usage_json(costs.spent["m"]))))
    assert again == costs.spent["m"]
    resumed = Accounting(None, None, total=again, spent={"m": again}, price={"m": price}.get)
    assert resumed.cost() == pytest.approx(0.51)
    nested: Any = {}
    for _ in range(100):
        nested = {"long_requests": nested}
    assert usage_from(nested).long == Usage()
