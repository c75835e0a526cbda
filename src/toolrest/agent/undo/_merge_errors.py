"""What can go wrong with checkpoints, for the host program."""

from __future__ import annotations

from toolrest.errors import ToolrestError


class CheckpointError(ToolrestError):
    """The workspace's state could not be saved or read; the message says what to do."""


class TooSlow(CheckpointError):
    """Nothing was done: it takes longer than somebody who is in a hurry can wait."""


class UndoError(ToolrestError):
    """Nothing was taken back; the message says why."""
