"""Arguments that become a model when they are first needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from toolrest.gate.tool.args_class import Parameters, model_of, param


class Inner(Parameters):
    """What fields are made of."""

    name: str = param(description="a name")


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_threads_that_need_it_first_at_once_get_one_model() -> None:
    """A session gets tools ready in a thread while the first call may be coming in."""
    for _ in range(20):

        class Args(Parameters):
            inner: list[Inner] = param(description="some")
            count: int = param(default=1, description="how many", ge=1)

        start = threading.Barrier(4)
        found: list[Any] = []

        def work(args: type[Parameters], start: threading.Barrier, found: list[Any]) -> None:
            start.wait(60)
            made = model_of(args)
            made.model_rebuild()
            found.append((made, made.model_validate({"inner": [{"name": "x"}]})))

        threads = [threading.Thread(target=work, args=(Args, start, found)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len({made for made, _ in found}) == 1
        assert all(isinstance(value, Args) for _, value in found)
