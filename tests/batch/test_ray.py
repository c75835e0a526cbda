"""The Ray engine on two real nodes: workers and a node are lost, the driver is killed.

Ray is large, so it has an environment of its own, made once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.batch.conftest import PATIENCE, Bench, Tree, orphans, python_with, until, worker
from tests.batch.test_faults import TURNS, asked_again, check_whole

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="session")
def ray_python() -> str:
    """A Python with Ray and pyarrow; what Toolrest needs is borrowed from this environment."""
    return python_with("ray", "ray>=2.40", "pyarrow")


class RayBench:
    """A bench whose runs go to a cluster."""

    def __init__(self, bench: Bench, python: str, cluster: subprocess.Popen[str]) -> None:
        self.bench, self.python, self.cluster = bench, python, cluster
        assert cluster.stdout is not None
        self.address = cluster.stdout.readline().strip()
        assert self.address, "there is no cluster"

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start a driver."""
        more = ("--engine", "ray", "--ray-address", self.address, "-j", "16", "--lease", "10")
        words = [*self.bench.words(*more), "--ray-cpus", "0.5", "--retries", "killed=9"]
        words += options
        return subprocess.Popen(
            [self.python, "-P", "-m", "toolrest", *words],
            cwd=self.bench.desk.workspace,
            stdout=subprocess.DEVNULL,  # Ray's own messages
            stderr=subprocess.PIPE,
            text=True,
        )

    def lose_node(self) -> None:
        """Take a node away and add another one."""
        assert self.cluster.stdin is not None
        assert self.cluster.stdout is not None
        self.cluster.stdin.write("lose\n")
        self.cluster.stdin.flush()
        assert self.cluster.stdout.readline().strip() == "lost"

    def workers(self) -> list[int]:
        """The Ray workers that run a task now."""
        found = []
        for pid in Tree(self.cluster.pid).left():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if file.read().startswith(b"ray::run_remotely"):
                        found.append(pid)
            except OSError:
                continue
        return found


@pytest.fixture
def ray_bench(bench: Callable[..., Bench], ray_python: str) -> Iterator[RayBench]:
    here = bench(worker(TURNS))
    script = Path(__file__).with_name("ray_cluster.py")
    with subprocess.Popen(
        [ray_python, str(script), "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        try:
            yield RayBench(here, ray_python, cluster)
        finally:
            tree = Tree(cluster.pid)
            if cluster.stdin is not None:
                cluster.stdin.close()
            try:
                cluster.wait(PATIENCE)
            finally:
                for pid in tree.left():
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("count", [20, 200])
def test_a_cluster_that_loses_workers_a_node_and_its_driver(
    ray_bench: RayBench, count: int
) -> None:
    bench, dice = ray_bench.bench, random.Random(count)
    names = bench.tasks(count)
    driver = ray_bench.start()
    until(lambda: len(bench.server.requests) >= count // 2, seconds=300)
    for _ in range(3):
        os.kill(dice.choice(until(ray_bench.workers, seconds=300)), signal.SIGKILL)
        time.sleep(dice.random())  # at any moment
    ray_bench.lose_node()
    seen = len(bench.server.requests)
    goal = min(seen + count // 4, count * TURNS - 4)
    until(lambda: len(bench.server.requests) >= goal, seconds=300)
    driver.kill()
    driver.communicate(timeout=PATIENCE)
    until(lambda: not orphans(bench.desk.home), "sessions outlive their driver")
    before, since = bench.finished_turns(), len(bench.server.requests)
    driver = ray_bench.start()
    _, err = driver.communicate(timeout=900)
    assert driver.returncode == 0, err
    assert "WARNING" not in err, "nothing of Ray's is among our lines"
    assert asked_again(bench, before, since) == []
    check_whole(bench, names)
    attempts = [len(row["attempts"]) for row in bench.results().values()]
    assert max(attempts) > 1, "some were in the middle"
    assert orphans(bench.desk.home) == []


def test_what_waits_for_a_worker_does_not_begin_after_the_limit(ray_bench: RayBench) -> None:
    """There is room for eight at a time, and sixteen are handed over."""
    bench = ray_bench.bench
    bench.tasks(20)
    driver = ray_bench.start("--max-total-tokens", "1")
    _, err = driver.communicate(timeout=600)
    assert driver.returncode == 1, err
    assert "tokens were used, and --max-total-tokens is 1" in err
    assert 0 < len(bench.results()) < 16
    assert {row["failure"] for row in bench.results().values()} == {None}, "those that had begun"
    assert orphans(bench.desk.home) == []


def test_parquet_has_the_columns(ray_python: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    row: Any = {"id": "a", "failure": None, "cost": 0.5, "attempts": [{}], "usage": {}}
    (store / "tasks" / "a").mkdir(parents=True)
    (store / "tasks.jsonl").write_text('{"id": "a", "key": "a"}\n')
    (store / "tasks" / "a" / "result.json").write_text(json.dumps(row))
    run = [ray_python, "-P", "-m", "toolrest", "batch", "results", str(store)]
    run += ["--format", "parquet", "-o", str(tmp_path / "out.parquet")]
    subprocess.run(run, check=True, cwd=tmp_path)
    table = "pyarrow.parquet.read_table(sys.argv[1])"
    code = f"import pyarrow.parquet, json, sys; print(json.dumps({table}.to_pylist()))"
    read = [ray_python, "-c", code, str(tmp_path / "out.parquet")]
    out = subprocess.run(read, check=True, capture_output=True, text=True)
    (found,) = json.loads(out.stdout)
    assert (found["id"], found["cost"], found["attempts"]) == ("a", 0.5, 1)
