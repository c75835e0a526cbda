"""Questions that outlive their process: answered elsewhere, acted on at most once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.forked import toolrest

from toolrest import Effects, Toolrest, tool
from toolrest.events import ApprovalDeferred, Event
from toolrest.gate.approval.pending import ApprovalScope, PendingApproval, PendingError
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.gate.approval.request import ApprovalRequest, Exact
from toolrest.policy.effects import Risk

RESUMER = """
import asyncio, json, os, sys
from toolrest import Effects, Toolrest, tool
from toolrest.gate.approval.pending import PendingApproval, PendingError

@tool(effects=Effects(calls=("elsewhere",)))
async def act(text: str) -> str:
    "Act."
    fd = os.open(os.environ["MARK"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, (text + chr(10)).encode())
    os.close(fd)
    return "acted on " + text

async def main():
    pending = PendingApproval.from_json(sys.stdin.read())
    async with Toolrest(sys.argv[1], tools=[act], home=os.environ["TOOLREST_HOME"]) as rest:
        print("ready", flush=True)
        try:
            print((await rest.resume(pending)).text, flush=True)
        except PendingError as error:
            print("refused:", error, flush=True)

asyncio.run(main())
"""


def acting(mark: list[str]) -> Any:
    @tool(effects=Effects(calls=("elsewhere",)))
    async def act(text: str) -> str:
        """Act."""
        mark.append(text)
        return f"acted on {text}"

    return act


async def deferred(
    workspace: Path,
    text: str = "x",
    mark: list[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> tuple[Any, PendingApproval, list[Event]]:
    events: list[Event] = []
    tools = [acting([] if mark is None else mark)]
    async with Toolrest(
        workspace, tools=tools, on_ask="defer", settings=settings, home=os.environ["TOOLREST_HOME"]
    ) as rest:
        rest.subscribe(events.append)
        output = await rest.call("act", {"text": text})
        (pending,) = rest.pending
    return output, pending, events


def test_the_pin_of_a_call_that_runs_no_file_is_what_it_was_in_earlier_versions() -> None:
    """Requests that wait in a home are not asked anew after an update."""
    scope = ApprovalScope("s1", "/w", "untrusted", "workspace-write")
    request = ApprovalRequest("c1", "act", "{}", "why", Risk.EXECUTE, exact=Exact('{"text": "x"}'))
    pin = scope.pin(request)
    assert pin == "3c785f4360a5bb5da8d9662829501f775b3a9e26c43a006e37cc9fc357e74b69"
    request.exact = Exact('{"text": "x"}', files=(("/w/tool", "hash"),))
    assert scope.pin(request) != pin


async def test_a_question_waits_and_names_itself(tmp_path: Path, toolrest_home: Path) -> None:
    mark: list[str] = []
    output, pending, events = await deferred(tmp_path, mark=mark)
    assert mark == []
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert f"toolrest approvals approve {pending.id}" in output.text
    assert "user cancelled" not in output.text
    (told,) = [event for event in events if isinstance(event, ApprovalDeferred)]
    assert told.approval_id == pending.id
    folder = toolrest_home / "approvals"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


async def test_asked_again_it_is_the_same_question(tmp_path: Path) -> None:
    _, first, _ = await deferred(tmp_path)
    _, second, _ = await deferred(tmp_path, "other")
    assert second.id != first.id
    async with Toolrest(
        tmp_path, tools=[acting([])], on_ask="defer", home=os.environ["TOOLREST_HOME"]
    ) as rest:
        output = await rest.call("act", {"text": "x"})
    assert first.id in output.text


async def test_after_a_yes_the_same_call_runs_once(tmp_path: Path, toolrest_home: Path) -> None:
    mark: list[str] = []
    _, pending, _ = await deferred(tmp_path)
    PendingStore(str(toolrest_home)).answer(pending, "approved")
    async with Toolrest(tmp_path, tools=[acting(mark)], on_ask="defer", home=toolrest_home) as rest:
        other = await rest.call("act", {"text": "y"})
        assert "needs approval" in other.text
        assert (await rest.call("act", {"text": "x"})).text == "acted on x"
        again = await rest.call("act", {"text": "x"})
    assert mark == ["x"]
    assert pending.id not in again.text
    assert "needs approval" in again.text


async def test_after_a_no_the_model_is_told_why(tmp_path: Path, toolrest_home: Path) -> None:
    _, pending, _ = await deferred(tmp_path)
    PendingStore(str(toolrest_home)).answer(pending, "denied", "not on Fridays")
    async with Toolrest(tmp_path, tools=[acting([])], on_ask="defer", home=toolrest_home) as rest:
        output = await rest.call("act", {"text": "x"})
    assert output.text == "rejected by user: not on Fridays"


async def test_resuming_in_the_same_process(tmp_path: Path) -> None:
    mark: list[str] = []
    async with Toolrest(
        tmp_path, tools=[acting(mark)], on_ask="defer", home=os.environ["TOOLREST_HOME"]
    ) as rest:
        await rest.call("act", {"text": "x"})
        (pending,) = rest.pending
        with pytest.raises(PendingError, match="no answer yet"):
            await rest.resume(pending, None)
        assert (await rest.resume(pending)).text == "acted on x"
        with pytest.raises(PendingError, match="already used"):
            await rest.resume(pending)
        assert rest.pending == []
    assert mark == ["x"]


async def test_resuming_a_no_runs_nothing(tmp_path: Path) -> None:
    mark: list[str] = []
    async with Toolrest(
        tmp_path, tools=[acting(mark)], on_ask="defer", home=os.environ["TOOLREST_HOME"]
    ) as rest:
        await rest.call("act", {"text": "x"})
        output = await rest.resume(rest.pending[0], "denied", "no")
    assert output.text == "rejected by user: no"
    assert mark == []


async def test_the_first_answer_counts(tmp_path: Path, toolrest_home: Path) -> None:
    _, pending, _ = await deferred(tmp_path)
    store = PendingStore(str(toolrest_home))
    store.answer(pending, "denied", "no")
    with pytest.raises(PendingError, match="already answered: denied"):
        store.answer(pending, "approved")
    async with Toolrest(tmp_path, tools=[acting([])], home=toolrest_home) as rest:
        with pytest.raises(PendingError, match="already answered"):
            await rest.resume(pending)


async def test_what_was_changed_is_refused(tmp_path: Path, toolrest_home: Path) -> None:
    _, pending, _ = await deferred(tmp_path)
    mark: list[str] = []
    changes: dict[str, Any] = {
        "arguments": '{"text":"evil"}',
        "tool": "exec_command",
        "workspace": "/",
        "sandbox_mode": "danger-full-access",
        "expires": pending.expires + 1,
        "pin": "0" * 64,
        "freeform": True,
        "call_id": "other",
        "shown": {**pending.shown, "reason": "harmless"},
        "mac": "0" * 64,
    }
    async with Toolrest(tmp_path, tools=[acting(mark)], home=toolrest_home) as rest:
        for name, value in changes.items():
            with pytest.raises(PendingError):
                await rest.resume(replace(pending, **{name: value}))
        for broken in ("", "[]", "{}", "null", "x", pending.to_json()[:-5], '{"id": 3}'):
            with pytest.raises(PendingError, match="not a pending approval"):
                PendingApproval.from_json(broken)
        # One that was changed on disk is as good as none.
        file = toolrest_home / "approvals" / f"{pending.id}.json"
        file.write_text(json.dumps(asdict(pending) | {"arguments": '{"text":"evil"}'}))
        assert PendingStore(str(toolrest_home)).listed() == []
    assert mark == []


async def test_a_forged_answer_is_refused(tmp_path: Path, toolrest_home: Path) -> None:
    _, pending, _ = await deferred(tmp_path)
    forged = {"id": pending.id, "pin": pending.pin, "answer": "approved", "note": "", "time": 1}
    for text in (json.dumps({**forged, "mac": "0" * 64}), json.dumps(forged), "[]", ""):
        (toolrest_home / "approvals" / f"{pending.id}.answer").write_text(text)
        async with Toolrest(
            tmp_path, tools=[acting([])], on_ask="defer", home=toolrest_home
        ) as rest:
            output = await rest.call("act", {"text": "x"})
        assert "Toolrest did not write the answer" in output.text


async def test_an_answer_to_another_question_is_no_answer(tmp_path: Path) -> None:
    """A file of ours, genuine, but moved to another name."""
    store = PendingStore(str(tmp_path / "home"))
    scope = ApprovalScope("s", str(tmp_path), "on-request", "workspace-write")
    first, second = (
        store.add(
            ApprovalRequest("c", "act", "{}", "why", Risk.EXECUTE, exact=Exact(text)), scope, 60.0
        )
        for text in ("one", "two")
    )
    store.answer(first, "approved")
    folder = tmp_path / "home" / "approvals"
    (folder / f"{first.id}.answer").rename(folder / f"{second.id}.answer")
    with pytest.raises(PendingError, match="Toolrest did not write the answer"):
        store.answer_to(second)


async def test_another_home_knows_nothing_of_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _, pending, _ = await deferred(tmp_path)
    other = PendingStore(str(tmp_path_factory.mktemp("other")))
    with pytest.raises(PendingError, match="not from this TOOLREST_HOME"):
        other.answer(pending, "approved")


async def test_it_expires(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pending, _ = await deferred(tmp_path, settings={"approvals.expire_sec": 600})
    monkeypatch.setattr(time, "time", lambda: pending.expires + 1)
    with pytest.raises(PendingError, match="expired"):
        PendingStore(str(toolrest_home)).answer(pending, "approved")
    _, fresh, _ = await deferred(tmp_path)
    assert fresh.id != pending.id


async def test_a_yes_counts_for_the_same_surroundings_only(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, toolrest_home: Path
) -> None:
    _, pending, _ = await deferred(tmp_path)
    PendingStore(str(toolrest_home)).answer(pending, "approved")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    mark: list[str] = []
    for workspace, options in (
        (elsewhere, {}),
        (tmp_path, {"sandbox_mode": "read-only"}),
        (tmp_path, {"settings": {"sandbox_workspace_write.network_access": True}}),
    ):
        async with Toolrest(
            workspace, tools=[acting(mark)], on_ask="defer", **options, home=toolrest_home
        ) as rest:
            assert "needs approval" in (await rest.call("act", {"text": "x"})).text
    async with Toolrest(elsewhere, tools=[acting(mark)], home=toolrest_home) as rest:
        with pytest.raises(PendingError, match="resume it there"):
            await rest.resume(pending, None)
    assert mark == []
    async with Toolrest(tmp_path, tools=[acting(mark)], on_ask="defer", home=toolrest_home) as rest:
        assert (await rest.call("act", {"text": "x"})).text == "acted on x"


async def test_policy_still_has_its_say(tmp_path: Path, toolrest_home: Path) -> None:
    """A pending yes never lifts a denial that has come since."""
    mark: list[str] = []
    _, pending, _ = await deferred(tmp_path)
    settings = {"tools.disabled": ["act"]}
    async with Toolrest(
        tmp_path, tools=[acting(mark)], settings=settings, home=toolrest_home
    ) as rest:
        output = await rest.resume(pending)
    assert output.failure is not None
    assert mark == []


async def test_a_patch_of_a_file_that_changed_since_is_asked_about_anew(
    tmp_path: Path, toolrest_home: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+three\n*** End Patch\n"
    options: Any = {"on_ask": "defer", "approval_policy": "untrusted"}
    async with Toolrest(tmp_path, **options, home=toolrest_home) as rest:
        await rest.call("apply_patch", {"input": patch})
        (pending,) = rest.pending
        assert "+three" in pending.request.diff
        file.write_text("zero\none\ntwo\n")
        output = await rest.resume(pending)
        assert "needs approval" in output.text
        assert "two" in file.read_text()
        (fresh,) = rest.pending
        assert fresh.id != pending.id
        assert (await rest.resume(fresh)).success
        assert file.read_text() == "zero\none\nthree\n"


async def test_waiting_for_an_answer(tmp_path: Path, toolrest_home: Path) -> None:
    mark: list[str] = []
    store = PendingStore(str(toolrest_home))
    settings = {"approvals.wait_sec": 100}
    async with Toolrest(
        tmp_path, tools=[acting(mark)], on_ask="defer", settings=settings, home=toolrest_home
    ) as rest:
        call = asyncio.create_task(rest.call("act", {"text": "x"}))
        while not store.listed():
            await asyncio.sleep(0.01)
        store.answer(store.listed()[0], "approved")
        assert (await asyncio.wait_for(call, 60)).text == "acted on x"
    assert mark == ["x"]


async def test_a_model_cannot_fill_the_disk_with_questions(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrest.gate.approval.pending_store._MOST_OPEN", 3)
    async with Toolrest(tmp_path, tools=[acting([])], on_ask="defer", home=toolrest_home) as rest:
        outputs = [await rest.call("act", {"text": str(number)}) for number in range(5)]
        long = await rest.call("act", {"text": "x" * (1 << 20)})
        assert len(rest.pending) == 3
    assert "3 approvals wait already" in outputs[4].text
    assert "cannot wait for an answer" in long.text
    assert outputs[4].failure is not None
    assert outputs[4].failure.kind == "approval_denied"


async def test_questions_of_other_sessions_do_not_count(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 questions of one session refused every question of this home, for a day."""
    monkeypatch.setattr("toolrest.gate.approval.pending_store._MOST_OPEN", 1)
    for text in ("x", "y"):
        output, pending, _ = await deferred(tmp_path, text)
        assert pending.id in output.text
    assert len(PendingStore(str(toolrest_home)).waiting()) == 2


async def test_only_what_is_looked_for_is_read_closely(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question of a home was checked for every call of a graph."""
    store = PendingStore(str(toolrest_home))
    _, used, _ = await deferred(tmp_path, "used")
    _, wanted, _ = await deferred(tmp_path, "wanted")
    _, other, _ = await deferred(tmp_path, "other")
    assert store.withdraw(used)
    assert store.waiting() == [wanted, other]
    read: list[str] = []
    genuine = PendingStore._is_genuine

    def counted(self: PendingStore, pending: PendingApproval) -> bool:
        read.append(pending.id)
        return genuine(self, pending)

    monkeypatch.setattr(PendingStore, "_is_genuine", counted)
    assert store.waiting(call_id=wanted.call_id) == [wanted]
    assert store.waiting(call_id="no such call") == []
    assert read == [wanted.id]


async def test_what_expired_long_ago_is_deleted(tmp_path: Path, toolrest_home: Path) -> None:
    folder = toolrest_home / "approvals"
    long_ago = time.time() - 30 * 86_400
    settings = {"approvals.expire_sec": 1}
    _, old, _ = await deferred(tmp_path, "old", settings=settings)
    _, kept, _ = await deferred(tmp_path, "kept")
    for pending, expires in ((old, long_ago), (kept, time.time() + 60)):
        store = PendingStore(str(toolrest_home))
        changed = replace(pending, expires=expires, mac="")
        changed = replace(changed, mac=store._mac(asdict(changed)))
        (folder / f"{pending.id}.json").write_text(changed.to_json())
        os.utime(folder / f"{pending.id}.json", (long_ago, long_ago))
    await deferred(tmp_path, "new")
    assert not (folder / f"{old.id}.json").exists()
    assert (folder / f"{kept.id}.json").exists()


async def test_withdrawn_it_cannot_be_approved(tmp_path: Path, toolrest_home: Path) -> None:
    store = PendingStore(str(toolrest_home))
    _, pending, _ = await deferred(tmp_path, "x")
    _, answered, _ = await deferred(tmp_path, "y")
    _, used, _ = await deferred(tmp_path, "z")
    store.answer(answered, "approved")
    store.answer(used, "approved")
    store.take(used)
    assert [store.withdraw(one) for one in (pending, answered, used)] == [True, True, False]
    for one in (pending, answered):
        with pytest.raises(PendingError, match="already used"):
            store.take(one)


async def test_a_person_who_is_there_is_asked_first(tmp_path: Path) -> None:
    async with Toolrest(
        tmp_path, tools=[acting([])], settings={"on_ask": "defer"}, on_ask=lambda _: True
    ) as rest:
        assert (await rest.call("act", {"text": "x"})).text == "acted on x"
        assert rest.pending == []


# Other processes


def start(workspace: Path, mark: Path, pending: PendingApproval) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RESUMER, str(workspace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MARK": str(mark)},
    )
    assert process.stdin is not None
    process.stdin.write(pending.to_json())
    process.stdin.close()
    return process


def output_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process.stdout:
        text = process.stdout.read()
    process.wait(timeout=60)
    return text


@pytest.mark.slow
async def test_approving_twice_in_many_processes_runs_once(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    mark = tmp_path_factory.mktemp("mark") / "mark"
    _, pending, _ = await deferred(tmp_path)
    outputs = [output_of(p) for p in [start(tmp_path, mark, pending) for _ in range(4)]]
    assert sum("acted on x" in output for output in outputs) == 1
    assert sum("already used" in output for output in outputs) == 3
    assert mark.read_text() == "x\n"


@pytest.mark.slow
async def test_not_even_a_crash_makes_it_run_twice(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, full: bool
) -> None:
    """Processes are killed at any moment; the next process never repeats the call."""
    chance = random.Random(4)
    mark = tmp_path_factory.mktemp("mark") / "mark"
    rounds = 40 if full else 4
    for number in range(rounds):
        mark.unlink(missing_ok=True)
        _, pending, _ = await deferred(tmp_path, f"round {number}")
        process = start(tmp_path, mark, pending)
        assert process.stdout is not None
        process.stdout.readline()
        await asyncio.sleep(chance.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        output_of(process)
        done = mark.exists()
        after = output_of(start(tmp_path, mark, pending))
        lines = mark.read_text().splitlines() if mark.exists() else []
        assert len(lines) <= 1
        if "acted" in after:
            assert not done
        else:
            assert "already used" in after


DYING = """
import os, signal, sys
from toolrest.gate.approval.pending import PendingApproval, PendingError
from toolrest.gate.approval.pending_store import PendingStore

home, mark, when = sys.argv[1:]
pending = PendingApproval.from_json(sys.stdin.read())
count = 0

def dying(name):
    real = getattr(os, name)
    def call(*args, **options):
        global count
        count += 1
        if str(count) == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    setattr(os, name, call)

store = PendingStore(home)
store.listed()
for name in ("open", "write", "fsync", "link", "unlink", "close"):
    dying(name)
try:
    store.take(pending)
except PendingError:
    sys.exit(3)
with open(mark, "a") as stream:
    stream.write("ran" + chr(10))
"""


@pytest.mark.slow
async def test_death_at_any_step_of_taking_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, toolrest_home: Path
) -> None:
    """Every system call of taking an answer is once the last one of its process."""
    folder = tmp_path_factory.mktemp("marks")

    def taken(pending: PendingApproval, mark: Path, when: int) -> int:
        words = [sys.executable, "-c", DYING, str(toolrest_home), str(mark), str(when)]
        return subprocess.run(words, input=pending.to_json(), text=True, check=False).returncode

    for step in range(1, 40):
        _, pending, _ = await deferred(tmp_path, f"step {step}")
        mark = folder / str(step)
        first = taken(pending, mark, step)
        second = taken(pending, mark, 0)
        assert second in (0, 3)
        ran = mark.read_text().splitlines() if mark.exists() else []
        assert len(ran) == (first == 0) + (second == 0) <= 1
        if first == 0:
            break
    assert step > 6, "it died at several steps before one went through"


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return toolrest(*words, cwd=os.getcwd())


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_the_command(tmp_path: Path, toolrest_home: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    call = ("call", "-C", str(tmp_path), "-a", "untrusted", "-c", "on_ask=defer", "exec_command")
    arguments = json.dumps({"cmd": "echo done > made.txt; touch two", "login": False})
    cli("trust", str(tmp_path))
    asked = cli(*call, arguments)
    assert asked.returncode == 1
    (row,) = cli("approvals", "list").stdout.splitlines()
    identity = row.split()[0]
    assert identity in asked.stdout
    assert re.search(r"waiting +2[34] h left", row)
    shown = cli("approvals", "show", identity[:6]).stdout
    assert "Run this command?" in shown
    assert str(tmp_path) in shown
    (data,) = [json.loads(line) for line in cli("approvals", "list", "--json").stdout.splitlines()]
    assert (data["id"], data["state"], data["tool"]) == (identity, "waiting", "exec_command")
    ran = cli("approvals", "approve", identity, "--run")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "made.txt").read_text() == "done\n"
    again = cli("approvals", "approve", identity, "--run")
    assert again.returncode != 0
    assert "already used" in again.stderr
    assert cli("approvals", "list").stdout == ""
    assert "taken" in cli("approvals", "list", "--all").stdout
    assert "no pending approval has the id zz" in cli("approvals", "deny", "zz").stderr
