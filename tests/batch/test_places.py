"""Where tasks run and where they are stored: images, S3, full and read-only stores."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import machine
from tests.batch.conftest import PATIENCE, Bench, python_with, until, worker
from tests.sandbox.kinds.kinds import IMAGE, Missing, engine

from toolrest.testing import Call


def runs(command: str) -> Callable[[Any], Any]:
    """A model that runs one command, then says what it printed."""

    def reply(body: Any) -> Any:
        outputs = [item["output"] for item in body["input"] if "output" in item]
        return str(outputs[-1]) if outputs else [Call("exec_command", {"cmd": command})]

    return reply


@pytest.mark.system
@pytest.mark.timeout(600)  # the image may have to be imported first
def test_a_task_with_an_image_runs_its_commands_there(bench: Callable[..., Bench]) -> None:
    try:
        found = engine()
    except Missing as error:
        pytest.skip(str(error))
    here = bench(runs(f"echo made > here.txt; test -e {machine.REPOSITORY} || echo inside"))
    here.tasks(1, image=IMAGE, check="test -f here.txt", sandbox="workspace-write")
    settings = [f"sandbox.{name}={json.dumps(value)}" for name, value in found.items()]
    running = here.start(*(word for one in settings for word in ("-c", one)))
    _, err = running.communicate(timeout=5 * PATIENCE)
    assert running.returncode == 0, err
    (row,) = here.results().values()
    assert "inside" in row["text"]
    assert row["check"]["score"] == 1.0, row


def test_a_task_with_an_image_and_no_engine_says_what_is_missing(
    bench: Callable[..., Bench],
) -> None:
    here = bench(runs("true"))
    here.tasks(1, image="debian:12")
    ran = here.run("-c", "sandbox.engine=/nowhere/podman")
    assert ran.code == 1
    (row,) = here.results().values()
    assert row["failure"] == "sandbox_unavailable"
    assert "/nowhere/podman" in row["error"]


def in_small_store(bench: Bench, *script: str) -> subprocess.CompletedProcess[str]:
    """Run lines of a shell with the store as a small file system of its own; `$run` is a run."""
    words = [sys.executable, "-P", "-m", "toolrest", *bench.words("-j", "3")]
    first = ["store=$1", f"run={shlex.quote(shlex.join(words))}", "mkdir $store"]
    first += ["mount -t tmpfs -o size=160k none $store"]
    lines = "\n".join([*first, *script, "cp -r $store $store.after"])
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", lines, "sh", str(bench.store)],
        cwd=bench.desk.workspace,
        capture_output=True,
        text=True,
    )


@pytest.mark.long
@pytest.mark.needs("namespaces")
def test_a_store_without_room_stops_the_batch_and_asks_nothing_twice(
    bench: Callable[..., Bench],
) -> None:
    here = bench(worker(2))
    names = here.tasks(9)
    grow = "mount -o remount,size=16m $store"
    ran = in_small_store(here, "$run; echo first $?", grow, "$run; echo then $?")
    assert ran.stdout == "first 1\nthen 0\n", ran.stderr
    assert "stopped: cannot write to the store: No space left on device" in ran.stderr
    here.store = Path(f"{here.store}.after")
    assert sorted(here.results()) == names
    assert {row["failure"] for row in here.results().values()} == {None}
    assert len(here.server.requests) == 9 * 2
    assert not list(here.store.glob("tasks/*/*.tmp"))


@pytest.mark.long
@pytest.mark.needs("namespaces")
def test_a_store_that_turns_read_only_loses_nothing(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    """It does before the only answer; the next run stores it without asking the model."""
    asked, frozen = tmp_path / "asked", tmp_path / "frozen"

    def reply(body: Any) -> Any:
        asked.touch()
        until(frozen.exists)
        return worker(1)(body)

    here = bench(reply)
    here.tasks(1)
    freeze = f"until test -e {asked}; do sleep 0.05; done; mount -o remount,ro $store"
    lines = ["$run & running=$!", f"{freeze}; touch {frozen}", "wait $running; echo first $?"]
    ran = in_small_store(here, *lines, "mount -o remount,rw $store", "$run; echo then $?")
    assert ran.stdout == "first 1\nthen 0\n", ran.stderr
    assert re.search(r"task-0: cannot write to the store: \S+: Read-only file", ran.stderr)
    here.store = Path(f"{here.store}.after")
    assert here.results()["task-0"]["text"] == "task-0 is done"
    assert len(here.server.requests) == 1


@pytest.fixture
def s3() -> Iterator[tuple[str, dict[str, str]]]:
    """A Python with s3fs, and the variables that lead it to a server of moto's with a bucket."""
    python = python_with("s3", "s3fs", "moto[server]")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {
        **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "testing"),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    server = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(server, **quiet) as process:  # type: ignore[call-overload]
        try:
            until(lambda: is_open(port), "moto does not listen")
            code = "import s3fs; s3fs.S3FileSystem().mkdir('bucket')"
            subprocess.run([python, "-c", code], check=True, env={**os.environ, **env})
            yield python, env
        finally:
            process.kill()


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_batch_in_s3_by_two_runners_at_once(
    bench: Callable[..., Bench], s3: tuple[str, dict[str, str]]
) -> None:
    """The same tasks, not shards: only the leases keep them apart."""
    python, env = s3
    here = bench(worker(2))
    names = here.tasks(4)
    words = [python, "-P", "-m", "toolrest", "batch"]
    options = ["--store", "s3://bucket/run", "--scratch", str(here.base / "scratch"), "-j", "2"]
    options += ["--shard", "0/1"]  # more than one runner: the store must create exclusively

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*words, *more],
            cwd=here.desk.workspace,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    runners = [start(str(here.file), *options) for _ in range(2)]
    ended = [(one.communicate(timeout=5 * PATIENCE), one.returncode) for one in runners]
    assert [code for _, code in ended] == [0, 0], ended
    out, err = start("results", "s3://bucket/run").communicate(timeout=PATIENCE)
    rows = [json.loads(line) for line in out.splitlines()]
    assert sorted(row["id"] for row in rows) == names, err
    assert {(row["failure"], len(row["attempts"])) for row in rows} == {(None, 1)}
    assert len(here.server.requests) == 4 * 2, "no task was run twice"
