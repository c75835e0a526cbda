"""The quick start changes nothing but the time."""

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


def test_pydantic_works_and_the_users_environment_is_kept() -> None:
    code = """
from toolrest.cli.startup import quick_start, settled, users_environment
quick_start()
import gc
from pydantic import BaseModel
class Model(BaseModel):
    number: int
assert Model(number=1).number == 1
assert not gc.isenabled()
assert "PYDANTIC_DISABLE_PLUGINS" not in users_environment()
settled()
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
