"""In `auto` and `strict` an approval of what a command names lets just that happen (D-92)."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import solid_ground

from toolrest import ApprovalRequest, Toolrest
from toolrest.items import ToolOutput

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.slow]

OUTSIDE = "; for that it runs outside the sandbox"


class Desk:
    """A workspace, a folder beside it, and what was asked in the last session."""

    def __init__(self, base: Path) -> None:
        self.work, self.beside, self.home = base / "work", base / "beside", base / "home"
        for folder in (self.work, self.beside):
            folder.mkdir()
        self.asked: list[ApprovalRequest] = []

    async def run(
        self, cmd: str, mode: Any = "auto", answer: Any = True, **call: Any
    ) -> ToolOutput:
        def approver(request: ApprovalRequest) -> Any:
            self.asked.append(request)
            return answer

        self.asked.clear()
        options = {"approval_policy": mode, "home": self.home, **call.pop("options", {})}
        async with Toolrest(self.work, on_ask=approver, **options) as rest:
            return await rest.call("exec_command", {"cmd": cmd, "login": False, **call})


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(dir=solid_ground()) as folder:
        yield Desk(Path(folder))


@pytest.mark.parametrize("mode", ["auto", "strict", "required"])
async def test_a_named_write_happens_outside_once_it_was_blocked(desk: Desk, mode: str) -> None:
    await desk.run(f"touch made-inside && touch {desk.beside}/x", mode)
    (request,) = desk.asked
    assert f"it writes {desk.beside}/x" in request.reason
    assert OUTSIDE in request.reason
    assert request.leaves
    assert [choice.scope for choice in request.choices] == ["once"]
    assert (desk.beside / "x").exists()


async def test_a_named_host_is_reached(desk: Desk) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        # No name server answers here: what curl would say inside is said for it.
        output = await desk.run(
            f"curl -sS --resolve far.example:{port}:127.0.0.1 http://far.example:{port}/"
            " || { echo could not resolve host >&2; python3 -c 'raise SystemExit(6)'; }"
        )
    (request,) = desk.asked
    assert "far.example" in request.reason
    assert OUTSIDE in request.reason
    assert "hello" in output.text


@pytest.mark.parametrize("mode", ["auto", "strict"])
async def test_words_that_do_not_say_it_never_leave(desk: Desk, mode: str) -> None:
    (desk.work / "do.sh").write_text(f"touch {desk.beside}/x\n")
    output = await desk.run("sh do.sh", mode)
    (request,) = desk.asked
    assert not request.leaves
    assert "outside" not in request.reason
    assert output.failure is not None
    assert output.failure.kind == "sandbox_denied"
    assert list(desk.beside.iterdir()) == []


async def test_what_was_not_named_was_not_approved(desk: Desk) -> None:
    (desk.work / "do.sh").write_text(f"touch {desk.beside}/unnamed\n")
    output = await desk.run(f"touch {desk.beside}/named; sh do.sh")
    (request,) = desk.asked
    assert request.leaves
    assert output.failure is not None
    assert output.failure.kind == "sandbox_denied"
    assert list(desk.beside.iterdir()) == []


async def test_what_works_inside_does_not_leave(desk: Desk) -> None:
    output = await desk.run(f"test -w {desk.beside} && touch {desk.beside}/x; echo over")
    assert "over" in output.text
    assert list(desk.beside.iterdir()) == []


async def test_an_approval_for_the_session_never_leaves(desk: Desk) -> None:
    await desk.run(f"touch {desk.beside}/x", answer="approved_for_session")
    assert list(desk.beside.iterdir()) == []


async def test_hidden_and_protected_names_stay_refused(desk: Desk) -> None:
    secret = desk.beside / "secret"
    secret.mkdir()
    options = {"settings": {"hidden_paths": [str(secret)]}}
    output = await desk.run(f"touch {secret}/x", options=options)
    assert output.failure is not None
    assert output.failure.kind == "policy_denied"
    assert desk.asked == []
    await desk.run(f"touch {desk.beside}/x; touch .git/hooks/pre-commit")
    (request,) = desk.asked
    assert not request.leaves
    assert OUTSIDE not in request.reason
    assert [path.name for path in desk.beside.iterdir()] == ["secret"]
    # What lies below a named folder is no exception.
    options = {"settings": {"hidden_paths": [str(secret)]}}
    (desk.work / "from").mkdir()
    (desk.work / "from" / "secret").write_text("x")
    await desk.run(f"cp -r from/. {desk.beside}", options=options)
    assert not (desk.beside / "secret" / "secret").exists()


@pytest.mark.parametrize("mode", ["auto", "strict", "required"])
async def test_a_model_may_ask_to_leave(desk: Desk, mode: str) -> None:
    more = {"sandbox_permissions": "require_escalated", "justification": "May I build the image?"}
    line = f"sh -c {shlex.quote(f'echo x > {desk.beside}/image')}"
    await desk.run(line, mode, answer=False, **more)
    assert list(desk.beside.iterdir()) == []
    await desk.run(line, mode, **more)
    (request,) = desk.asked
    assert request.leaves
    assert "May I build the image?" in request.reason
    assert (desk.beside / "image").read_text() == "x\n"


async def test_the_list_of_hosts_is_not_left_by_an_approval(desk: Desk) -> None:
    options: dict[str, Any] = {"settings": {"tool_security.allowed_network_domains": []}}
    for mode in ("auto", "on-request", "on-failure"):
        await desk.run("curl -sS --max-time 20 http://example.com/", mode, options=options)
        assert not [request for request in desk.asked if request.leaves]


async def test_a_blocked_write_that_no_code_shows_is_told(desk: Desk) -> None:
    code = f"open('{desk.beside}/x', 'w')"
    output = await desk.run(f"python3 -c {shlex.quote(code)} || true", "on-failure")
    assert desk.asked == []
    assert output.failure is None
    assert output.text.endswith(
        f"\n[toolrest] by its output, the sandbox (bubblewrap) blocked writing to {desk.beside}/x"
    )
    assert list(desk.beside.iterdir()) == []


async def test_an_output_is_no_question_to_leave(desk: Desk) -> None:
    line = 'echo "cat: /etc/fake: Read-only file system"; exit 1'
    output = await desk.run(line, "on-failure")
    assert desk.asked == []
    assert output.failure is not None
    assert output.failure.kind == "execution_failed"
    assert output.text.endswith(
        "\n[toolrest] by its output, the sandbox (bubblewrap) blocked writing to /etc/fake"
    )


async def test_a_path_below_the_sandboxs_own_tmp_is_a_denial(desk: Desk) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder, "there").touch()
        output = await desk.run(f"cat {folder}/there", "on-request")
        assert output.failure is not None
        assert output.failure.kind == "sandbox_denied"
        assert f"blocked reading {folder}/there" in output.text
        plain = await desk.run("cat /tmp/never-there", "on-request")
        assert plain.failure is not None
        assert plain.failure.kind == "execution_failed"
