"""The environment policy: what passes, what is withheld, what is forced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.config.secrets import is_secret_name
from toolrest.process.shells.environment import (
    CORE,
    EnvironmentPolicy,
    build,
    forced,
    matches,
    withhold,
)

SOURCE = {
    "PATH": "/bin",
    "HOME": "/h",
    "EDITOR": "vi",
    "GH_TOKEN": "t",
    "my_secret": "s",
    "OPENAI_API_KEY": "k",
    "SSH_AUTH_SOCK": "/s",
    "DOCKER_HOST": "d",
    "DBUS_SESSION_BUS_ADDRESS": "b",
    "TOOLREST_HOME": "/x",
    "MEMO_HOME": "/y",
}
SECRET = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "GH_TOKEN",
    "OPENAI_API_KEY",
    "SSH_AUTH_SOCK",
    "my_secret",
)


def test_secrets_are_withheld_by_default_and_named() -> None:
    built = build(EnvironmentPolicy(), SOURCE)
    assert built.variables == {"PATH": "/bin", "HOME": "/h", "EDITOR": "vi"}
    assert built.withheld == SECRET


def test_the_default_excludes_can_be_switched_off_but_for_provider_keys() -> None:
    built = build(EnvironmentPolicy(ignore_default_excludes=True), SOURCE)
    assert built.variables["GH_TOKEN"] == "t"
    assert built.withheld == ("OPENAI_API_KEY",)


KEYS = """
ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN AWS_BEARER_TOKEN_BEDROCK AZURE_OPENAI_API_KEY
CEREBRAS_API_KEY CLAUDE_CODE_OAUTH_TOKEN CODEX_API_KEY COHERE_API_KEY DASHSCOPE_API_KEY
DEEPSEEK_API_KEY FIREWORKS_API_KEY GEMINI_API_KEY GOOGLE_API_KEY GROQ_API_KEY HF_TOKEN
MISTRAL_API_KEY MOONSHOT_API_KEY OPENAI_API_KEY OPENROUTER_API_KEY TOGETHER_API_KEY
TOOLREST_API_KEY XAI_API_KEY
""".split()


def test_provider_keys_never_pass() -> None:
    keys = dict.fromkeys(KEYS, "key")
    given = keys | {name.lower(): "key" for name in KEYS}
    policy = EnvironmentPolicy(ignore_default_excludes=True, include_only=("*",), set=given)
    assert build(policy, keys).variables == {}


def test_the_session_s_own_key_never_passes() -> None:
    policy = EnvironmentPolicy(ignore_default_excludes=True)
    built = build(policy, {"MY_MODEL_PASS": "x", "A": "b"}, never=("MY_MODEL_PASS",))
    assert built.variables == {"A": "b"}
    assert built.withheld == ("MY_MODEL_PASS",)


def test_inherit() -> None:
    assert build(EnvironmentPolicy(inherit="none"), SOURCE).variables == {}
    core = build(EnvironmentPolicy(inherit="core"), SOURCE)
    assert core.variables == {"PATH": "/bin", "HOME": "/h"}
    assert set(core.variables) <= CORE
    assert "EDITOR" in core.withheld


def test_order_of_the_steps() -> None:
    policy = EnvironmentPolicy(
        exclude=("EDIT*",),
        set={"EDITOR": "ed", "GH_TOKEN": "given"},
        include_only=("e*", "gh?token"),
    )
    assert build(policy, SOURCE).variables == {"EDITOR": "ed", "GH_TOKEN": "given"}


def test_forced_variables_win() -> None:
    policy = EnvironmentPolicy(set={"PAGER": "less"}, include_only=("PAGER",))
    assert build(policy, {}, forced={"PAGER": "cat", "X": "1"}).variables == {
        "PAGER": "cat",
        "X": "1",
    }


def test_the_forced_variables_of_a_unified_command() -> None:
    assert forced(unified=True, thread_id="t-1") == {
        "NO_COLOR": "1",
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "LC_CTYPE": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "COLORTERM": "",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GH_PAGER": "cat",
        "TOOLREST_CI": "1",
        "TOOLREST_SANDBOX_NETWORK_DISABLED": "1",
        "TOOLREST_THREAD_ID": "t-1",
        "GIT_TERMINAL_PROMPT": "0",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    assert "GIT_TERMINAL_PROMPT" not in forced(unified=True, tty=True)
    assert "TOOLREST_SANDBOX_NETWORK_DISABLED" not in forced(unified=True, network=True)
    assert forced(unified=False, network=True) == {
        "GIT_TERMINAL_PROMPT": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "PAGER": "cat",
    }


@pytest.mark.parametrize(
    ("pattern", "name", "hit"),
    [
        ("AWS_*", "aws_region", True),
        ("A?C", "abc", True),
        ("A?C", "ac", False),
        ("[A]", "A", False),
        ("[A]", "[a]", True),
        ("A.C", "ABC", False),
        ("KEY", "MONKEY", False),
    ],
)
def test_patterns_know_two_wildcards_only(pattern: str, name: str, hit: bool) -> None:
    assert matches(name, (pattern,)) is hit


NAMES = st.text(st.sampled_from("AKEYSCRTON_x"), min_size=1, max_size=12)


@given(st.dictionaries(NAMES, st.text(max_size=5), max_size=10))
def test_everything_is_either_passed_or_named(source: dict[str, str]) -> None:
    built = build(EnvironmentPolicy(), source)
    assert set(built.variables) | set(built.withheld) == set(source)
    assert not any(map(is_secret_name, built.variables))
    assert all(built.variables[name] == source[name] for name in built.variables)


def test_withhold_judges_single_names() -> None:
    found = {"XA": "", "B": "", "B_TOKEN": "", "C": "http://me:secret@host"}
    assert withhold(EnvironmentPolicy(exclude=("X*",)), found) == {"XA", "B_TOKEN", "C"}
