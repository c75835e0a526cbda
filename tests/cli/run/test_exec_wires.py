"""Everything a model may do, through `toolrest exec --json`, on each of the three wires."""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from toolrest.testing import Call, Freeform, Say, Think

PATCH = "*** Begin Patch\n*** Add File: {}\n+hello\n*** End Patch\n"
OUTSIDE = "/usr/toolrest-was-here"
SEQUENTIAL, PARALLEL = 50, 20


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)

    rows = (b"\0" + b"\x40\x80\xc0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def run(line: str, call_id: str, **more: Any) -> Call:
    return Call("exec_command", {"cmd": line, "login": False, **more}, call_id)


def typing(request: dict[str, Any]) -> Call:
    """The terminal's number is in what the request carries back."""
    found = re.findall(r"Process running with session ID (\d+)", json.dumps(request))
    arguments = {"session_id": int(found[-1]), "chars": "ping\n", "yield_time_ms": 30_000}
    return Call("write_stdin", arguments, "typed")


def script() -> list[Any]:
    return [
        [Think("first the easy one"), Say("one command"), run("echo hi", "one")],
        [Freeform("apply_patch", PATCH.format("free.txt"), "free")],
        [Call("apply_patch", {"input": PATCH.format("function.txt")}, "function")],
        *([run(f"echo {n}", f"seq{n}")] for n in range(SEQUENTIAL)),
        [run(f"sleep 0.2; echo {n}", f"par{n}") for n in range(PARALLEL)],
        [run(f"python3 -c \"open('{OUTSIDE}', 'w')\"", "denied")],
        [Call("nope", {"a": 1}, "unknown"), Call("exec_command", '{"cmd": "x', "malformed")],
        [Call("view_image", {"path": "picture.png"}, "image")],
        [run("head -c 5000000 /dev/zero | tr '\\0' x", "large")],
        [run("cat", "terminal", tty=True, yield_time_ms=30_000)],
        typing,
        "all done",
    ]


def outputs(body: dict[str, Any], wire: str) -> dict[str, Any]:
    """Every output of a request, by the call that it answers."""
    if wire == "responses":
        items = [item for item in body["input"] if "output" in item]
        return {item["call_id"]: item["output"] for item in items}
    if wire == "chat":
        told = [said for said in body["messages"] if said["role"] == "tool"]
        return {said["tool_call_id"]: said["content"] for said in told}
    blocks = [
        block
        for said in body["messages"]
        if isinstance(said["content"], list)
        for block in said["content"]
    ]
    return {b["tool_use_id"]: b["content"] for b in blocks if b["type"] == "tool_result"}


@pytest.mark.slow
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic"])
def test_everything_a_model_may_do(desk: Any, serve: Any, wire: str) -> None:
    server = serve(script(), wire)
    (desk.workspace / "picture.png").write_bytes(png(8, 6))
    ran = desk.run("exec", "--json", "-s", "workspace-write", "go")
    assert (ran.code, ran.result["reason"]) == (0, "done"), ran.err
    assert server.refused == []
    assert len(server.requests) == len(script())
    body = server.requests[-1].body
    got = outputs(body, wire)
    assert re.search(
        r"Output:\nhi\n(\[toolrest\] the landlock sandbox does not .*\n?)*\Z", got["one"]
    )
    for name in ("free", "function"):
        assert "Success. Updated the following files:" in got[name]
        assert (desk.workspace / f"{name}.txt").read_text() == "hello\n"
    assert [got[f"seq{n}"].splitlines()[-1] for n in range(SEQUENTIAL)] == [
        str(n) for n in range(SEQUENTIAL)
    ]
    assert [got[f"par{n}"].splitlines()[-1] for n in range(PARALLEL)] == [
        str(n) for n in range(PARALLEL)
    ]
    assert "[toolrest] the sandbox" in got["denied"]
    assert not Path(OUTSIDE).exists()
    assert got["unknown"].startswith("unsupported call: nope")
    assert got["malformed"].startswith("failed to parse function arguments: ")
    assert "data:image/png;base64," in json.dumps(body) or '"image/png"' in json.dumps(body)
    assert "Original token count: 1250000" in got["large"]
    assert len(got["large"]) < 60_000
    assert "ping\r\nping\r\n" in got["typed"]
    check_events(ran, desk.workspace)
    # A Chat server sends its reasoning raw; only summaries are shown.
    thoughts = [] if wire == "chat" else ["first the easy one"]
    assert [item["text"] for item in ran.items("reasoning")] == thoughts


def check_events(ran: Any, workspace: Path) -> None:
    commands = {item["command"].partition("c ")[2]: item for item in ran.items("command_execution")}
    assert commands["'echo hi'"]["aggregated_output"] == "hi\n"
    assert len(commands) == 1 + SEQUENTIAL + PARALLEL + 3
    assert next(item for line, item in commands.items() if OUTSIDE in line)["status"] == "failed"
    large = next(item for line, item in commands.items() if "head -c" in line)
    assert 1_000_000 < len(large["aggregated_output"]) < 1_100_000
    changes = [item["changes"] for item in ran.items("file_change")]
    assert changes == [
        [{"path": str(workspace / name), "kind": "add"}] for name in ("free.txt", "function.txt")
    ]
    (denial,) = ran.result["denials"]
    assert (denial["call_id"], denial["rule"]) == ("denied", "sandbox")
    assert [item["text"] for item in ran.items("agent_message")] == ["one command", "all done"]
