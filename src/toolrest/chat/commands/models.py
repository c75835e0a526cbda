"""`/model`: another model, and another effort, picked from what is known of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolrest.chat.picker import Picker
from toolrest.errors import ConfigError
from toolrest.timeline.text import shown, text_width
from toolrest.wire.addresses import provider_name
from toolrest.wire.model_facts import ModelFacts, facts_at, known_address, known_models
from toolrest.wire.providers import Offer, offered_models

if TYPE_CHECKING:
    from toolrest.chat.app import ChatApp

_PATIENCE = 20.0
_ASKS = "  Asking for the models"


async def pick_model(chat: ChatApp, words: str) -> None:
    """Go on with the model that is named, or picked; of several levels of effort one is picked.

    A name that is part of known ones lists these, and itself.
    """
    name, _, effort = words.partition(" ")
    facts = await _facts(chat, asks=not name)
    found = [row for row in facts if name in row.model]
    exact = next((row for row in facts if row.model == name), None)
    if name and (exact is not None or not found):
        await _change(chat, exact or ModelFacts(name, ""), effort.strip())
        return
    if not found:
        return
    current = chat.session.conversation.model.name
    at = next((number for number, row in enumerate(found) if row.model == current), 0)
    rows = list(_rows(found))
    if name:
        rows.append(f"{name}  as you wrote it")
        found.append(ModelFacts(name, ""))

    def take(number: int) -> None:
        chat.spawn(_change(chat, found[number], ""))

    title = "Which model? Dollars for 1M tokens (Esc leaves)"
    chat.screen.pick(Picker(title, rows, take, at))


async def _facts(chat: ChatApp, *, asks: bool) -> list[ModelFacts]:
    """What is known of the provider's models; it may be asked for them, and why it did not say."""
    config = chat.session.conversation.rest.config
    if not asks:
        provider = provider_name(config)
        address = known_address(config, provider)
        names = known_models(config, provider, address)
        return [facts_at(config, name, provider, address) for name in names]
    live = chat.screen.live
    live.hint = _ASKS
    try:
        offer = await asyncio.wait_for(offered_models(config), _PATIENCE)
    except TimeoutError:
        offer = Offer([], None, ConfigError("no answer"))
    finally:
        live.hint = "" if live.hint == _ASKS else live.hint
    if not offer.models:
        why = shown(str(offer.problem or "the list is empty"))
        chat.screen.say(f"Cannot list models: {why}. Name one: /model NAME", "yellow")
    return offer.models


async def _change(chat: ChatApp, row: ModelFacts, effort: str) -> None:
    if effort or len(row.efforts) < 2:
        more = {"model_reasoning_effort": effort} if effort else {}
        await chat.session.change(model=row.model, **more)
        return
    current = chat.session.conversation.rest.settings.model_reasoning_effort
    efforts = list(row.efforts)
    usual = current if current in efforts else None
    rows = [f"{each}{'  as now' if each == usual else ''}" for each in efforts]
    if usual is None:
        rows.insert(0, "as the model's server likes it")

    def take(number: int) -> None:
        chosen = ["", *efforts][number] if usual is None else efforts[number]
        more = {"model_reasoning_effort": chosen} if chosen and chosen != current else {}
        chat.spawn(chat.session.change(model=row.model, **more))

    title = f"How much effort for {shown(row.model)}? (Esc leaves)"
    at = efforts.index(usual) if usual is not None else 0
    chat.screen.pick(Picker(title, rows, take, at))


def _rows(found: Sequence[ModelFacts]) -> Iterator[str]:
    cells = [(shown(row.model), _window(row), _price(row), " ".join(row.efforts)) for row in found]
    widths = [max(map(text_width, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = zip(line, widths, strict=True)
        yield "  ".join(cell + " " * (width - text_width(cell)) for cell, width in padded).rstrip()


def _window(row: ModelFacts) -> str:
    if row.window is None:
        return ""
    return f"{row.window / 1e6:.3g}M" if row.window >= 1_000_000 else f"{row.window // 1000}k"


def _price(row: ModelFacts) -> str:
    return "" if row.price is None else f"${row.price.input:g} in, ${row.price.output:g} out"
