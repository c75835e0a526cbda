"""The budget for reading one command line; beyond it the line is not understood."""

from __future__ import annotations

MAX_COMMANDS = 12_000
MAX_STEPS = 30_000
MAX_SECONDS = 0.08


class TooMuchWork(Exception):
    """Reading the script costs more than it may: nothing is known about it."""


class ParseBudget:
    """The budget left for reading one command line, nested scripts included.

    `commands` to judge, `steps` through syntax trees (a word is two, a statement eight), and
    `seconds` of processor time for making those trees.
    """

    __slots__ = ("commands", "seconds", "steps")

    def __init__(self) -> None:
        self.commands, self.steps, self.seconds = MAX_COMMANDS, MAX_STEPS, MAX_SECONDS

    def step(self, count: int) -> None:
        """Take so many steps; TooMuchWork when none are left."""
        self.steps -= count
        if self.steps < 0:
            raise TooMuchWork
