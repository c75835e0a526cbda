from __future__ import annotations

from typing import Any

import pytest

from toolrest.config import family_for
from toolrest.config.schema.families import BUILT_IN, Truncation

BYTES, TOKENS = Truncation("bytes", 10_000), Truncation("tokens", 10_000)

ROWS = [
    ("o3", "shell", "function", BYTES, False, "responses"),
    ("o4-mini-high", "shell", "function", BYTES, False, "responses"),
    ("gpt-4.1", "shell", "function", BYTES, False, "responses"),
    ("gpt-4o-2024", "shell", "function", BYTES, False, "responses"),
    ("codex-mini-latest", "local_shell", "function", BYTES, False, "responses"),
    ("gpt-oss-120b", "shell", "function", BYTES, False, "responses"),
    ("openai/gpt-oss-20b", "shell", "function", BYTES, False, "responses"),
    ("test-gpt-5", "shell_command", "function", TOKENS, True, "responses"),
    ("exp-codex-1", "shell_command", "freeform", TOKENS, True, "responses"),
    ("exp-something", "unified_exec", "freeform", BYTES, True, "responses"),
    ("gpt-5.2-codex", "shell_command", "freeform", TOKENS, True, "responses"),
    ("gpt-5.1-codex-max", "shell_command", "freeform", TOKENS, False, "responses"),
    ("gpt-5-codex-mini", "shell_command", "freeform", TOKENS, False, "responses"),
    ("codex-auto-review", "shell_command", "freeform", TOKENS, False, "responses"),
    ("gpt-5.2", "shell_command", "freeform", BYTES, True, "responses"),
    ("gpt-5.1", "shell_command", "freeform", BYTES, True, "responses"),
    ("gpt-5.5", "unified_exec", "freeform", TOKENS, True, "responses"),
    ("gpt-5", "shell", "function", BYTES, False, "responses"),
    ("gpt-5-mini", "shell", "function", BYTES, False, "responses"),
    ("claude-sonnet-4-5", "unified_exec", "string_edits", None, True, "anthropic"),
    ("anthropic/claude-opus-4", "unified_exec", "string_edits", None, True, "anthropic"),
    ("Qwen/Qwen3-Coder", "unified_exec", "string_edits", None, False, "chat"),
    ("mystery", "unified_exec", "function", None, False, "responses"),
    ("", "unified_exec", "function", None, False, "responses"),
    (None, "unified_exec", "function", None, False, "responses"),
]


@pytest.mark.parametrize(("model", "shell", "patch", "truncation", "parallel", "wire"), ROWS)
def test_the_table(
    model: str | None,
    shell: str,
    patch: str,
    truncation: Truncation | None,
    parallel: bool,
    wire: str,
) -> None:
    family = family_for(model)
    assert (family.shell, family.patch, family.truncation) == (shell, patch, truncation)
    assert (family.parallel, family.wire) == (parallel, wire)


def test_every_built_in_row_can_be_reached() -> None:
    for row in BUILT_IN:
        for prefix in row.prefixes:
            assert family_for(prefix) is row


def test_the_users_rows_come_first_and_are_filled_up(desk: Any) -> None:
    desk.user(
        'model = "gpt-5-house"\n'
        "[model_families.house]\n"
        'prefixes = ["gpt-5-house", "house/"]\n'
        'like = "claude"\n'
        "parallel = false\n"
        'truncation = { mode = "bytes", limit = 500 }\n'
    )
    family = desk.load().family
    assert family.name == "house"
    assert (family.wire, family.patch, family.parallel) == ("anthropic", "string_edits", False)
    assert family.truncation == Truncation("bytes", 500)
    assert desk.load(overrides=["model=house/7b"]).family.name == "house"
    assert desk.load(overrides=["model=gpt-5"]).family.name == "gpt-5"


def test_a_row_without_prefixes_is_about_its_own_name(desk: Any) -> None:
    desk.user('[model_families."gpt-5.2"]\nshell = "default"')
    family = desk.load(overrides=["model=gpt-5.2-preview"]).family
    assert (family.shell, family.patch, family.parallel) == ("shell", "freeform", True)


def test_a_family_can_be_named(desk: Any) -> None:
    config = desk.load(overrides=["model=mystery", "model_family=qwen"])
    assert config.family.wire == "chat"
    assert "model_family: no model family is called 'quen'" in desk.error(
        overrides=["model_family=quen"]
    )
    assert "model_families.x.like" in desk.error(overrides=["model_families.x.like=nope"])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5", Truncation("bytes", 800)),
        ("gpt-5-codex", Truncation("tokens", 200)),
        ("mystery", Truncation("tokens", 200)),
    ],
)
def test_tool_output_token_limit_replaces_the_familys(
    desk: Any, model: str, expected: Truncation
) -> None:
    config = desk.load(overrides=[f"model={model}", "tool_output_token_limit=200"])
    assert config.family.truncation == expected


def test_a_truncation_needs_mode_and_limit(desk: Any) -> None:
    desk.user('[model_families.x]\ntruncation = { mode = "bytes" }')
    assert "model_families.x.truncation.limit is missing" in desk.error()


def test_a_model_of_no_family_is_a_warning(desk: Any) -> None:
    (warning,) = desk.load(overrides=["model=mystery"]).warnings
    assert "Unknown model 'mystery': using default tools" in warning
    assert desk.load(overrides=["model=mystery", "model_family=unknown"]).warnings == ()
    assert desk.load(overrides=["model=claude-x"]).warnings == ()
