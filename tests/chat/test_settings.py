"""Settings of the chat: prices, keys, vi, colours."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.chat.test_chat import CTRL_C, CTRL_D, ENTER, ESC, says
from tests.screen import Screen

from toolrest.agent.conversation.usage import Accounting
from toolrest.chat.keys import keys_of
from toolrest.chat.terminal.themes import colours
from toolrest.config.schema.chat import ChatKeys, key_codes
from toolrest.errors import ConfigError
from toolrest.timeline.draw import dollars
from toolrest.wire.model import Usage
from toolrest.wire.prices import Price, cost_of

PRICES = """
[model_prices."gpt-5.5"]
input = 1000
cached_input = 100
output = 20_000
"""


# Cost


def test_cached_tokens_have_a_price_of_their_own() -> None:
    price = Price(input=10.0, cached_input=1.0, cache_write=20.0, output=100.0)
    usage = Usage(input=1_000_000, cached_input=500_000, cache_write_input=100_000, output=1000)
    assert cost_of(usage, price) == pytest.approx(4 + 0.5 + 2 + 0.1)
    assert cost_of(usage, Price(input=10.0, output=100.0)) == pytest.approx(10.1)
    assert cost_of(usage, None) is None


def test_a_cost_that_is_not_known_is_never_a_number() -> None:
    prices = {"a": Price(input=1.0, output=1.0)}
    known = Accounting(None, None, price=prices.get)
    known.count(Usage(input=1_000_000, total=1_000_000), "a")
    assert known.cost() == 1.0
    elsewhere = {"c": Price(input=2.0, output=1.0)}
    child = Accounting(None, None, price=elsewhere.get, parent=known)
    child.count(Usage(input=1_000_000, total=1_000_000), "c")
    assert known.cost() == 3.0, "a sub-agent's model may have another provider"
    child.count(Usage(input=1, total=1), "b")
    assert known.cost() is None, "a sub-agent's model has no price"
    known.spent.clear()
    assert known.cost() is None, "tokens of models that are not known"
    assert dollars(None) == "–"
    assert [dollars(cost) for cost in (0, 0.0123, 0.5, 1234.5)] == [
        "$0.00",
        "$0.0123",
        "$0.50",
        "$1,234.50",
    ]


@pytest.mark.long
def test_a_model_without_a_price_has_no_cost(chat: Any) -> None:
    screen = chat(["hello"])
    screen.shows("100% context left")
    assert bottom(screen).endswith("context left")
    says(screen, "/status")
    screen.sees("  cost       – (a price is not known")


def bottom(screen: Screen) -> str:
    """The status line."""
    return next((row for row in screen.rows if "context left" in row), "")


@pytest.mark.slow
def test_prices_of_ones_own_make_a_cost_that_a_resumed_session_keeps(chat: Any) -> None:
    screen = chat(["hello", "again"], settings=PRICES)
    says(screen, "hi")
    screen.sees("Worked for", " · $0.30")
    screen.until(lambda: bottom(screen).endswith("$0.30"), "the status line")
    screen.types(CTRL_D)
    assert screen.ends() == 0
    other = chat.again("resume", "--last")
    other.until(lambda: bottom(other).endswith("$0.30"), "the status line")
    says(other, "and now?")
    other.until(lambda: bottom(other).endswith("$0.60"), "the status line")


# Keys


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("ctrl-o", ("c-o",)),
        ("Alt-Enter", ("escape", "enter")),
        ("shift-tab", ("s-tab",)),
        ("f12", ("f12",)),
        ("ctrl-x ctrl-e", ("c-x", "c-e")),
        ("ctrl-m", ("enter",)),
        ("alt--", ("escape", "-")),
    ],
)
def test_keys_have_names(text: str, codes: tuple[str, ...]) -> None:
    assert key_codes(text) == codes


@pytest.mark.parametrize("text", ["", "x", "space", "ctrl-", "ctrl-1", "hyper-x", "f13", "ctrl-é"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"key|text that one writes"):
        key_codes(text)


def test_every_default_key_is_free_for_another_action() -> None:
    chosen = ChatKeys(output=("ctrl-g",))
    found = keys_of(chosen)
    assert found[("c-g",)] == "output"
    assert ("c-o",) not in found
    with pytest.raises(ConfigError, match=r"ctrl-g is both output and editor|editor and output"):
        keys_of(ChatKeys(output=("ctrl-g",), editor=("ctrl-g",)))


def test_keys_are_settings(chat: Any) -> None:
    keys = '[chat.keys]\nnewline = "ctrl-n"\nback = "f2"\nleave = ["f9", "ctrl-d"]\n'
    screen = chat(["got it"], settings=keys)
    screen.types("one\x0etwo" + ENTER)
    screen.sees("got it", "> one", "  two", "Worked for")
    screen.types("\x1bOQ")
    screen.shows("Go back to which message?")
    screen.types(ESC)
    screen.lacks("Go back")
    screen.types("\x1b[20~")
    assert screen.ends() == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('dance = "f2"', "chat.keys.dance"),
        ('output = "hyper-x"', "'hyper-x' is not a key"),
        ('output = "x"', "'x' is text that one writes"),
        ('output = "ctrl-h"', "'ctrl-h': terminals send Backspace as ctrl-h; use another key"),
    ],
)
def test_an_unknown_action_or_key_is_named(desk: Any, line: str, words: str) -> None:
    (desk.home / "config.toml").write_text(f"[chat.keys]\n{line}\n")
    ran = desk.run("config", "show")
    assert ran.code == 2
    assert words in ran.err


@pytest.mark.long
def test_vi_edits_and_interrupts(chat: Any) -> None:
    screen = chat(["got it", "again"], settings='[chat]\nedit_mode = "vi"\n')
    screen.types("one two")
    screen.shows("› one two")
    screen.types(ESC)
    screen.shows(": one two")
    screen.types("0cw")
    screen.shows("› two")
    screen.types("three " + ESC)
    screen.shows(": three two")
    screen.types(ENTER)
    screen.sees("> three two", "got it", "Worked for")
    screen.types("at once" + ENTER)
    screen.sees("> at once", "again")
    screen.types("x" + CTRL_C)
    screen.lacks("› x")


# Colours


def test_themes_have_the_same_styles_and_none_has_no_colours() -> None:
    terminal = colours("terminal", allowed=True)
    for name in ("light", "dark", "none"):
        theme = colours(name, allowed=True)
        assert theme.ansi.keys() == terminal.ansi.keys()
        assert theme.live.keys() == terminal.live.keys()
    assert not colours("none", allowed=True).any
    assert not colours("dark", allowed=False).any
    assert colours("dark", allowed=True).live["red"] == "fg:#ff5f5f"


@pytest.mark.long
def test_a_theme_is_picked_and_kept(chat: Any, desk: Any) -> None:
    screen = chat(["# Title", "# Title"])
    says(screen, "/theme nope")
    screen.sees("expected one of 'terminal'")
    says(screen, "/theme")
    screen.shows("Which colours?", "› terminal")
    screen.types("\x1b[B\x1b[B" + ENTER)
    screen.sees("colours: dark, from now on")
    says(screen, "hi")
    screen.sees("Worked for")
    assert b"\x1b[38;5;245m" in screen.raw
    says(screen, "/new")
    screen.sees("New session")
    says(screen, "/theme")
    screen.shows("› dark")  # failed before: the new session had the old colours
    screen.types(ESC)
    assert 'theme = "dark"' in (desk.home / "config.toml").read_text()
    assert os.stat(desk.home / "config.toml").st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_model_and_its_effort_are_picked_from_what_is_known(chat: Any, serve: Any) -> None:
    """With windows, prices and effort; the list is the server's own, asked for once."""
    prices = '[model_prices."gpt-5-mini"]\ninput = 0.25\ncached_input = 0.025\noutput = 2.0\n'
    screen = chat(["fine"], settings=prices)
    server = serve.servers[-1]
    server._models = ("gpt-5-mini", "gpt-5.5", "odd-one")
    says(screen, "/model")
    screen.shows(
        "Which model?", "› gpt-5.5", "  gpt-5-mini  272k  $0.25 in, $2 out  minimal low medium"
    )
    screen.types("\x1b[A" + ENTER)
    screen.shows("How much effort for gpt-5-mini?", "› as the model's server likes it")
    screen.types("\x1b[B\x1b[B" + ENTER)
    screen.sees("Model: gpt-5-mini · Effort: low")
    screen.shows("· gpt-5-mini ·")
    says(screen, "hello")
    screen.sees("fine", "Worked for")
    sent = server.requests[-1].body
    assert (sent["model"], sent["reasoning"]["effort"]) == ("gpt-5-mini", "low")
    says(screen, "/model odd")
    screen.shows("› odd-one", "  odd  as you wrote it")
    screen.types(ENTER)
    screen.sees("Model: odd-one")
    assert len(server.listings) == 1


def test_without_a_list_a_model_is_named(chat: Any, serve: Any) -> None:
    """Why there is none is said, and a name is enough."""
    screen = chat(["fine"])
    serve.servers[-1]._models = ()
    says(screen, "/model")
    screen.sees("Cannot list models: ", "Name one: /model NAME")
    says(screen, "/model odd-one high")
    screen.sees("Model: odd-one · Effort: high")
