"""A session that has everything a page shows, a folder with its checkpoints, a batch's store."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.web_ui.conftest import Recorded

from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.batch.run_task import failed_marker, task_folder
from toolrest.batch.stores.store import FolderStore

MODEL = "a-model"
PRICES = f'[model_prices."{MODEL}"]\ninput = 2.0\ncached_input = 0.2\noutput = 12.0\n'
PATCH = """*** Begin Patch
*** Update File: src/parser.py
@@ def read(text):
     rows = []
     for line in text.splitlines():
-        name, value = line.split("=")
-        rows.append((name, value))
+        name, sign, value = line.partition("=")
+        if not sign:
+            raise ParseError(f"no = in {line!r}")
+        rows.append((name.strip(), value.strip()))
     return rows
*** Add File: tests/test_empty.py
+from parser import read
+
+
+def test_an_empty_text_has_no_rows():
+    assert read("") == []
*** End Patch"""
BEFORE = """def read(text):
    rows = []
    for line in text.splitlines():
        name, value = line.split("=")
        rows.append((name, value))
    return rows
"""
AFTER = """def read(text):
    rows = []
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if not sign:
            raise ParseError(f"no = in {line!r}")
        rows.append((name.strip(), value.strip()))
    return rows
"""


def picture(width: int = 160, height: int = 60) -> str:
    """A small PNG as a data URL: bars of a histogram."""
    rows = b""
    for y in range(height):
        rows += b"\0"
        for x in range(width):
            filled = height - y < 8 + (x // 20 * 37) % (height - 12) and x % 20 < 16
            rows += b"\x3b\x7d\xd8" if filled else b"\xf4\xf5\xf6"

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    data += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


class Scene(Recorded):
    """A session of some minutes, written at once."""

    def __init__(self, home: Path, number: int = 0, cwd: str = "/work") -> None:
        self.time = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)
        super().__init__(home, number, cwd)

    def now(self) -> datetime:
        self.time += timedelta(seconds=4)
        return self.time


def plan(*done: str) -> dict[str, Any]:
    steps = ("read the parser", "repair it", "test it")
    states = [*done, *["pending"] * (len(steps) - len(done))]
    rows = zip(steps, states, strict=True)
    return {"plan": [{"step": step, "status": status} for step, status in rows]}


def everything(home: Path, workspace: Path, number: int = 0) -> Scene:
    """A session with a plan, a patch, a picture, sub-agents, tokens with a price, and changes."""
    (home / "config.toml").write_text(PRICES)
    made = Scene(home, number, str(workspace))
    made.write("turn_context", {"model": MODEL})
    made.say("user", "Lines without = crash the parser. Repair it and show how long lines are.")
    made.use("update_plan", plan("in_progress"), "Plan updated", "p1")
    made.call("sed -n 1,20p src/parser.py", BEFORE, "c1")
    made.tokens(9_000)
    agents = ("a1", "look for other callers of read()"), ("a2", "measure the lines of the corpus")
    for name, task in agents:
        asked = {"message": task, "agent_type": "explorer"}
        made.use("spawn_agent", asked, json.dumps({"agent_id": name}, separators=(",", ":")), name)
    made.use("update_plan", plan("completed", "in_progress"), "Plan updated", "p2")
    made.use("apply_patch", {"input": PATCH}, "Success. Updated 2 files", "c2")
    made.tokens(15_000, 9_000)
    options = [{"label": "Raise", "description": "x"}, {"label": "Skip it", "description": "y"}]
    posed: dict[str, Any] = {
        "id": "bad",
        "header": "Bad lines",
        "question": "What then?",
        "options": options,
    }
    given = json.dumps({"answers": {"bad": {"answers": ["Raise"]}}}, separators=(",", ":"))
    made.use("request_user_input", {"questions": [posed]}, given, "q1")
    ended = {"status": {"a1": {"completed": "Two callers; both catch ParseError."}}}
    made.use("wait", {"ids": ["a1", "a2"]}, json.dumps(ended, separators=(",", ":")), "w1")
    shown = [{"type": "input_text", "text": "the lengths of the lines"}]
    image = {"type": "input_image", "image_url": picture()}
    made.use("view_image", {"path": "lengths.png"}, [*shown, image], "c3")
    made.tokens(28_000, 15_000)
    made.call("pytest -q", "....\n4 passed in 0.21s\n", "c4")
    made.use("update_plan", plan("completed", "completed", "completed"), "Plan updated", "p3")
    made.say("assistant", "A line without = now raises ParseError; the four tests pass.")
    made.tokens(32_000, 28_000)
    _change(home, workspace, made.id)
    return made


def _change(home: Path, workspace: Path, session: str) -> None:
    """One turn of the session that changes files of its folder."""
    (workspace / "src").mkdir(parents=True, exist_ok=True)
    (workspace / "tests").mkdir(exist_ok=True)
    (workspace / "src/parser.py").write_text(BEFORE)
    (workspace / "old.txt").write_text("no more\n")
    checkpoints = Checkpoints(str(home), str(workspace))
    turn = checkpoints.begin(session, "repair")
    (workspace / "src/parser.py").write_text(AFTER)
    (workspace / "tests/test_empty.py").write_text("from parser import read\n")
    (workspace / "data.bin").write_bytes(bytes(range(256)))
    (workspace / "old.txt").unlink()
    checkpoints.end(turn)


def batch_store(folder: Path, count: int = 40) -> FolderStore:
    """The store of a batch in which every eighth task ran out of its budget."""
    store = FolderStore(str(folder))
    tasks = [{"key": f"k{n:03d}", "id": f"task-{n:03d}"} for n in range(count + 5)]
    store.write("tasks.jsonl", "".join(json.dumps(task) + "\n" for task in tasks).encode())
    for number, task in enumerate(tasks[:count]):
        failure = "budget" if number % 8 == 7 else "timeout" if number % 20 == 12 else None
        result: dict[str, Any] = {
            "id": task["id"],
            "failure": failure,
            "turns": 2 + number * number % 9,
            "tool_calls": 3 + number % 11,
            "usage": {"total_tokens": 9_000 + 731 * (number % 13)},
            "cost": round(0.01 + 0.004 * (number % 13), 4),
            "seconds": 20.5 + 7.0 * (number * number % 17),
            "attempts": [{}],
            "text": "" if failure else "The tests pass.",
            "error": f"stopped: {failure}" if failure else None,
        }
        store.write(f"{task_folder(task['key'])}/result.json", json.dumps(result).encode())
        if failure:
            store.write(failed_marker(task["key"], failure), b"")
    return store
