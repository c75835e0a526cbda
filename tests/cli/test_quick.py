"""The quick start changes nothing that anybody could notice but the time."""

from __future__ import annotations

import os
import subprocess
import sys


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return done.stdout.strip()


def test_what_nobody_uses_is_not_loaded_and_what_is_used_works() -> None:
    code = """
from toolrest.cli.startup import quick_start, settled, users_environment
quick_start()
import sys
from pydantic import BaseModel
class Model(BaseModel):
    number: int
assert Model(number=1).number == 1
assert "email" not in sys.modules
assert "PYDANTIC_DISABLE_PLUGINS" not in users_environment()
import importlib.metadata
from importlib.metadata import entry_points
assert importlib.metadata.version("pydantic")
assert any(point.name == "toolrest" for point in entry_points(group="console_scripts"))
import importlib.metadata as again
assert again.distribution("click").name.lower() == "click"
settled()
import gc
print(gc.isenabled())
"""
    assert run(code) == "True"


def test_the_users_own_choice_stays() -> None:
    code = """
from toolrest.cli.startup import quick_start, users_environment
quick_start()
print(users_environment()["PYDANTIC_DISABLE_PLUGINS"])
"""
    assert run(code, PYDANTIC_DISABLE_PLUGINS="logfire") == "logfire"
