"""What is secret is in no `repr`: not of the value that holds it, nor of what holds that value."""

from __future__ import annotations

import pytest

from toolrest.gate.approval.pending_store import PendingStore
from toolrest.gate.approval.request import ApprovalRequest, Exact
from toolrest.gate.output.limiter import Limited
from toolrest.items import Answered, FunctionCall, ToolOutput
from toolrest.policy.effects import Risk
from toolrest.policy.launch import Launch
from toolrest.wire.provider import Provider

SECRET = "hunter2-0123456789"
OUTPUT = ToolOutput("ok", secrets={"TOKEN": SECRET})


@pytest.mark.parametrize(
    "value",
    [
        Provider("p", "https://x.test", key=SECRET),
        Provider("p", f"https://user:{SECRET}@x.test"),
        Provider("p", "https://x.test", headers={"x-key": SECRET}),
        Provider("p", "https://x.test", query_params={"key": SECRET}),
        Launch(("true",), "/", {"TOKEN": SECRET}),
        PendingStore("/home", _mac_key=SECRET.encode()),
        ApprovalRequest("c", "t", "{}", "why", Risk.WRITE, exact=Exact(SECRET)),
        OUTPUT,
        Answered(FunctionCall("c", "t"), OUTPUT),
        Limited(OUTPUT, False, 2, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_repr_shows_a_secret(value: object) -> None:
    for shown in (repr(value), str(value), f"{[value]}", f"{ {'key': value} }"):
        assert SECRET not in shown
        assert type(value).__name__ in shown
