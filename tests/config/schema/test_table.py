"""Tables of settings: what they hold, what they refuse, and that they cost nothing to have."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.config.layer_check import known_keys
from toolrest.config.schema.mcp import McpServer
from toolrest.config.schema.security import HookRow
from toolrest.config.schema.settings import Settings
from toolrest.config.schema.table import Table, TableError
from toolrest.config.schema.tools import Tools
from toolrest.config.schema.validate import check_table
from toolrest.errors import ConfigError


def problems(table: type[Table], raw: Any) -> list[str]:
    with pytest.raises(TableError) as caught:
        check_table(table, raw)
    return [f"{'.'.join(map(str, each.path))}: {each}" for each in caught.value.problems]


def test_a_table_knows_what_was_set_and_has_defaults_for_the_rest() -> None:
    tools = check_table(Tools, {"disabled": ["a"], "include_plan_tool": True})
    assert tools.disabled == ("a",)
    assert tools.shell_type == "family"
    assert tools.given() == {"disabled": ("a",), "include_plan_tool": True}
    assert tools.as_dict(set_only=True) == tools.given()
    assert tools.as_dict().keys() == Tools.fields().keys()
    assert tools == Tools(disabled=("a",)) != Tools()
    assert repr(tools) == "Tools(disabled, include_plan_tool)"  # a value may hold a key


def test_a_table_does_not_change() -> None:
    tools = Tools()
    with pytest.raises(AttributeError, match=r"replace\(\)"):
        tools.disabled = ("a",)  # type: ignore[misc]
    with pytest.raises(AttributeError, match=r"replace\(\)"):
        del tools.disabled
    other = tools.replace(disabled=("a",))
    assert (tools.disabled, other.disabled) == ((), ("a",))
    assert other.given() == {"disabled": ("a",)}
    assert copy.deepcopy(other) == other == pickle.loads(pickle.dumps(other))


def test_a_table_made_by_hand_has_its_own_fields_and_all_that_are_needed() -> None:
    with pytest.raises(TypeError, match="nope"):
        Tools(nope=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="command"):
        HookRow()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nope"):
        Tools().replace(nope=1)


def test_inner_tables_are_told_apart_from_defaults_too() -> None:
    row = {"hooks": {"Stop": [{"command": ["a"]}]}, "mcp_servers": {"s": {"command": "x"}}}
    settings = check_table(Settings, row)
    assert settings.as_dict(set_only=True) == {
        "hooks": {"Stop": ({"command": ("a",)},)},
        "mcp_servers": {"s": {"command": "x"}},
    }
    assert settings.hooks.Stop[0].timeout_sec == 60.0
    assert settings.as_dict()["mcp_servers"]["s"]["tool_timeout_sec"] == 60.0


class Mode(StrEnum):
    NEVER = "never"


class Number(int):
    pass


def test_what_counts_as_the_same_type_becomes_that_type() -> None:
    raw = {"model": Mode.NEVER, "approval_policy": Mode.NEVER, "max_turns": Number(3)}
    values = check_table(Settings, raw | {"tool_timeout_sec": 3}).given()
    assert {name: type(value) for name, value in values.items()} == {
        "model": str,
        "approval_policy": str,
        "max_turns": int,
        "tool_timeout_sec": float,
    }


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"model": "\udc80"}, "model: expected a text of whole characters"),
        ({"model": b"x"}, "model: expected a text in quotes"),
        ({"model_provider": None}, "model_provider: expected a text in quotes"),
        ({"hidden_paths": {"a"}}, "hidden_paths: expected a list"),
        ({"hidden_paths": (x for x in "a")}, "hidden_paths: expected a list"),
        ({"max_turns": True}, "max_turns: expected a whole number"),
        ({"max_turns": 3.0}, "max_turns: expected a whole number"),
        ({"tool_timeout_sec": True}, "tool_timeout_sec: expected a number"),
        ({"tool_timeout_sec": 10**400}, "tool_timeout_sec: expected a number"),
        ({"tool_timeout_sec": math.nan}, "tool_timeout_sec: expected a finite number"),
        ({"tools": {1: 2}}, "tools.1: unknown key"),
        ({"tools": {"limits": {1: 2}}}, "tools.limits: expected names that are texts"),
        (3, ": expected a table"),
    ],
)
def test_what_only_a_program_can_pass(raw: Any, said: str) -> None:
    assert problems(Settings, raw) == [said]


def test_either_of_two_types_is_said_in_one_line() -> None:
    assert check_table(McpServer, {"network": ["a"]}).network == ("a",)
    assert check_table(McpServer, {"network": False}).network is False
    assert problems(McpServer, {"network": 3}) == ["network: expected true or false or a list"]
    assert problems(McpServer, {"network": ["a", 3]}) == ["network.1: expected a text in quotes"]


def test_the_error_can_be_shown_as_it_is() -> None:
    with pytest.raises(ConfigError) as caught:
        check_table(McpServer, {"command": 3, "nope": 1})
    assert str(caught.value) == "command: expected a text in quotes\nnope: unknown key"


_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["never", "shell", "1KB", "allow", "auto", "bytes"]),
    st.binary(max_size=2),
)
_names = st.sampled_from(sorted({part for key in known_keys() for part in key}))
_any = st.recursive(
    _plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.one_of(_names, _plain), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def _rows(draw: st.DrawFn) -> tuple[type[Table], dict[str, Any]]:
    table: type[Table] = draw(st.sampled_from([Settings, Tools, McpServer, HookRow]))
    names = st.sampled_from(sorted(table.__annotations__))
    return table, draw(st.dictionaries(names, _any, max_size=4))


@given(_rows())
def test_what_is_taken_is_taken_again_and_the_rest_is_an_error(
    drawn: tuple[type[Table], dict[str, Any]],
) -> None:
    table, raw = drawn
    try:
        checked = check_table(table, raw)
    except TableError:
        return
    assert check_table(table, checked.as_dict(set_only=True)) == checked
    assert check_table(table, checked.as_dict()) == checked
    assert check_table(table, checked.as_dict(set_only=True)).given() == checked.given()


def test_settings_are_read_without_pydantic(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('model = "gpt-5.2"\n[tools]\ndisabled = ["x"]\n[mcp_servers.a]\ncommand = "c"')
    file.chmod(0o600)
    script = (
        "import sys\n"
        "from toolrest.config.loader import load\n"
        "without = load(home=sys.argv[1] + '/nowhere')\n"
        "assert not {'tomllib', 'difflib'} & sys.modules.keys()\n"
        "assert load(home=sys.argv[1]).value.tools.disabled == ('x',)\n"
        "assert not {'pydantic', 'pydantic_core', 'tomlkit'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
