"""What is secret is in no `repr`: not of the value that holds it, nor of what holds that value."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import msgspec
import pytest

from toolrest.config.loader import default_config
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.gate.approval.request import ApprovalRequest, Exact
from toolrest.gate.output.limiter import Limited
from toolrest.items import Answered, FunctionCall, ToolOutput
from toolrest.policy.effects import Risk
from toolrest.policy.launch import Launch
from toolrest.secret import SafeUrl, Secret
from toolrest.urls import parse_url
from toolrest.wire.provider import Provider
from toolrest.wire.providers import provider_for

SECRET = "hunter2-0123456789"
OUTPUT = ToolOutput("ok", secrets={"TOKEN": SECRET})


@pytest.mark.parametrize(
    "value",
    [
        Provider("p", SafeUrl("https://x.test"), key=Secret(SECRET)),
        Provider("p", SafeUrl(f"https://user:{SECRET}@x.test")),
        Provider("p", SafeUrl("https://x.test"), headers={"x-key": Secret(SECRET)}),
        Provider("p", SafeUrl("https://x.test"), query_params={"key": Secret(SECRET)}),
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


def test_a_secret_is_in_no_text_and_no_json() -> None:
    key = Secret(SECRET)
    address = SafeUrl(f"https://user:{SECRET}@x.test/v1?sig={SECRET}#{SECRET}")
    for value in (key, address, [key, address], {"key": key, "at": address}):
        for shown in (repr(value), str(value), f"{value}", f"{value!s:>40}", f"{value} {value!r}"):
            assert SECRET not in shown
        for store in (json.dumps, msgspec.json.encode, pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError):
                store(value)
    assert (key.reveal(), str(address)) == (SECRET, "https://x.test/v1")
    assert str(SafeUrl(f"https://user:{SECRET}/and@x.test")) == "https://x.test"
    assert not Secret()


def test_settings_and_addresses_show_no_secret() -> None:
    address = f"https://user:{SECRET}@x.test/v1"
    row = {
        "base_url": address,
        "experimental_bearer_token": SECRET,
        "http_headers": {"X-Key": SECRET},
        "query_params": {"sig": SECRET},
    }
    settings = {"model": "m", "model_provider": "mine", "model_providers": {"mine": row}}
    config = default_config(settings, home=Path("/nonexistent"), env={})
    assert config.value.model_providers["mine"].experimental_bearer_token == SECRET
    provider = provider_for(config, {})
    assert provider.url("x") == f"https://user:{SECRET}@x.test/v1/x?sig={SECRET}"
    for value in (config, config.value, provider, provider.headers, provider.query_params):
        assert SECRET not in f"{value!r} {value}"
    assert SECRET not in repr(parse_url(address))
