"""The browser page: listing sessions, memory, a quiet page's CPU, many viewers, a long session.

    python bench/web.py [--sessions 2000] [--viewers 20] [--seconds 10] [--browser]

Serves a home of recorded sessions with `toolrest web` in a process of its own. `--browser` also
scrolls and scrubs a session of 5,000 cells in chromium (needs playwright and chromium).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from toolrest.agent.conversation.events import AgentMessageDelta
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.control.server import open_control
from toolrest.testing import ScriptedModel

CELLS = 5000
EVENTS_A_SECOND = 20
QUIET = 12
TICK = os.sysconf("SC_CLK_TCK")
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


class Journal:
    """A session's file, written as Toolrest writes it."""

    def __init__(self, home: Path, number: int) -> None:
        began = FIRST + timedelta(minutes=7 * number)
        self.id = f"{number:08d}-aaaa-4bbb-8ccc-dddddddddddd"
        folder = home / f"sessions/{began:%Y/%m/%d}"
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"rollout-{began:%Y-%m-%dT%H-%M-%S}-{self.id}.jsonl"
        self._file = self.path.open("a")
        meta = {"id": self.id, "cwd": f"/work/{number % 40}", "timestamp": began.isoformat()}
        self.write("session_meta", {**meta, "base_instructions": {"text": "word " * 2000}})
        self.write("turn_context", {"model": "a-model"})

    def write(self, kind: str, payload: Any) -> None:
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = {"timestamp": now, "ordinal": 0, "type": kind, "payload": payload}
        self._file.write(json.dumps(line) + "\n")

    def say(self, role: str, text: str) -> None:
        kind = "output_text" if role == "assistant" else "input_text"
        content = [{"type": kind, "text": text}]
        self.write("response_item", {"type": "message", "role": role, "content": content})

    def turns(self, count: int) -> None:
        """A task, its calls with their outputs, an answer and the tokens."""
        self.say("user", f"<environment_context>{'x' * 800}</environment_context>")
        self.say("user", "repair the parser and run its tests")
        for number in range(count):
            call = {"type": "function_call", "name": "exec_command", "call_id": f"c{number}"}
            self.write("response_item", {**call, "arguments": json.dumps({"cmd": "make test"})})
            done = {"type": "function_call_output", "call_id": f"c{number}"}
            self.write("response_item", {**done, "output": "a line of output\n" * 120})
        self.say("assistant", "It is repaired.")
        used = {"input_tokens": 900, "output_tokens": 80, "total_tokens": 980}
        info = {"total_token_usage": used, "last_token_usage": used, "model_context_window": 9000}
        self.write("event_msg", {"type": "token_count", "info": info})

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Server:
    """`toolrest web` as a process."""

    def __init__(self, home: Path) -> None:
        argv = [sys.executable, "-m", "toolrest", "web", "--port", "0"]
        env = {**os.environ, "TOOLREST_HOME": str(home)}
        self.process = subprocess.Popen(argv, env=env, stdout=-1, stderr=-3, text=True)
        assert self.process.stdout is not None
        found = re.search(r"(http://\S+)/#token=(\S+)", self.process.stdout.readline())
        assert found
        self.url, self.token = found[1], found[2]

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers={"Origin": self.url}, timeout=60)

    async def log_in(self, client: httpx.AsyncClient) -> None:
        answer = await client.post("/api/login", json={"token": self.token})
        client.headers["x-toolrest-key"] = answer.raise_for_status().json()["key"]

    def cpu(self) -> float:
        """The seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self) -> float:
        """The most memory that it had, in MB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmHWM:")[1].split()[0]) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def row(name: str, value: str) -> None:
    print(f"{name:<58}{value}", flush=True)


async def listed(server: Server, client: httpx.AsyncClient, sessions: int) -> None:
    """List by pages and search, each twice: the second time the rows are known."""
    for name in ("first", "again"):
        start, used = time.perf_counter(), server.cpu()
        count, before = 0, ""
        while rows := await page(client, limit="200", before=before):
            count, before = count + len(rows), rows[-1]["id"]
        assert count == sessions, count
        seconds = time.perf_counter() - start
        cpu = server.cpu() - used
        row(f"{sessions} sessions listed, {name}", f"{seconds:.3f} s ({cpu:.2f} s of CPU)")
    start = time.perf_counter()
    await page(client, q="no such words")
    row("search in all of them", f"{time.perf_counter() - start:.3f} s")


async def page(client: httpx.AsyncClient, **asked: str) -> list[Any]:
    answer = await client.get("/api/sessions", params=asked)
    found: list[Any] = answer.raise_for_status().json()["sessions"]
    return found


async def view(
    client: httpx.AsyncClient, session: str, counts: list[int], at: int, what: str = "events"
) -> None:
    async with client.stream("GET", f"/api/sessions/{session}/{what}") as answer:
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            counts[at] += line.startswith("data: ")


async def viewed(
    server: Server, client: httpx.AsyncClient, home: Path, viewers: int, seconds: float
) -> None:
    """Viewers of one session: first it is quiet, then it is written to."""
    journal = Journal(home, 10**6)
    journal.turns(3)
    journal.flush()
    counts = [0] * viewers
    tasks = [asyncio.create_task(view(client, journal.id, counts, n)) for n in range(viewers)]
    await until(tasks, lambda: min(counts) >= 8)
    await asyncio.sleep(1)
    before, start = server.cpu(), time.monotonic()
    await asyncio.sleep(seconds)
    quiet = (server.cpu() - before) / (time.monotonic() - start)
    row(f"{viewers} viewers, nothing happens", f"{quiet:.2%} of a core")
    had = list(counts)
    before, start, written = server.cpu(), time.monotonic(), 0
    while time.monotonic() - start < seconds:
        journal.say("assistant", "word " * 60)
        journal.flush()
        written += 1
        await asyncio.sleep(1 / EVENTS_A_SECOND)
    await until(tasks, lambda: min(map(operator.sub, counts, had)) >= written)
    busy = (server.cpu() - before) / (time.monotonic() - start)
    row(f"{viewers} viewers, {written / seconds:.0f} events a second", f"{busy:.2%} of a core")
    await leave(tasks)
    journal.close()


async def streamed(
    server: Server, client: httpx.AsyncClient, home: Path, viewers: int, seconds: float
) -> None:
    """Viewers of a session whose model writes: over its control socket."""
    with tempfile.TemporaryDirectory() as folder:
        config = default_config({}, workspace=folder, home=home)
        async with open_session(config, ScriptedModel([])) as session:
            open_control(session)
            counts = [0] * viewers
            watching = (view(client, session.id, counts, n, "live") for n in range(viewers))
            tasks = [asyncio.create_task(one) for one in watching]
            await until(tasks, lambda: min(counts) >= 1)
            before, own, start, written = server.cpu(), time.process_time(), time.monotonic(), 0
            while time.monotonic() - start < seconds:
                session.emit(AgentMessageDelta(delta="word "))
                written += 1
                await asyncio.sleep(0.01)
            passed = time.monotonic() - start
            busy = f"{(server.cpu() - before) / passed:.2%} of a core"
            own = time.process_time() - own
            row(f"{viewers} viewers, {written / passed:.0f} pieces of text a second", busy)
            row("the session and its viewers' clients, in one process", f"{own / passed:.2%}")
            await leave(tasks)


async def until(tasks: list[asyncio.Task[None]], is_there: Callable[[], bool]) -> None:
    """Wait for the viewers; one that has ended ends the bench instead of being waited for."""
    while not is_there():
        await asyncio.sleep(0.05)
        for task in tasks:
            if task.done():
                task.result()
                raise RuntimeError("a viewer's stream has ended")


async def leave(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


_DRAWN = "count => document.querySelectorAll('.chunk > li').length > count"
_FRAMES = """async (how) => {
    const main = document.getElementById("scroll"), scrub = document.getElementById("scrub");
    const times = [];
    main.scrollTop = 0;
    let last = performance.now();
    for (let n = 0; n < 240; n += 1) {
        if (how === "scrolling") main.scrollTop += 120;
        else if (how === "jumping") main.scrollTop = (main.scrollHeight * (n % 120)) / 120;
        else {
            scrub.value = String(Math.round((scrub.max * (n % 120)) / 120));
            scrub.dispatchEvent(new Event("input"));
        }
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        times.push(now - last);
        last = now;
    }
    return times;
}"""


def cpu_of_page(devtools: Any) -> float:
    """The seconds of CPU that the page's main thread has used."""
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def browsed(home: Path) -> None:
    """Frame times of a long session in a real browser."""
    from playwright.sync_api import sync_playwright

    journal = Journal(home, 10**6 + 1)
    journal.say("user", "a long session")
    for number in range(CELLS):
        journal.say("assistant", f"cell {number}\n" + "word " * 40)
    journal.close()
    server = Server(home)
    try:
        with sync_playwright() as playwright:
            program = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1100, "height": 800})
            page.goto(f"{server.url}/#token={server.token}")
            page.wait_for_selector("#sessions a")
            start = time.perf_counter()
            page.goto(f"{server.url}/#session={journal.id}")
            page.wait_for_function(_DRAWN, arg=CELLS)
            row(f"{CELLS} cells drawn", f"{time.perf_counter() - start:.2f} s")
            devtools = page.context.new_cdp_session(page)
            devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.wait_for_timeout(2000)
            before = cpu_of_page(devtools)
            page.wait_for_timeout(QUIET * 1000)
            quiet = (cpu_of_page(devtools) - before) / QUIET
            row("the page of a session in which nothing happens", f"{quiet:.2%} of a core")
            for how in ("scrolling", "jumping", "scrubbing"):
                before = cpu_of_page(devtools)
                times = page.evaluate(_FRAMES, how)
                work = (cpu_of_page(devtools) - before) / len(times) * 1000
                middle, slow = statistics.median(times), statistics.quantiles(times, n=20)[-1]
                shown = f"{middle:.1f} ms, {slow:.1f} ms ({work:.1f} ms of CPU)"
                row(f"frame while {how}, median and 95 %", shown)
            browser.close()
    finally:
        server.stop()


async def measure(home: Path, sessions: int, viewers: int, seconds: float) -> None:
    server = Server(home)
    try:
        async with server.client() as client:
            await server.log_in(client)
            await listed(server, client, sessions)
            await viewed(server, client, home, viewers, seconds)
            await streamed(server, client, home, viewers, seconds)
        row("most memory", f"{server.memory():.0f} MB")
    finally:
        server.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--browser", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o700)
        for number in range(asked.sessions):
            journal = Journal(home, number)
            journal.turns(8)
            journal.close()
        load = os.getloadavg()[0]
        row("load of the machine at the start", f"{load:.1f} on {os.cpu_count()} cores")
        asyncio.run(measure(home, asked.sessions, asked.viewers, asked.seconds))
        if asked.browser:
            browsed(home)


if __name__ == "__main__":
    main()
