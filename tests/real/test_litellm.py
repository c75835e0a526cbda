"""LiteLLM's proxy in front of llama.cpp's server, by four of its names, on three APIs."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.real.conftest import SERVER, WIRES, Llama, assert_valid, note
from tests.real.tiny_model import write_model

from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.conversation.usage import Budget
from toolrest.config.schema.families import ModelWire

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
KINDS = {"openai": "/v1", "hosted_vllm": "/v1", "llamafile": "/v1", "anthropic": ""}
"""Kinds of upstream, each with what follows the address of llama.cpp's server."""
KEY = f"sk-{secrets.token_hex(32)}"


@pytest.fixture(scope="module")
def litellm(
    apart: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A proxy that knows the model by each of the kinds; its address and version."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("llama.cpp is not here: pip install xllamacpp (x86-64 Linux)")
    python = apart("litellm[proxy]")
    folder = tmp_path_factory.mktemp("litellm")
    write_model(folder / "tiny.gguf", window=32768, calls=0.7)
    argv = [sys.executable, "-P", str(SERVER), str(folder / "tiny.gguf"), "{}"]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=quiet, text=True) as llama:
        assert llama.stdout is not None
        upstream = next(line for line in llama.stdout if line.startswith("http")).strip()
        rows = [
            {
                "model_name": kind,
                "litellm_params": {
                    "model": f"{kind}/tiny",
                    "api_base": f"{upstream}{path}",
                    "api_key": "none",
                },
            }
            for kind, path in KINDS.items()
        ]
        config = folder / "config.yaml"  # JSON is YAML, too
        config.write_text(json.dumps({"model_list": rows}))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        program = [str(Path(python).with_name("litellm")), "--config", str(config)]
        program += ["--host", "127.0.0.1", "--port", str(port)]
        log = (folder / "log").open("w")
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_MASTER_KEY": KEY}
        env["LITELLM_LOCAL_MODEL_COST_MAP"] = "1"
        with subprocess.Popen(program, stdin=quiet, stdout=log, stderr=log, env=env) as proxy:
            address = f"http://127.0.0.1:{port}"
            try:
                _wait_for(f"{address}/health/liveliness", proxy, folder / "log")
                yield address, _version(python)
            finally:
                proxy.terminate()
                llama.kill()
                log.close()


def _wait_for(url: str, proxy: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end and proxy.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"LiteLLM did not start: {log.read_text()[-2000:]}")


def _version(python: str) -> str:
    code = "import importlib.metadata as m; print(m.version('litellm'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_loop(
    kind: str,
    wire: ModelWire,
    litellm: tuple[str, str],
    talk: Callable[..., Conversation],
    record_property: Callable[[str, object], None],
) -> None:
    """Several turns with calls in them, each of which gets its output."""
    address, version = litellm
    record_property("version", version)
    row = {"request": {"context_window": 32768}, "experimental_bearer_token": KEY}
    settings = Llama(None, address).settings(wire, **row)
    session = talk({**settings, "model": kind}, note)
    calls = 0
    for prompt in ("one", "two", "three", "four"):
        result = await session.run(prompt, budget=Budget(max_turns=3))
        assert result.status in ("completed", "budget"), result
        calls = assert_valid(session)
    assert calls > 0
    assert "noted: " in str(session.history)
