"""A home with sessions in it, and the page's application behind a client."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolrest.gate.approval.pending import ApprovalScope, PendingApproval
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.gate.approval.request import ApprovalRequest, Choice, Exact
from toolrest.policy.effects import Risk
from toolrest.web_ui.access import Logins
from toolrest.web_ui.server import WebPage

HOST = "127.0.0.1:8137"
ORIGIN = f"http://{HOST}"
CODE = "123456"
SCREENS = Path(__file__).parents[2] / "docs/screens"
# Read before the tests take Toolrest's variables away.
WRITE_DOCS, SHOTS = bool(os.environ.get("TOOLREST_WRITE_DOCS")), os.environ.get("TOOLREST_SHOTS")
PICTURES = ("web-session", "web-approval", "web-phone", "web-changes", "web-batch")
TOOLREST = Path(sys.executable).with_name("toolrest")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Recorded:
    """A session's file in a home, written line by line as Toolrest writes it."""

    def __init__(self, home: Path, number: int = 0, cwd: str = "/work") -> None:
        self.id = f"0000{number:04d}-aaaa-4bbb-8ccc-dddddddddddd"
        folder = home / "sessions/2026/11/16"
        folder.mkdir(parents=True, exist_ok=True)
        second = f"{number // 3600:02d}-{number // 60 % 60:02d}-{number % 60:02d}"
        self.path = folder / f"rollout-2026-11-16T{second}-{self.id}.jsonl"
        self.lines = 0
        self.used: dict[str, int] = {}
        self.write("session_meta", {"id": self.id, "cwd": cwd, "timestamp": "2026-11-16"})

    def now(self) -> datetime:
        return datetime.now(UTC)

    def write(self, kind: str, payload: Any) -> None:
        now = self.now().isoformat().replace("+00:00", "Z")
        line = {"timestamp": now, "ordinal": self.lines, "type": kind, "payload": payload}
        self.lines += 1
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def say(self, role: str, text: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        self.write("response_item", {"type": "message", "role": role, "content": content})

    def call(self, command: str, output: Any, call_id: str = "c1") -> None:
        self.use("exec_command", {"cmd": command}, output, call_id)

    def use(self, tool: str, arguments: Any, output: Any, call_id: str) -> None:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = {"type": "function_call", "name": tool, "arguments": text, "call_id": call_id}
        self.write("response_item", call)
        done = {"type": "function_call_output", "call_id": call_id, "output": output}
        self.write("response_item", done)

    def tokens(self, context: int, cached: int = 0) -> None:
        """Count the tokens of a request, and of all so far."""
        last = {"input_tokens": context, "cached_input_tokens": cached, "output_tokens": 300}
        for name, count in last.items():
            self.used[name] = self.used.get(name, 0) + count
        info = {"last_token_usage": {**last, "total_tokens": context}}
        info |= {"total_token_usage": dict(self.used)}
        counted = {"type": "token_count", "info": {**info, "model_context_window": 200_000}}
        self.write("event_msg", counted)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def session(home: Path) -> Recorded:
    made = Recorded(home)
    made.write("turn_context", {"model": "a-model"})
    made.say("user", "repair the parser")
    made.call("ls", "parser.py\n")
    made.say("assistant", "It is repaired.")
    usage = {"total_token_usage": {"input_tokens": 120, "output_tokens": 8, "total_tokens": 128}}
    last = {"last_token_usage": {"total_tokens": 128}, "model_context_window": 1000}
    made.write("event_msg", {"type": "token_count", "info": {**usage, **last}})
    return made


@pytest.fixture
def logins() -> Logins:
    return Logins(3600)


@pytest.fixture
def page(home: Path, logins: Logins) -> WebPage:
    return WebPage(str(home), logins, (HOST, "localhost:8137"), pin=CODE)


Client = httpx.AsyncClient


@pytest.fixture
def client_for() -> Callable[[WebPage], Client]:
    def client(page: WebPage) -> Client:
        transport = httpx.ASGITransport(page.application())
        return httpx.AsyncClient(transport=transport, base_url=ORIGIN)

    return client


@pytest.fixture
async def client(
    page: WebPage, client_for: Callable[[WebPage], Client]
) -> AsyncIterator[httpx.AsyncClient]:
    """A browser that opened the link."""
    async with client_for(page) as made:
        await log_in(made, page.logins)
        yield made


async def log_in(client: Client, logins: Logins) -> httpx.Response:
    answer = await client.post(
        "/api/login", json={"token": logins.link()}, headers={"Origin": ORIGIN}
    )
    assert answer.status_code == 200
    # The port of a test's transport is not that of its address.
    name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
    assert re.fullmatch(r"toolrest_\d+", name)
    client.cookies.clear()
    client.headers.update({"x-toolrest-key": answer.json()["key"], "Cookie": f"{name}={value}"})
    return answer


def waiting(
    home: Path,
    *,
    risk: Risk = Risk.EXECUTE,
    text: str = "rm -r build",
    choices: tuple[Choice, ...] = (),
    session: str = "s1",
) -> PendingApproval:
    """A call that waits for an answer."""
    request = ApprovalRequest(
        "c9",
        "exec_command",
        json.dumps({"cmd": text}),
        "it writes",
        risk,
        command=("/bin/bash", "-lc", text),
        cwd="/work",
        exact=Exact(json.dumps({"cmd": text, "secret": "sk-hidden"})),
        choices=choices,
    )
    around = ApprovalScope(session, "/work", "on-request", "workspace-write")
    return PendingStore(str(home)).add(request, around, 3600)


class Served:
    """`toolrest web` as a process, and its one-time link."""

    def __init__(self, home: Path, *flags: str, cwd: Path | None = None) -> None:
        self._cwd = cwd
        self._argv = [str(TOOLREST), "web", *flags]
        self._env = {**os.environ, "TOOLREST_HOME": str(home)}
        self.start("--port", "0")

    def start(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [*self._argv, *flags],
            env=self._env,
            cwd=self._cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.printed = [self.process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://\S+", self.printed[0])
        assert found, self.printed
        self.link = found[0]
        port = re.search(r":(\d+)/", self.link)
        assert port
        self.port = port[1]
        self.code = self.printed[2].split()[-1]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def served(home: Path, session: Recorded) -> Iterator[Served]:
    made = Served(home)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = shutil.which("chromium") or pytest.skip("no chromium here: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def tab(browser: Any, served: Served) -> Iterator[Any]:
    """A tab that opened the link; an error of the page's script fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(served.link)
    page.wait_for_selector("#sessions a")
    yield page
    context.close()
    assert errors == []


_RENAMED = """([path, name]) => {
    const rename = () => {
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) {
            const text = texts.currentNode;
            if (text.data.includes(path)) text.data = text.data.replaceAll(path, name);
        }
    };
    new MutationObserver(rename).observe(document.body, { childList: true, subtree: true });
    rename();
}"""


def take_picture(tab: Any, name: str, folder: str) -> None:
    """A picture of the docs: TOOLREST_WRITE_DOCS=1 writes it, TOOLREST_SHOTS=DIR keeps all.

    The folder of a test run is not for the manual.
    """
    tab.evaluate(_RENAMED, [folder, "~/src"])
    picture = tab.screenshot()
    assert picture.startswith(b"\x89PNG")
    if SHOTS:
        Path(SHOTS, f"{name}.png").write_bytes(picture)
    path = SCREENS / f"{name}.png"
    if WRITE_DOCS and name in PICTURES:
        image = pytest.importorskip("PIL.Image")
        small = image.open(io.BytesIO(picture)).convert("P", palette=1, colors=64)
        small.save(path, optimize=True)
    if name in PICTURES:
        assert path.stat().st_size < 150_000


def open_first(tab: Any) -> None:
    tab.keyboard.press("j")
    tab.wait_for_selector("#timeline li")
