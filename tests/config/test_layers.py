from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolrest.config import Config, default_config, load
from toolrest.errors import ConfigError

LAYERS = ("user", "project", "profile table", "profile file", "environment", "flag", "-c")


def put(desk: Any, layers: set[str], value_of: Callable[[str], int]) -> Config:
    """Set one number in each of the layers and load."""
    user = f"tool_result_max_chars = {value_of('user')}" if "user" in layers else ""
    if "profile table" in layers:
        user += f"\n[profiles.p]\ntool_result_max_chars = {value_of('profile table')}"
    desk.trusting(user)
    if "profile file" in layers:
        text = f"tool_result_max_chars = {value_of('profile file')}"
        (desk.home / "p.config.toml").write_text(text)
    if "project" in layers:
        desk.project(f"tool_result_max_chars = {value_of('project')}")
    env = dict(desk.env)
    if "environment" in layers:
        env["TOOLREST_TOOL_RESULT_MAX_CHARS"] = str(value_of("environment"))
    config: Config = desk.load(
        env=env,
        flags={"tool_result_max_chars": value_of("flag") if "flag" in layers else None},
        overrides=[f"tool_result_max_chars={value_of('-c')}"] if "-c" in layers else [],
        profile="p" if {"profile table", "profile file"} & layers else None,
    )
    return config


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sets(st.sampled_from(LAYERS)))
def test_the_highest_layer_that_sets_a_value_wins(
    new_desk: Callable[[], Any], layers: set[str]
) -> None:
    desk = new_desk()
    # Falling, because a project may lower what the user has set and not raise it.
    config = put(desk, layers, lambda name: 9000 - LAYERS.index(name))
    highest = max(layers, key=LAYERS.index, default=None)
    expected = None if highest is None else 9000 - LAYERS.index(highest)
    assert config.value.tool_result_max_chars == expected
    source = {
        None: "default",
        "user": str(desk.file),
        "project": str(desk.project_file),
        "profile table": f"profile p ({desk.file})",
        "profile file": str(desk.home / "p.config.toml"),
        "environment": "environment variable TOOLREST_TOOL_RESULT_MAX_CHARS",
        "flag": "flag",
        "-c": "-c",
    }[highest]
    assert config.source("tool_result_max_chars") == source


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(("user", "project", "profile", "flag", "-c")),
        st.tuples(st.sets(st.sampled_from("abcd")), st.integers(1, 99)),
    )
)
def test_what_any_layer_forbids_stays_forbidden(
    new_desk: Callable[[], Any], layers: dict[str, tuple[set[str], int]]
) -> None:
    desk = new_desk()

    def text(name: str) -> str:
        if name not in layers:
            return ""
        names, ceiling = layers[name]
        if name == "project" and "user" in layers:
            ceiling = min(ceiling, layers["user"][1])
        return f"tools.disabled = {sorted(names)}\nmax_calls_per_session = {ceiling}\n"

    desk.trusting(text("user"))
    desk.project(text("project"))
    (desk.home / "p.config.toml").write_text(text("profile"))
    flag = layers.get("flag")
    override = layers.get("-c")
    config = desk.load(
        profile="p",
        flags={"tools.disabled": sorted(flag[0]), "max_calls_per_session": flag[1]} if flag else {},
        overrides=[f"tools.disabled={sorted(override[0])}", f"max_calls_per_session={override[1]}"]
        if override
        else [],
    )
    assert set(config.value.tools.disabled) == set().union(*(names for names, _ in layers.values()))
    lowest = min((ceiling for _, ceiling in layers.values()), default=None)
    assert config.value.max_calls_per_session == lowest


def test_an_absent_home_gives_the_defaults(desk: Any) -> None:
    desk.home.rmdir()
    config = desk.load()
    assert config.value.approval_policy == "on-request"
    assert config.value.sandbox_mode == "workspace-write"
    assert config.value.on_ask == "deny"
    assert config.value.tool_security.max_file_access_size == 100_000_000
    assert config.warnings == ()
    assert config.files == ()
    assert not desk.home.exists()
    assert {row.source for row in config.rows()} == {"default"}


def test_the_command_line_may_write_only_in_a_trusted_folder(desk: Any) -> None:
    config = desk.load(surface="cli")
    assert config.value.sandbox_mode == "read-only"
    assert config.source("sandbox_mode") == "default in an untrusted folder"
    desk.trusting()
    config = desk.load(surface="cli")
    assert config.value.sandbox_mode == "workspace-write"
    assert config.source("sandbox_mode") == "default in a trusted folder"
    assert desk.load(surface="cli", workspace=None).value.sandbox_mode == "read-only"


def test_home_comes_from_the_variable_else_the_users_home(desk: Any) -> None:
    desk.user('model = "from-user-home"')
    assert load(env=desk.env).value.model == "from-user-home"
    other = desk.user_home / "elsewhere"
    other.mkdir()
    (other / "config.toml").write_text('model = "elsewhere"')
    for spelled in (str(other), "~/elsewhere"):
        config = load(env={**desk.env, "TOOLREST_HOME": spelled})
        assert config.value.model == "elsewhere"
        assert config.home == str(other)


def test_a_relative_home_is_refused(desk: Any) -> None:
    with pytest.raises(ConfigError, match=r"TOOLREST_HOME.*absolute"):
        load(env={**desk.env, "TOOLREST_HOME": ".toolrest"})


def test_the_default_config_reads_no_file(desk: Any) -> None:
    desk.user("this is not TOML")
    config = default_config(
        {"tools": {"disabled": ["shell"]}, "tools.limits.read_file": 500, "model": None},
        home=desk.home,
        workspace=desk.workspace,
        env={**desk.env, "TOOLREST_ENABLE_MEMORY_TOOL": "0"},
    )
    assert config.value.tools.disabled == ("shell",)
    assert config.value.tools.limits == {"read_file": 500}
    assert config.value.tools.include_memory_tool is False
    assert config.source("tools.disabled") == "argument"
    assert not config.trusted


def test_overrides_read_toml_and_fall_back_to_text(desk: Any) -> None:
    config = desk.load(
        overrides=[
            "model=gpt-5",
            "tool_timeout_sec=2.5",
            'tools.disabled=["a", "b*"]',
            "sandbox_workspace_write={network_access = true}",
            "sandbox_workspace_write.exclude_slash_tmp=true",
            'tools.limits."odd name"=7',
            "max_parallel_calls = 3",
        ]
    )
    assert config.value.model == "gpt-5"
    assert config.value.tool_timeout_sec == 2.5
    assert config.value.tools.disabled == ("a", "b*")
    assert config.value.sandbox_workspace_write.network_access is True
    assert config.value.sandbox_workspace_write.exclude_slash_tmp is True
    assert config.value.tools.limits == {"odd name": 7}
    assert config.value.max_parallel_calls == 3


def test_of_two_overrides_the_last_counts(desk: Any) -> None:
    assert desk.load(overrides=["model=a", "model='b'"]).value.model == "b"


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("model", "KEY=VALUE"),
        ("=x", "KEY=VALUE"),
        ("a..b=1", "is not a key"),
        ("a b=1", "is not a key"),
        ("mod\nel=1", "is not a key"),
        ("modle=x", "did you mean model?"),
        ("model=3", "model='\"…\"'"),
        ("model=" + "[" * 5000, "expected at most 4096 characters"),
        ("model=x\ny=3", None),
        ("profiles.x.model=y", "only be set in the user's config.toml"),
        ('projects."/".trust_level="trusted"', "only be set in the user's config.toml"),
        (".".join(["a"] * 40) + "=1", "nested deeper"),
    ],
)
def test_odd_overrides_are_answered(desk: Any, override: str, part: str | None) -> None:
    if part is None:
        assert desk.load(overrides=[override]).value.model == "x\ny=3"
    else:
        assert part in desk.error(overrides=[override])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(max_size=60))
def test_no_override_raises_anything_but_a_config_error(desk: Any, text: str) -> None:
    for override in (text, f"model={text}", f"{text}=1", f"tools.{text}={text}"):
        with contextlib.suppress(ConfigError):
            assert desk.load(overrides=[override]).rows()


def test_a_ceiling_that_cannot_be_raised_says_so(desk: Any) -> None:
    desk.user("max_calls_per_session = 5")
    config = desk.load(overrides=["max_calls_per_session=50"])
    assert config.value.max_calls_per_session == 5
    assert config.source("max_calls_per_session") == str(desk.file)
    (warning,) = config.warnings
    assert "max_calls_per_session = 50 (-c)" in warning
    assert str(desk.file) in warning


def test_a_list_from_two_layers_names_both(desk: Any) -> None:
    desk.user('hidden_paths = ["~/secrets/**"]')
    config = desk.load(overrides=['hidden_paths=["*.pem"]'])
    assert config.value.hidden_paths == (f"{desk.user_home}/secrets/**", "*.pem")
    assert config.source("hidden_paths") == f"{desk.file} + -c"


def test_profiles_are_chosen_by_argument_override_or_key(desk: Any) -> None:
    desk.user('profile = "a"\n[profiles.a]\nmodel = "A"\n[profiles.b]\nmodel = "B"\n')
    assert desk.load().value.model == "A"
    assert desk.load(overrides=["profile=b"]).value.model == "B"
    config = desk.load(profile="b", overrides=["profile=a"])
    assert config.value.model == "B"
    assert config.value.profile == "b"
    assert config.source("profile") == "--profile"


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a.b", "no\nsuch", "missing"])
def test_a_profile_that_is_not_there_is_an_error(desk: Any, name: str) -> None:
    if name:
        assert "profile" in desk.error(profile=name)


def test_every_profile_is_checked_even_when_not_chosen(desk: Any) -> None:
    desk.user("[profiles.other]\nmodle = 'x'")
    message = desk.error()
    assert "profiles.other" in message
    assert "did you mean model?" in message
    desk.user("[profiles.other]\nprofile = 'x'")
    assert "cannot choose another profile" in desk.error()


def test_paths_are_absolute_afterwards(desk: Any) -> None:
    desk.user('read_roots = ["~/a", "/b/../c"]\n[tool_security]\naudit_log_path = "~/log"')
    config = desk.load(overrides=['sandbox_workspace_write.writable_roots=["out", "~"]'])
    assert config.value.read_roots == (f"{desk.user_home}/a", "/c")
    assert config.audit_place == (str(desk.user_home), "log")
    roots = config.value.sandbox_workspace_write.writable_roots
    assert roots == (f"{desk.workspace}/out", str(desk.user_home))
    desk.user('read_roots = ["a"]')
    assert "read_roots" in (message := desk.error())
    assert "relative" in message


def test_the_audit_folder_is_in_the_home_by_default(desk: Any) -> None:
    assert desk.load().audit_place == (f"{desk.home}/audit", "")


def test_the_audit_path_is_a_folder_only_when_it_ends_so_or_is_one(desk: Any) -> None:
    for path, place in {
        "~/.codex/audit.log": (f"{desk.user_home}/.codex", "audit.log"),
        "~/logs/": (f"{desk.user_home}/logs", ""),
        str(desk.workspace): (str(desk.workspace), ""),
    }.items():
        desk.user(f'[tool_security]\naudit_log_path = "{path}"')
        assert desk.load().audit_place == place


def test_rows_show_every_key_and_no_secret(desk: Any) -> None:
    desk.user(
        'max_tokens = 5\n[redact]\npatterns = ["hunter2-[0-9]+"]\nnames = ["MY_*"]\n[profiles.p]\n'
    )
    config = desk.load()
    rows = {row.key: row for row in config.rows()}
    assert rows["redact.patterns"].text == "(1 hidden)"
    assert rows["redact.names"].text == '["MY_*"]'
    assert rows["max_tokens"].text == "5"
    assert rows["redact.names"].source == str(desk.file)
    assert rows["sandbox_mode"].text == '"workspace-write"'
    assert rows["model"].text == "unset"
    assert "hunter2" not in repr(config.rows())
    assert config.value.redact.patterns == ("hunter2-[0-9]+",)


def test_get_takes_every_spelling(desk: Any) -> None:
    desk.user('[tool_security]\napproval_policy = "none"')
    config = desk.load()
    for key in ("approval_policy", "tool_config.approval_policy", "tool_security.approval_policy"):
        assert config.get(key).value == "never"
        assert config.source(key) == f"{desk.file} (tool_security.approval_policy)"
    with pytest.raises(ConfigError, match="is a table"):
        config.get("tools")
    with pytest.raises(ConfigError, match=r"did you mean tools\.disabled"):
        config.get("tools.disable")


def test_a_file_that_others_can_write_is_reported(desk: Any) -> None:
    desk.user('on_ask = "fail"')
    desk.file.chmod(0o666)
    (warning,) = desk.load().warnings
    assert "can be written by other users" in warning


def test_a_workspace_that_is_no_path_is_an_error(desk: Any) -> None:
    assert "is not a path" in desk.error(workspace="a\0b")


def test_light_parts_do_not_load_pydantic() -> None:
    script = (
        "import sys, toolrest.config, toolrest.config.schema.families, toolrest.config.trust\n"
        "assert not {'pydantic', 'tomlkit', 'tomllib'} & sys.modules.keys(), sys.modules.keys()\n"
        "from toolrest.config import *\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
