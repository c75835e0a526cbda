"""How well is each control enforced? The words that every backend answers in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from toolrest.records import dataclass
from toolrest.sandbox.policy import CONTROLS, Control

Level: TypeAlias = Literal["full", "partial", "none"]


@dataclass(frozen=True, slots=True)
class Enforced:
    """The answer for one control; `note` says what is missing from it."""

    level: Level = "full"
    note: str = ""


FULL = Enforced()
Controls: TypeAlias = Mapping[Control, Enforced]


def all_full() -> dict[Control, Enforced]:
    """Every control, enforced in full; a backend then says where it falls short."""
    return dict.fromkeys(CONTROLS, FULL)


def unmet(controls: Controls, required: Iterable[Control]) -> list[str]:
    """The required controls that are not enforced at all, each with the reason."""
    return [
        f"{name}: {answer.note or 'not enforced'}"
        for name in required
        if (answer := controls.get(name, Enforced("none"))).level == "none"
    ]


def gaps(controls: Controls) -> tuple[str, ...]:
    """What is not enforced in full, one sentence each."""
    return tuple(
        f"{name}: {answer.note}" for name, answer in controls.items() if answer.level != "full"
    )
