"""A secret that comes while a session is open is kept from its commands all the same."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from toolrest import Toolrest

READS = "find . -type f -name '.e*' -exec cat {} + ; echo end"
"""Reads every `.env` without naming one: a command that names one is denied before it starts."""

pytestmark = pytest.mark.needs("namespaces")


@pytest.fixture
def base(ground: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=ground))


async def test_a_secret_that_comes_during_the_session_is_hidden_from_the_next_command(
    base: Path,
) -> None:
    work = base / "work"
    (work / "app").mkdir(parents=True)
    (work / "app/.env").write_text("ONE")
    async with Toolrest(work, settings={"approval_policy": "never"}) as rest:

        async def said() -> str:
            return (await rest.call("exec_command", {"cmd": READS})).text

        assert "ONE" not in await said()
        (work / ".env").write_text("TWO")
        (work / ".env.local").write_text("THREE")
        (work / "app/.env.test").write_text("FOUR")
        text = await said()
        assert "end" in text
        assert not any(secret in text for secret in ("ONE", "TWO", "THREE", "FOUR"))


async def test_a_secret_that_comes_while_a_command_runs(base: Path) -> None:
    """It cannot be masked safely, so nothing that could read it is started."""
    work = base / "work"
    work.mkdir()
    async with Toolrest(work, settings={"approval_policy": "never"}) as rest:
        waits = {"cmd": "head -n 1 go > /dev/null", "yield_time_ms": 250}
        os.mkfifo(work / "go")
        running = await rest.call("exec_command", waits)
        assert "running with session ID" in running.text
        assert "ok" in (await rest.call("exec_command", {"cmd": "echo ok"})).text
        (work / ".env").write_text("SECRET")
        refused = await rest.call("exec_command", {"cmd": READS})
        assert refused.failure is not None
        assert refused.failure.kind == "sandbox_denied"
        assert f"{work}/.env" in refused.text
        (work / "go").write_text("\n")
        session = int(running.text.split("session ID ")[1].split()[0])
        ended = {"session_id": session, "chars": "", "yield_time_ms": 5000}
        assert "exited with code 0" in (await rest.call("write_stdin", ended)).text
        after = await rest.call("exec_command", {"cmd": READS})
        assert "end" in after.text
        assert "SECRET" not in after.text
