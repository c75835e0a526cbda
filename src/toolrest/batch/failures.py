"""Classes of failures, and how often and how soon each of them is tried again."""

from __future__ import annotations

import errno
import os
import random
import signal
from collections.abc import Mapping
from typing import get_args

from msgspec import Struct

from toolrest.wire.model import ModelErrorKind


class Retry(Struct, frozen=True):
    """How often a failure is tried again, and the seconds before the first time; they double."""

    times: int
    delay: float = 0.0
    longest: float = 300.0

    def wait(self, time: int) -> float:
        """The seconds before the time-th retry, spread so that tasks do not come all at once."""
        return min(self.delay * 2.0**time, self.longest) * random.uniform(0.7, 1.3)  # noqa: S311


POLICIES: Mapping[str, Retry] = {
    "model_rate_limit": Retry(8, 2.0),
    "model_unreachable": Retry(4, 1.0),
    "model_error": Retry(0),
    "budget": Retry(0),
    "timeout": Retry(0),
    "sandbox_unavailable": Retry(0),
    "killed": Retry(2, 0.2),
    "oom": Retry(1, 1.0),
    "denied": Retry(0),
    "answer": Retry(0),
    "usage": Retry(0),
    "workspace": Retry(5, 5.0),
    "patch": Retry(0),
    "internal": Retry(1, 0.2),
}
"""By class. What a second try cannot change (a wrong key, a limit, a denial) is not tried again."""

_MODEL = {
    "rate_limit": "model_rate_limit",
    "overloaded": "model_rate_limit",
    "unreachable": "model_unreachable",
    "stream": "model_unreachable",
    "server": "model_unreachable",
}
_REASONS = {
    "done": None,
    "budget": "budget",
    "timeout": "timeout",
    "denied": "denied",
    "sandbox_unavailable": "sandbox_unavailable",
    "schema_unmet": "answer",
    "usage": "usage",
    "interrupted": "killed",
    "terminated": "killed",
} | {f"model_{kind}": _MODEL.get(kind, "model_error") for kind in get_args(ModelErrorKind)}


def failure_class(reason: str | None, exit_code: int, oom: bool) -> str | None:
    """The class of the failure with which an `exec` ended; None when it did not fail.

    `reason` is that of its last line, None when there is none: it died.
    """
    if reason is not None:
        return _REASONS.get(reason, "internal")
    if exit_code in (-signal.SIGKILL, 137):
        return "oom" if oom else "killed"
    return "killed" if exit_code < 0 else "usage" if exit_code == 2 else "internal"


def failure_of_error(error: OSError) -> str:
    """The class of the failure of an attempt that could not use a file or folder of its own."""
    return "workspace" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "internal"


def oom_kills() -> int:
    """How many processes the kernel has killed because memory was used up.

    Those of this control group (version 2); where it does not count them, of the whole machine.
    """
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            group = next(line.strip() for line in file if line.startswith("0::"))[3:]
        return _counted(os.path.join("/sys/fs/cgroup", group.lstrip("/"), "memory.events"))
    except (OSError, StopIteration):
        pass
    try:
        return _counted("/proc/vmstat")
    except OSError:
        return 0


def _counted(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
