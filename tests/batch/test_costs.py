"""Limits in dollars and tokens: they hold, or the batch says that they cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.batch.conftest import PLAN, Bench, worker

from toolrest.batch.engine import Bookkeeping
from toolrest.batch.prices import Prices
from toolrest.batch.run_task import RunOptions, TaskEnd, run_task
from toolrest.batch.stores.lease import Runner
from toolrest.batch.stores.store import FolderStore, open_store
from toolrest.batch.stores.totals import Totals, Used, used_marker
from toolrest.batch.tasks.model_prices import BatchPrices
from toolrest.batch.tasks.task import BatchTask, read_tasks
from toolrest.testing import Call
from toolrest.wire.prices import Price

OTHER = '[model_prices."another"]\ninput = 1.0\noutput = 1.0\n'


@pytest.mark.parametrize("prices", ["", OTHER])
@pytest.mark.parametrize(
    ("field", "words", "message"),
    [
        ({"max_cost": 1}, (), "task task-0: `max_cost` is set, and the price of gpt-5.5 is not"),
        ({}, ("--max-total-cost", "1"), "--max-total-cost is set, and the price of gpt-5.5 is not"),
    ],
)
def test_a_limit_in_dollars_on_a_model_without_a_price_is_refused(
    bench: Callable[..., Bench], prices: str, field: Any, words: tuple[str, ...], message: str
) -> None:
    here = bench(worker(1))
    config = here.desk.home / "config.toml"
    config.write_text(config.read_text() + prices)
    here.tasks(1, **field)
    ran = here.run(*words)
    assert (ran.code, message in ran.err) == (2, True), ran.err
    assert here.server.requests == []


def test_prices_of_the_models_that_tasks_name(
    toolrest_home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vendor's own list counts for its own address."""
    (toolrest_home / "config.toml").write_text(f'model = "another"\n{OTHER}')
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    tasks = [
        BatchTask("a", "p", None, max_cost=1.0),
        BatchTask("b", "p", None, {"model": "gpt-5-mini"}, max_cost=1.0),
    ]
    found = BatchPrices(None, ()).of(tasks, max_total=True)
    assert found.by_model.keys() == {"another", "gpt-5-mini"}
    assert found.price("gpt-5-mini") == Price(0.25, 2, 0.025)


@pytest.mark.slow
async def test_a_task_whose_cost_turns_out_to_be_unknown_is_stopped(
    bench: Callable[..., Bench],
) -> None:
    """The settings of its folder can name another model than those of the batch."""
    here = bench(lambda _: [Call("update_plan", PLAN)])
    here.tasks(1, max_cost=1)
    (task,) = read_tasks(str(here.file))
    options = RunOptions(prices=Prices(by_model={"another": Price(1, 1)}))
    end = await run_task(task, FolderStore(str(here.store)), options)
    assert end.result is not None
    assert end.result["failure"] == "usage"
    assert "`max_cost` is set, and the price of gpt-5.5 is not known" in end.result["error"]


@pytest.mark.slow
def test_a_task_over_its_cost_asks_nothing_more_and_counts_once(
    bench: Callable[..., Bench],
) -> None:
    def used() -> Any:
        found = json.loads(here.desk.run("batch", "status", str(here.store), "--json").out)
        return found["tokens"], found["cost"]

    here = bench(worker(5))
    here.tasks(1, max_turns=1)
    price = ("--price", "1000,1000")
    assert here.run(*price).code == 1
    assert used() == (110, pytest.approx(0.11))
    assert here.desk.run("batch", "retry", str(here.store)).code == 0
    here.tasks(1, max_turns=2)
    assert here.run(*price).code == 1
    assert used() == (220, pytest.approx(0.22)), "what the first run used counts once"
    assert here.desk.run("batch", "retry", str(here.store)).code == 0
    here.tasks(1, max_turns=9, max_cost=0.2)
    assert here.run(*price).code == 1
    row = here.results()["task-0"]
    assert (row["failure"], row["error"]) == (
        "budget", "it has cost $0.2200, and max_cost is 0.2",
    )  # fmt: skip
    assert len(here.server.requests) == 2
    assert used() == (220, pytest.approx(0.22))


@pytest.mark.slow
async def test_tokens_of_sub_agents_count_for_the_batch(bench: Callable[..., Bench]) -> None:
    """Three replies to the task's own session, and two to its sub-agent."""

    def reply(body: Any) -> Any:
        texts = [part["text"] for item in body["input"] for part in item.get("content") or ()]
        outputs = [item["output"] for item in body["input"] if "output" in item]
        if "look around" in texts:
            return "seen" if outputs else [Call("update_plan", PLAN)]
        if not outputs:
            return [Call("spawn_agent", {"message": "look around"})]
        if len(outputs) == 1:
            return [Call("wait", {"ids": [json.loads(outputs[0])["agent_id"]]})]
        return "done"

    here = bench(reply)
    here.tasks(1)
    (task,) = read_tasks(str(here.file))
    store = FolderStore(str(here.store))
    end = await run_task(task, store, RunOptions(prices=Prices(Price(1000, 1000))))
    assert end.result is not None
    usage = end.result["usage"]["total_tokens"]
    assert (end.result["text"], usage, end.result["turns"]) == ("done", 550, 3)
    assert end.result["cost"] == pytest.approx(0.55)
    by_tokens = Totals(store, Runner.here(), max_tokens=500).used_up()
    assert by_tokens == "550 tokens were used, and --max-total-tokens is 500"
    by_cost = Totals(store, Runner.here(), max_cost=0.5).used_up()
    assert by_cost == "$0.55 were spent, and --max-total-cost is 0.5"


async def test_what_a_runner_stored_before_it_died_counts(bench: Callable[..., Bench]) -> None:
    here = bench(worker(1))
    here.tasks(1)
    (task,) = read_tasks(str(here.file))
    store = FolderStore(str(here.store))
    assert (await run_task(task, store, RunOptions())).outcome == "done"
    message = Totals(store, Runner.here(), max_tokens=100).used_up()
    assert message == "110 tokens were used, and --max-total-tokens is 100"


def test_a_result_without_a_cost_stops_a_batch_with_a_limit_in_dollars(tmp_path: Any) -> None:
    store = open_store(str(tmp_path))
    totals = Totals(store, Runner.here(), max_cost=1.0)
    row = {"id": "t", "failure": None, "thread_id": "s", "usage": {"total_tokens": 5}}
    totals.take({**row, "cost": 0.1})
    assert totals.used_up() is None
    totals.take({**row, "thread_id": "u", "cost": None})
    assert "the cost of task t is not known, and --max-total-cost is given" in str(totals.used_up())


def test_what_a_task_without_a_stored_result_used_counts(tmp_path: Any) -> None:
    store = open_store(str(tmp_path))
    totals = Totals(store, Runner.here(), max_tokens=5)
    row = {"id": "t", "failure": None, "thread_id": "s", "usage": {"total_tokens": 5}, "cost": None}
    Bookkeeping(store, totals, print).take(
        BatchTask("t", "p", None), TaskEnd("unstored", row, "No space left on device"), []
    )
    assert totals.used_up() == "5 tokens were used, and --max-total-tokens is 5"
    assert totals.own.done == 0


def test_a_session_counts_once_with_the_most_that_it_used(tmp_path: Any) -> None:
    store = open_store(str(tmp_path))
    for tokens, cost in ((10, 0.5), (30, 1.5), (20, 1.0)):
        store.write(used_marker("a", tokens, cost), b"")
    store.write(used_marker("b", 5, None), b"")
    store.write("used/no.such", b"")
    used = Used()
    used.read(store)
    used.read(store)
    assert (used.tokens, used.cost, used.unpriced) == (35, 1.5, 1)
    used.note("b", 5, 0.25)
    assert (used.tokens, used.cost, used.unpriced) == (35, 1.75, 0)
