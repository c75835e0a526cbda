"""Changes of a store in threads, which a cancelled task still waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[..., T], *arguments: object) -> T:
    """Call something that changes the store in a thread; when cancelled, end after the call.

    A thread cannot be stopped, and what it writes late would replace what is written next.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
