"""The one parser of http and https URLs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.secret import Secret
from toolrest.urls import HttpUrl, UnsupportedScheme, parse_url


def test_a_url_in_parts() -> None:
    assert parse_url("https://H/a?q=1#x") == HttpUrl("https", "h", 443, "/a?q=1")
    assert parse_url("http://me:p%40ss@h").user == Secret("me:p@ss")
    assert parse_url("https://h/a b?q=ü").target == "/a%20b?q=%C3%BC"
    assert parse_url("https://h/a%20b?q=%C3%BC").target == "/a%20b?q=%C3%BC"


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        ("http://[::1]:8080/v1", "[::1]:8080"),
        ("http://h:80", "h"),
        ("https://h:80", "h:80"),
        ("https://h:443/", "h"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_host_header(text: str, authority: str) -> None:
    assert parse_url(text).authority == authority


def test_what_may_be_secret_is_not_shown() -> None:
    assert parse_url("https://me:pw@h:1/a?key=x").without_query == "https://h:1/a"


@pytest.mark.parametrize("text", ["http:///x", "http://h:99999/", "http://h:0/", "http://[::1/"])
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_url(text)


@pytest.mark.parametrize(("text", "scheme"), [("ftp://h/", "ftp"), ("nonsense", "")])
def test_other_schemes_are_named(text: str, scheme: str) -> None:
    with pytest.raises(UnsupportedScheme, match="not an http:// or https:// address") as refused:
        parse_url(text)
    assert refused.value.scheme == scheme


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_a_value_error(text: str) -> None:
    for candidate in (text, f"http://{text}", f"https://h/{text}"):
        try:
            url = parse_url(candidate)
            again = parse_url(str(url))
        except ValueError:
            continue
        assert (again.host, again.port) == (parse_url(url.origin).host, url.port)
        assert url.target.isascii()
