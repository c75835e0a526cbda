"""The chat on a real terminal, with a scripted server for its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.config.trust import distrust, trust_of

Chat = Callable[..., Screen]
READY = "Toolrest 0."
"""What the first line of a chat begins with, once there is a session."""


@pytest.fixture
def chat(desk: Any, serve: Any) -> Iterator[Chat]:  # noqa: F811
    """Starts a chat whose model follows a script; it is there when this returns.

    In a folder that is known, unless it `asks`: then it has only begun.
    """
    with ExitStack() as stack:

        def start(
            script: Any,
            *arguments: str,
            size: tuple[int, int] = (24, 80),
            settings: str = "",
            asks: bool = False,
            program: Sequence[str] = (TOOLREST,),
            **env: str,
        ) -> Screen:
            serve(script)
            with open(desk.home / "config.toml", "a") as file:
                file.write(settings)
            if not asks and trust_of(desk.workspace) is None:
                distrust(desk.workspace)  # the answer "Read only": it is not asked again
            begins = begin if asks else go_on
            return begins(*arguments, size=size, program=program, **env)

        def go_on(*arguments: str, **options: Any) -> Screen:
            screen = begin(*arguments, **options)
            screen.sees(READY)
            return screen

        def begin(
            *arguments: str,
            size: tuple[int, int] = (24, 80),
            program: Sequence[str] = (TOOLREST,),
            **env: str,
        ) -> Screen:
            argv = [*program, *arguments]
            return stack.enter_context(Screen(argv, size=size, cwd=desk.workspace, env=env))

        start.again = go_on  # type: ignore[attr-defined]
        start.begin = begin  # type: ignore[attr-defined]
        yield start
