"""What a person sees while the tests run (`pytest -q`): a line now and then, and one at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

_STEP = 0.05
"""A line for each such part of the tests, though not more than one a second."""
_SECONDS = 30.0
"""And one when nothing was printed for so long."""


class Progress:
    """A plugin of the process that prints: how far the tests are, and how they ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._start = self._printed = time.monotonic()
        self._all = self._next = 0.0
        self._ended: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Without workers: how many tests there are."""
        self._all = len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Every worker finds the same tests."""
        self._all = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> tuple[str, str, str]:
        """No dots: failures are named at once, the rest is counted."""
        if hasattr(report, "wasxfail"):
            return ("xfailed" if report.skipped else "xpassed", "", "")
        if report.skipped:
            return ("skipped", "", "")
        if report.failed:
            return ("failed" if report.when == "call" else "error", "", "FAILED")
        return ("passed" if report.when == "call" else "", "", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count, and print when there is something to say."""
        if report.failed:
            self._ended["failed"] += 1
            self._print(f"FAILED {report.nodeid}")
        elif report.skipped and hasattr(report, "wasxfail"):
            self._ended["passed"] += 1  # it fails, as is said of it
        elif report.skipped:
            self._ended["skipped"] += 1
            self._reasons[_reason(report)] += 1
        elif report.when == "call":
            self._ended["passed"] += 1
        if report.when == "teardown":
            self._step()

    def _step(self) -> None:
        done = sum(self._ended.values())
        silent = time.monotonic() - self._printed
        if self._all and silent > 1 and (done >= self._next or silent > _SECONDS):
            self._next = done + _STEP * self._all
            counts = f"{done:,} of {self._all:,.0f} tests, {self._ended['failed']} failed"
            self._print(f"{100 * done / self._all:3.0f} %  {counts}  {self._clock()}")

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        return f"{minutes}:{seconds:02}"

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(line)
        reporter.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """The last line of the run."""
        if not self._ended:
            return
        why = " | ".join(f"{count}: {reason}" for reason, count in self._reasons.most_common())
        skipped = f"{self._ended['skipped']:,} skipped" + (f" ({why})" if why else "")
        counts = f"{self._ended['passed']:,} passed, {self._ended['failed']:,} failed, {skipped}"
        self._print(f"tests: {counts}, {(time.monotonic() - self._start) / 60:.1f} minutes")


def _reason(report: pytest.TestReport) -> str:
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")
