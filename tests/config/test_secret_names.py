from __future__ import annotations

import pytest

from toolrest.config.secrets import is_secret_name


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "openai_api_key",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "PGPASSWORD",
        "MYSQL_PASSWD",
        "GPG_PASSPHRASE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "DBUS_SESSION_BUS_ADDRESS",
        "GITHUB_PAT",
        "BW_SESSION",
        "ANTHROPIC_AUTH_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "HF_TOKEN",
        "TOOLREST_API_KEY",
    ],
)
def test_names_that_count(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "LANG", "TERM", "PATCH", "MY_DOCKER_HOST_2", ""])
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_other_patterns_may_be_given() -> None:
    assert is_secret_name("my_thing", ["MY_*"])
    assert not is_secret_name("A_TOKEN", ["MY_*"])
    assert not is_secret_name("A_TOKEN", [])
