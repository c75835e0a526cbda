from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest import Toolrest
from toolrest.config import default_config
from toolrest.config.layer_check import known_keys
from toolrest.config.schema.aliases import PENDING_KEYS
from toolrest.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "wrong", "meant"),
    [
        ('modle = "x"', "modle", "model"),
        ("[tools]\ndisabeld = []", "tools.disabeld", "tools.disabled"),
        ("include_plan_tool = true", "include_plan_tool", "tools.include_plan_tool"),
        ("[tools]\nmax_parallel_calls = 2", "tools.max_parallel_calls", "max_parallel_calls"),
        ("[sandbox_workspace]\nx = 1", "sandbox_workspace", "sandbox_workspace_write"),
        ("[tool_config]\naproval_policy = 'none'", "tool_config.aproval_policy", None),
        ("[model_families.my]\nshel = 'shell'", "model_families.my.shel", None),
        ("[hoks]\nx = 1", "hoks", "hooks"),
        ("[mcp_server.x]\ncommand = 'c'", "mcp_server", "mcp_servers"),
        ("[otel]\nenable = true", "otel.enable", "otel.enabled"),
        ('"odd key" = 1', '"odd key"', ""),
        ('"esc\\u001b[31m" = 1', '"esc\\u001b[31m"', ""),
    ],
)
def test_an_unknown_key_names_the_file_and_the_nearest(
    desk: Any, text: str, wrong: str, meant: str | None
) -> None:
    desk.user(text)
    message = desk.error()
    assert message.startswith(f"{desk.file}: unknown key {wrong}")
    if meant is None:
        meant = {"tool_config.aproval_policy": "tool_config.approval_policy"}.get(
            wrong, "model_families.my.shell"
        )
    if meant:
        assert message.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "key", "expected", "got"),
    [
        ("model = 3", "model", "a text in quotes", "3"),
        ("max_parallel_calls = '3'", "max_parallel_calls", "a whole number", 'the text "3"'),
        ("max_parallel_calls = true", "max_parallel_calls", "a whole number", "true"),
        ("max_parallel_calls = 0", "max_parallel_calls", "greater than or equal to 1", "0"),
        ("tool_timeout_sec = '1s'", "tool_timeout_sec", "a number", 'the text "1s"'),
        ("tool_timeout_sec = inf", "tool_timeout_sec", "a finite number", "inf"),
        ("tools = 3", "tools", "a table", "3"),
        ("tool_config = 3", "tool_config", "a table", "3"),
        ("[tools]\ndisabled = 'x'", "tools.disabled", "a list", 'the text "x"'),
        ("[tools]\ndisabled = [3]", "tools.disabled", "a text in quotes", "3"),
        ("[tools]\ninclude_plan_tool = 1", "tools.include_plan_tool", "true or false", "1"),
        (
            "[tools]\nuse_experimental_streamable_shell_tool = 1",
            "tools.use_experimental_streamable_shell_tool",
            "true or false",
            "1",
        ),
        ("on_ask = {}", "on_ask", "one of 'deny'", "a table"),
        ("[tool_config]\napproval_policy = 1", "tool_config.approval_policy", "one of", "1"),
        ("profiles.x = 3", "profiles.x", "a table", "3"),
        ("[tools.limits]\nread_file = 1.5", "tools.limits.read_file", "a whole number", "1.5"),
        ("model = 2020-01-01", "model", "a text in quotes", "a date"),
    ],
)
def test_a_wrong_type_names_key_expected_and_got(
    desk: Any, text: str, key: str, expected: str, got: str
) -> None:
    desk.user(text)
    message = desk.error()
    assert message.startswith(f"{desk.file}: {key}: expected {expected}")
    assert message.endswith(f"got {got}") or got in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sandbox_mode = 'none'", "no sandbox_mode 'none'; choose read-only, workspace-write or "),
        ("[tools]\nshell_type = 'bash'", "no tools.shell_type 'bash'; choose family, shell, "),
        ("model = ''", "model is empty"),
    ],
)
def test_a_word_that_is_none_of_the_choices_is_named_with_them(
    desk: Any, text: str, said: str
) -> None:
    desk.user(text)
    assert desk.error().startswith(f"{desk.file}: {said}")
    with pytest.raises(ConfigError, match=f"^{said.partition(';')[0]}"):
        Toolrest(desk.workspace, settings=tomllib.loads(text))  # what a caller gave has no place


def test_every_wrong_value_is_named_at_once(desk: Any) -> None:
    desk.user("model = 1\non_ask = 2\nnope = 3")
    lines = desk.error().splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{desk.file}: ") for line in lines)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb = \n", "line 2, column 5"),
        ("model = 'x'\n\n[tools\n", "line 3, column 7"),
        ("x = [", "line 1"),
        ("a = 1\na = 2\n", "line 2"),
        ('s = "\\q"', "line 1"),
    ],
)
def test_broken_toml_names_file_and_line(desk: Any, text: str, place: str) -> None:
    desk.user(text)
    message = desk.error()
    assert message.startswith(f"{desk.file}: {place}")
    assert "not valid TOML" in message


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe",
        b"x = " + b"[" * 20_000,
        b"x = " + b"9" * 6000,
        b"x." * 5000 + b"y = 1",
        b"profiles." + b"x." * 5000 + b"y = 1",
        b"\0",
        b"x = 9999-99-99",
        b"#" * (1 << 20) + b"#",
    ],
    ids=["not-utf8", "brackets", "digits", "dots", "profile-dots", "nul", "date", "huge"],
)
def test_a_nasty_file_is_an_error_that_names_it(desk: Any, data: bytes) -> None:
    desk.file.write_bytes(data)
    assert desk.error().startswith(f"{desk.file}: ")


def test_a_file_from_another_system_is_read(desk: Any) -> None:
    desk.file.write_bytes(b'\xef\xbb\xbfmodel = "x"\r\non_ask = "fail"\r\n')
    assert desk.load().value.model == "x"
    desk.file.write_bytes(b'\xef\xbb\xbfmodel = "x"\r\n# \xff')
    assert desk.error() == f"{desk.file}: line 2: not UTF-8"


@pytest.mark.parametrize("kind", ["folder", "fifo", "device"])
def test_what_is_not_a_file_is_refused_at_once(desk: Any, kind: str) -> None:
    if kind == "folder":
        desk.file.mkdir()
    elif kind == "fifo":
        os.mkfifo(desk.file)
    else:
        desk.file.symlink_to("/dev/zero")
    assert "not a regular file" in desk.error()


def test_a_home_that_is_a_file_is_an_error(desk: Any) -> None:
    desk.home.rmdir()
    desk.home.write_text("")
    assert "cannot read" in desk.error()


UNREADABLE = """
import os, sys
from toolrest.config import load
from toolrest.errors import ConfigError
home = sys.argv[1]
load(home=home, env={"HOME": home})
if os.geteuid() == 0:
    os.chown(home, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.close(os.open(home + "/config.toml", os.O_CREAT, 0))
try:
    load(home=home, env={"HOME": home})
except ConfigError as error:
    print(error)
"""


def test_an_unreadable_file_is_an_error_and_not_ignored() -> None:
    # Not below tmp_path, which an ordinary user cannot reach when root runs the tests.
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", UNREADABLE, home], capture_output=True, text=True, timeout=60
        )
    assert done.stdout == f"cannot read {home}/config.toml: Permission denied\n", done


@pytest.mark.parametrize("key", sorted(PENDING_KEYS))
def test_a_key_whose_feature_has_not_landed_says_so(desk: Any, key: str) -> None:
    desk.user(f"{key} = 'x'")
    message = desk.error()
    assert message.startswith(f"{desk.file}: {key}")
    assert f"is known but not available yet: {PENDING_KEYS[key]}" in message
    desk.user(f"[profiles.p]\n{key} = 'x'")
    assert "is known but not available yet" in desk.error()
    desk.user("")
    assert "is known but not available yet" in desk.error(overrides=[f"{key}=x"])


def test_a_switch_that_asks_for_nothing_is_fine(desk: Any) -> None:
    desk.user("[tool_config]\ntools_web_search_request = false")
    assert desk.load().value.tools.tools_web_search_request is False


@pytest.mark.parametrize("table", ["tool_config", "tool_security"])
def test_sandbox_backends_go_by_both_names(desk: Any, table: str) -> None:
    desk.user(f'[{table}]\nsandbox_policy = "vm"')
    assert desk.load().value.sandbox_policy == "vm"


def test_pending_keys_are_known_keys() -> None:
    assert {tuple(key.split(".")) for key in PENDING_KEYS} <= known_keys()


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        (
            "approval_policy = 'on-request'\n[tool_config]\napproval_policy = 'none'",
            'approval_policy = "on-request"',
            'tool_config.approval_policy = "none"',
        ),
        (
            "approval_policy = 'never'\n[tool_security]\napproval_policy = 'required'",
            'approval_policy = "never"',
            'tool_security.approval_policy = "required"',
        ),
        (
            "[tool_config]\napproval_policy = 'none'\n[tool_security]\napproval_policy = 'sandbox'",
            'tool_config.approval_policy = "none"',
            'tool_security.approval_policy = "sandbox"',
        ),
        (
            "[tools]\nshell_type = 'shell'\nuse_experimental_streamable_shell_tool = true",
            'tools.shell_type = "shell"',
            "tools.use_experimental_streamable_shell_tool = true",
        ),
        (
            "[tools]\ntools_web_search_request = false\n"
            "[tool_config]\ntools_web_search_request = true",
            "tools.tools_web_search_request = false",
            "tool_config.tools_web_search_request = true",
        ),
    ],
)
def test_one_thing_set_differently_names_both(
    desk: Any, text: str, first: str, second: str
) -> None:
    desk.user(text)
    message = desk.error()
    assert f"{first} and {second} set the same thing differently" in message


def test_one_thing_set_alike_under_several_names_is_fine(desk: Any) -> None:
    desk.user(
        "approval_policy = 'never'\n[tool_config]\napproval_policy = 'none'\n"
        "[tool_security]\napproval_policy = 'none'"
    )
    assert desk.load().value.approval_policy == "never"


def test_a_higher_layer_may_use_another_name(desk: Any) -> None:
    desk.user("[tool_config]\napproval_policy = 'none'")
    config = desk.load(overrides=["approval_policy=untrusted"])
    assert config.value.approval_policy == "untrusted"
    assert config.source("approval_policy") == "-c"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("none", "never"), ("required", "strict"), ("sandbox", "on-failure")],
)
def test_approval_presets(desk: Any, written: str, meant: str) -> None:
    for key in ("approval_policy", "tool_config.approval_policy", "tool_security.approval_policy"):
        desk.user(f'{key} = "{written}"')
        assert desk.load().value.approval_policy == meant


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1", 1),
        ("100_000", 100_000),
        ('"100MB"', 100_000_000),
        ('"100 mb"', 100_000_000),
        ('"64KiB"', 65_536),
        ('"1.5GB"', 1_500_000_000),
        ('"2GiB"', 2**31),
        ('"12"', 12),
        ('"12B"', 12),
    ],
)
def test_sizes(desk: Any, written: str, size: int) -> None:
    desk.user(f"[tool_security]\nmax_file_access_size = {written}")
    assert desk.load().value.tool_security.max_file_access_size == size


@pytest.mark.parametrize(
    "written", ['"100XB"', '"MB"', '""', '"-1MB"', "-1", "0", "1.5", '"1e3MB"', '"0MB"', "true"]
)
def test_sizes_that_are_none(desk: Any, written: str) -> None:
    desk.user(f"[tool_security]\nmax_file_access_size = {written}")
    assert "tool_security.max_file_access_size: " in desk.error()


@pytest.mark.parametrize("key", ["hidden_paths", "tools.disabled", "redact.names"])
@pytest.mark.parametrize("value", ["!x", "", "a\\u0000b"])
def test_patterns_that_would_take_back_or_say_nothing(desk: Any, key: str, value: str) -> None:
    desk.user(f'{key} = ["{value}"]')
    assert f"{key}: " in desk.error()


def test_a_broken_redaction_pattern_is_named_but_not_shown(desk: Any) -> None:
    desk.user('[redact]\npatterns = ["hunter2("]')
    message = desk.error()
    assert "redact.patterns: not a regular expression" in message
    assert "hunter2" not in message


_value = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
_name = st.one_of(
    st.text(max_size=6), st.sampled_from(sorted({part for key in known_keys() for part in key}))
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.dictionaries(_name, st.one_of(_value, st.dictionaries(_name, _value)), max_size=3))
def test_any_tables_load_or_are_a_config_error(desk: Any, tables: dict[str, Any]) -> None:
    given = {k if k.isidentifier() else f'"{k}"': v for k, v in tables.items()}
    with contextlib.suppress(ConfigError):
        assert default_config(given, env=desk.env).rows()
