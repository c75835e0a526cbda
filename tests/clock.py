"""A time limit that ends when the test says so, on a machine of any speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Clock:
    """The clock of an event loop, which can be put forward.

    Give the limit that is tested a length that no machine needs, and let it pass as soon as what
    must come before it is there. Limits of the test itself (`asyncio.timeout`) pass with it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._real = loop.time
        self._ahead = 0.0

    def time(self) -> float:
        """What the loop takes for the time."""
        return self._real() + self._ahead

    def skip(self, seconds: float) -> None:
        """Let this much time pass at once."""
        self._ahead += seconds

    def once(self, text: str, seconds: float) -> Callable[..., None]:
        """For `on_bytes`: time passes once a command has said this, and only then."""
        heard = b""
        told = False

        def hear(*told_of: object) -> None:
            nonlocal heard, told
            data = told_of[-1]
            assert isinstance(data, bytes)
            heard += data
            if not told and text.encode() in heard:
                told = True
                self.skip(seconds)

        return hear
