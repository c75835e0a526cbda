"""Hosts are parsed before they are compared, and compared label by label (S12)."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.errors import ConfigError
from toolrest.sandbox.network.hosts import Allowlist, BadHost, is_public, parse_host

BAD = [
    "",
    ".",
    "..",
    "a..b",
    ".example.com",
    "example.com..",
    "evil\0.example.com",
    "evil .example.com",
    "evil\t.com",
    "evil\n.com",
    "evil\r\n.com",
    "evil\x7f.com",
    "evil\u200b.com",
    "evil\u2028.com",
    "evil/.example.com",
    "evil@example.com",
    "evil:80",
    "evil#.com",
    "evil?.com",
    "evil%2ecom",
    "127.1",
    "0x7f.1",
    "2130706433",
    "0177.0.0.1",
    "1.2.3.4.5",
    "-a.com",
    "a-.com",
    "a" * 64 + ".com",
    "a." * 130 + "com",
    "fe80::1%eth0",
    "[::1",
    "*.example.com",
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(BadHost):
        parse_host(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("example\u3002com", "example.com"),
        ("\uff45xample.com", "example.com"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("localhost", "localhost"),
    ],
)
def test_one_spelling(text: str, host: str) -> None:
    assert parse_host(text) == host
    assert parse_host(host) == host


def test_an_empty_list_allows_nothing() -> None:
    nothing = Allowlist([])
    assert not nothing.allows_name("example.com", 443)
    assert not nothing.allows_name("93.184.216.34", 443)


def test_a_list_within_another_allows_what_both_do() -> None:
    within = Allowlist(["a.example", "b.example", "10.0.0.1"], within=Allowlist(["b.example:443"]))
    assert within.allows_name("b.example", 443)
    assert not within.allows_name("b.example", 80)
    assert not within.allows_name("a.example", 443)
    assert not within.allows_name("10.0.0.1", 443)


@pytest.mark.parametrize(
    ("entry", "host", "port", "allowed"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "notexample.com", 443, False),
        ("example.com", "example.com.evil.net", 443, False),
        ("*.example.com", "www.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("example.com:443", "example.com", 22, False),
        ("*", "anything.net", 1, True),
        ("*", "8.8.8.8", 53, False),
        ("8.8.8.8", "8.8.8.8", 53, True),
        ("8.8.8.0/24", "8.8.8.8", 53, True),
        ("BÜCHER.example", "xn--bcher-kva.example", 443, True),
        ("localhost", "localhost", 80, True),
    ],
)
def test_matching(entry: str, host: str, port: int, allowed: bool) -> None:
    assert Allowlist([entry]).allows_name(host, port) is allowed


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1",
        "::127.0.0.1",
        "::ffff:0:10.0.0.1",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)
def test_private_addresses_need_their_own_entry(text: str) -> None:
    address = ipaddress.ip_address(text)
    assert not is_public(address)
    assert not Allowlist(["*"]).allows_address(address, 80)
    assert Allowlist([text]).allows_address(address, 80)


def test_public_addresses() -> None:
    assert is_public(ipaddress.ip_address("93.184.216.34"))
    assert is_public(ipaddress.ip_address("2606:2800:220:1::1"))


def test_localhost_stands_for_its_addresses() -> None:
    allowlist = Allowlist(["localhost:8080"])
    assert allowlist.allows_address(ipaddress.ip_address("127.0.0.1"), 8080)
    assert not allowlist.allows_address(ipaddress.ip_address("127.0.0.1"), 80)
    assert not allowlist.allows_address(ipaddress.ip_address("10.0.0.1"), 8080)


@pytest.mark.parametrize(
    "entry", ["", "a b", "http://x", "*.*.com", "a*.com", "x:0", "1/2/3", "*.1.2.3.4"]
)
def test_bad_entries_are_named(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed_network_domains"):
        Allowlist([entry])


@given(st.text(max_size=60))
def test_any_text_is_a_host_or_refused(text: str) -> None:
    try:
        host = parse_host(text)
    except BadHost:
        return
    assert parse_host(host) == host
    assert host.isascii()
    assert host == host.lower()
    assert not any(c.isspace() or not c.isprintable() for c in host)


@given(st.text(max_size=30))
def test_nothing_but_names_beneath_match(text: str) -> None:
    """Whatever is put in front, only a whole label before the listed name counts."""
    try:
        host = parse_host(text + "ok.test")
    except BadHost:
        return
    allowed = Allowlist(["*.ok.test"]).allows_name(host, 443)
    assert allowed == (host.endswith(".ok.test"))


def test_a_denied_name_is_denied_whatever_is_listed() -> None:
    listed = Allowlist(["*", "model.test"], denied=["model.test"])
    assert listed.allows_name("other.test", 443)
    assert not listed.allows_name("model.test", 443)
