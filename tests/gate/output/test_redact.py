from __future__ import annotations

import base64
import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.errors import ConfigError
from toolrest.gate.output.redact import Redactor
from toolrest.gate.output.secret_values import WINDOW, PatternStage, compile_pattern

SECRET = 'pa"ss\\wörd +/=&?\n key'


def test_a_value_becomes_its_name() -> None:
    redactor = Redactor({"API_KEY": "sk-12345678", "DB_PASSWORD": "correct horse"})
    assert (
        redactor.redact("key=sk-12345678 pw='correct horse' sk-1234567")
        == "key=[redacted:API_KEY] pw='[redacted:DB_PASSWORD]' sk-1234567"
    )


def test_with_no_secrets_text_is_the_same_object() -> None:
    text = "x" * 1000
    redactor = Redactor({})
    assert not redactor.active
    assert redactor.redact(text) is text
    assert redactor.stream().feed(text) is text
    assert redactor.stream().flush() == ""
    value = {"a": [text]}
    assert redactor.redact_json(value) is value


@pytest.mark.parametrize("value", ["", "short", "1234567", "   1234567   "])
def test_short_values_are_no_secrets(value: str) -> None:
    assert not Redactor({"API_KEY": value}).active


@pytest.mark.parametrize(
    "value",
    [
        "/tmp/ssh-XXXX/agent.123",
        "~/keys/id_rsa",
        "./secrets.json",
        "../here/secrets.json",
        "unix:///tmp/docker.sock",
        "unix:path=/tmp/bus,guid=0123456789abcdef",
        "file:///tmp/x/secrets.json",
    ],
)
def test_paths_are_no_secrets(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    (here / "keys").mkdir(parents=True)
    (here / "keys" / "id_rsa").touch()
    (here / "secrets.json").touch()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here))
    assert not Redactor({"SSH_AUTH_SOCK": value}).active


@pytest.mark.parametrize(
    "value",
    [
        "~Xk39#kk2aa",
        "~/Xk39#kk2aa",
        "./hunter2hunter2",
        "../hunter2hunter2",
        "file:abcdef123",
        "unix:hunter2hunter2",
        "C:\\hunter2hunter2",
        "here-is-a-file",
    ],
)
def test_what_only_looks_like_a_path_is_a_secret(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here-is-a-file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Redactor({"DB_PASSWORD": value}).redact(f"<{value}>") == "<[redacted:DB_PASSWORD]>"


def test_a_key_that_starts_with_a_slash_is_no_path() -> None:
    key = "/9jK+xQ2h7Zr/abcdefghijklmnop"
    assert Redactor({"AWS_SECRET": key}).redact(f"<{key}>") == "<[redacted:AWS_SECRET]>"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        SECRET.replace("\n", "\r\n"),
    ],
)
def test_other_spellings_are_found(form: str) -> None:
    redacted = Redactor({"MY_SECRET": SECRET}).redact(f"before {form} after")
    assert redacted == "before [redacted:MY_SECRET] after"


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_base64_is_found_inside_a_longer_text(before: bytes, after: bytes) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz012345"
    text = base64.b64encode(before + key.encode() + after).decode()
    redacted = Redactor({"K": key}).redact(text)
    assert "[redacted:K]" in redacted
    # What is left are the characters that also hold bits of the neighbours.
    left = redacted.replace("[redacted:K]", "")
    assert len(left) <= len(base64.b64encode(before)) + len(base64.b64encode(after)) + 8


def test_basic_authentication_is_covered() -> None:
    token = base64.b64encode(b"user:hunter2-hunter2").decode()
    assert "[redacted:PASSWORD]" in Redactor({"PASSWORD": "hunter2-hunter2"}).redact(token)


def test_the_lines_of_a_key_are_found_one_by_one() -> None:
    lines = ["MIIEpAIBAAKCAQEA75", "k1f0JmHqPq9cWqdT7e", "Zy2mE6oGk0wIDAQAB=="]
    pem = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(lines) + "\n-----END PRIVATE KEY-----\n"
    redactor = Redactor({"SIGNING_KEY": pem})
    assert redactor.redact(pem) == "[redacted:SIGNING_KEY]\n"
    numbered = "\n".join(f"L{number}: {line}" for number, line in enumerate(lines, 1))
    assert redactor.redact(numbered) == "\n".join(
        f"L{number}: [redacted:SIGNING_KEY]" for number in (1, 2, 3)
    )


def test_the_longest_wins_and_overlaps_are_covered_whole() -> None:
    redactor = Redactor({"A": "abcdefgh", "B": "efghijkl", "C": "abcdefghijkl", "D": "zzzzzzzz"})
    assert redactor.redact("abcdefghijkl") == "[redacted:C]"
    assert redactor.redact("_efghijkl_") == "_[redacted:B]_"
    assert redactor.redact("abcdefghabcdefgh") == "[redacted:A][redacted:A]"
    assert redactor.redact("z" * 11) == "[redacted:D]"
    two = Redactor({"A": "abcdefgh", "B": "efghijkl"})
    assert two.redact("-abcdefghijkl-") == "-[redacted:A][redacted:B]-"


def test_one_value_of_two_names_has_one_label() -> None:
    assert Redactor({"B": "same-value", "A": "same-value"}).redact("same-value") == "[redacted:A]"


def test_a_name_cannot_break_the_label() -> None:
    assert Redactor({"A]\nB": "some-value"}).redact("some-value") == "[redacted:A__B]"


def test_from_env_takes_the_names_that_count() -> None:
    environ = {
        "OPENAI_API_KEY": "sk-aaaaaaaaaa",
        "github_token": "ghp_bbbbbbbb",
        "MY_PASSWD": "cccccccccc",
        "HOME": "/home/someone",
        "EDITOR": "vim-of-mine",
        "SSH_AUTH_SOCK": "/tmp/agent.sock",
        "SHORT_KEY": "abc",
        "EXTRA_THING": "dddddddddd",
    }
    text = "\n".join(environ.values())
    assert Redactor.from_env(environ).redact(text).split("\n") == [
        "[redacted:OPENAI_API_KEY]",
        "[redacted:github_token]",
        "[redacted:MY_PASSWD]",
        "/home/someone",
        "vim-of-mine",
        "/tmp/agent.sock",
        "abc",
        "dddddddddd",
    ]
    only = Redactor.from_env(environ, names=["EXTRA_*"])
    assert only.redact("dddddddddd sk-aaaaaaaaaa") == "[redacted:EXTRA_THING] sk-aaaaaaaaaa"


# Few letters, so that occurrences, overlaps and near misses are the rule.
letters = st.text("ab", min_size=8, max_size=14)
secret_sets = st.lists(letters, min_size=1, max_size=4).map(
    lambda values: {f"S{number}": value for number, value in enumerate(values)}
)


def _chunked(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    return [text[start:end] for start, end in pairwise(edges)]


@given(secret_sets, st.data(), st.lists(st.integers(0, 500), max_size=20))
def test_any_chunking_gives_the_redacted_whole(
    secrets: dict[str, str], data: st.DataObject, cuts: list[int]
) -> None:
    pieces = st.one_of(st.sampled_from(sorted(secrets.values())), st.text("abc", max_size=9))
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    redactor = Redactor(secrets)
    stream = redactor.stream()
    for chunks in (_chunked(text, cuts), list(text), [text]):
        out = "".join(stream.feed(chunk) for chunk in chunks) + stream.flush()
        assert out == redactor.redact(text)


@given(secret_sets, st.text("abc", max_size=120))
def test_no_occurrence_survives(secrets: dict[str, str], text: str) -> None:
    left = Redactor(secrets).redact(text)
    assert not any(value in left for value in secrets.values())
    for plain in left.replace("]", "[").split("[")[::2]:
        assert plain in text


@given(secret_sets, st.text("abc", max_size=120))
def test_a_stream_holds_back_only_what_may_become_a_secret(
    secrets: dict[str, str], text: str
) -> None:
    stream = Redactor(secrets).stream()
    out = stream.feed(text)
    if any(value in text for value in secrets.values()):
        return
    held = max(
        (
            size
            for value in secrets.values()
            for size in range(1, min(len(value), len(text) + 1))
            if value.startswith(text[len(text) - size :])
        ),
        default=0,
    )
    assert out == text[: len(text) - held]
    assert out + stream.flush() == text


def test_a_long_text_is_redacted_where_its_pieces_meet() -> None:
    redactor = Redactor({"KEY": "correct-horse"})
    for at in range((1 << 16) - 14, (1 << 16) + 2):
        text = "x" * at + "correct-horse" + "y" * (1 << 16)
        assert redactor.redact(text) == text.replace("correct-horse", "[redacted:KEY]")


def test_ordinary_text_is_not_held_back_at_all() -> None:
    stream = Redactor({"API_KEY": "sk-12345678"}).stream()
    assert stream.feed("nothing to see\n") == "nothing to see\n"
    assert stream.feed("almost: sk-123") == "almost: "
    assert stream.feed("!") == "sk-123!"
    assert stream.feed("sk-12345678") == "[redacted:API_KEY]"
    assert stream.flush() == ""


def test_a_stream_is_bounded_by_the_longest_secret() -> None:
    stream = Redactor({"K": "a" * 50}).stream()
    out = 0
    for _ in range(2000):
        out += len(stream.feed("a" * 500))
        assert len(stream._held) < 100
    assert out + len(stream.flush()) == len("[redacted:K]")


PATTERNS = [r"sk-[a-z]{4,}", r"(?i)password\s*[:=]\s*\S+"]


def test_patterns_of_the_user() -> None:
    redactor = Redactor({}, PATTERNS)
    assert redactor.redact("sk-abcdef PassWord: hunter2 x\npassword\n= y") == (
        "[redacted:pattern-1] [redacted:pattern-2] x\npassword\n= y"
    )


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["sk-abcd", "sk-", "password = ", "\n", "x" * 50, " ", "tokentoken"]),
            st.text("sk-ab=: \n", max_size=6),
        ),
        max_size=15,
    ),
    st.lists(st.integers(0, 500), max_size=10),
)
@example(["x" * (WINDOW - 3), "sk-abcd", "y" * WINDOW, "\n"], [5, WINDOW, WINDOW + 1])
@example(["x" * (WINDOW // 2 - 3), "sk-abcd", "y" * WINDOW * 2], [7])
@example(["password=", "z" * WINDOW * 3, "\nsk-abcd"], [WINDOW])
def test_any_chunking_gives_the_same_with_patterns(pieces: list[str], cuts: list[int]) -> None:
    redactor = Redactor({"T": "tokentoken"}, PATTERNS)
    text = "".join(pieces)
    stream = redactor.stream()
    for chunks in (_chunked(text, cuts), [text]):
        out = "".join(stream.feed(chunk) for chunk in chunks) + stream.flush()
        assert out == redactor.redact(text)


@pytest.mark.parametrize("at", [0, 1, WINDOW // 2 - 4, WINDOW // 2, WINDOW - 4, WINDOW, 3 * WINDOW])
def test_a_pattern_is_found_anywhere_in_a_long_line(at: int) -> None:
    text = "x" * at + "sk-abcdefgh" + "." * (4 * WINDOW)
    assert Redactor({}, [r"sk-[a-z]{8}"]).redact(text) == text.replace(
        "sk-abcdefgh", "[redacted:pattern-1]"
    )


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(unclosed", "is not a regular expression"),
        ("a{99999999999}", "is not a regular expression"),
        ("x*", "matches the empty text"),
        ("(?=secret)", "matches the empty text"),
        ("(a+)+b", "repeats a repeat"),
        ("(?:a{1,60}){1,60}b", "repeats a repeat"),
        ("(?:a?b?)*c", "repeats a repeat"),
        ("(?:aa|a)*c", "repeats alternatives"),
        ("(?:a|b|ab)*c", "repeats alternatives"),
        ("(?:a*b?)*c", "repeats a repeat"),
        ("(?:(?:x|a*)y?)*c", "repeats a repeat"),
        (r"(a)\1", "refers back"),
        (r"(?P<x>a)(?P=x)", "refers back"),
        ("(?x) a * a * b", "is in verbose form"),
        (r"(?:\b){4000000}x", "has too many ways"),
        ("(?:(?=a*b)){100000}x", "repeats a repeat"),
        ("(?a)\\W*é*x", "has too many ways"),
        (".*a.*b.*c.*d.*e", "has too many ways"),
        ("a{0,60}" * 10 + "b", "has too many ways"),
        ("a?" * 30 + "a" * 30, "has too many ways"),
        ("a*a*b", "has too many ways"),
        ("(a*)(?:x|a*)b", "has too many ways"),
        ("(?=a*a*b)x", "has too many ways"),
        ("a+a+$", "has too many ways"),
        (r"\w+\w+\b", "has too many ways"),
        ("a+(?=a*b)", "has too many ways"),
        ("a*(?=a*)c", "has too many ways"),
        ("a+a+(?<!x)", "has too many ways"),
        ("(?i)k*\u212a*x", "has too many ways"),
        ("(?:" * 40 + "a?" + "){8}" * 40 + "b", "has too many ways"),
        ("(?:a|ab|b)" * 20 + "z", "has too many ways"),
        ("a" * 2000, "is longer than 1000"),
    ],
)
def test_a_bad_pattern_is_a_config_error_that_names_it(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Redactor({}, ["fine", pattern])
    assert str(caught.value).startswith(f"redact.patterns: {pattern[:200]!r} {reason}")


@pytest.mark.parametrize(
    "pattern",
    [
        r"sk-[A-Za-z0-9]{20,}",
        r"eyJ[\w-]+\.[\w-]+\.[\w-]+",
        r"(?i)password\s*[:=]\s*\S+",
        r"(?:[0-9a-f]{2}:){15}[0-9a-f]{2}",
        r"(?:AKIA|ASIA)[A-Z0-9]{16}",
        r"\bghp_\w{36}\b",
        r"(?<=token )\w{8,}",
        r"(?i)api[_-]?key[\"']?\s*[:=]\s*[\"']?([\w-]{16,})",
        r"https?://[^\s:@/]+:[^\s@/]+@",
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"(?:\d+\.){3}\d+",
        r"begin.*end",
        r"\b\d{4,}(?!\d)",
        r"(?m)^secret: .*$",
        r'"(?:\\.|[^"\\])*"',
        r"(?:\w+,)*;",
        r"(?:ab|cd)*x",
        r'key\s*=\s*"[^"]*"\s*,\s*\d+\s*;',
        r"(?:" * 200 + "a?" + ")" * 200 + "b",
    ],
)
def test_everyday_patterns_are_accepted(pattern: str) -> None:
    assert Redactor({}, [pattern]).active


PIECES = ["a", "b", "[ab]", "a?", "b?", "a*", "[ab]*", "a{0,9}", "b{2,30}", "(?:a|ab)"]
PIECES += ["$", r"\b", "(?=a*)", "(?!b+c)", "(?:a?b?)", "(?:ab)*", "(?:a|b)*", "(?:a+b)*"]
PIECES += ["(?:b|a{0,3}b)*", "(?:a|b|ab){0,5}", "(?>a*b?)", "a*+", "[^a]*", r"\w*?", "(?i:A*)"]
PIECES += [
    r"(?:\b){3}",
    "(?=a*b){5}",
    "(?=b*){9999}",
    "(?:){9999}",
    r"\x61*",
    "(?:[ab]{3}){2,}",
    ".",
]


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8))
@settings(deadline=None)
def test_whatever_pattern_is_accepted_ends_soon(pieces: list[str]) -> None:
    try:
        stage = PatternStage(compile_pattern("".join(pieces) + "c"), "x")
    except ConfigError:
        return
    texts = [text + "\n" for text in ("a" * WINDOW, "ab" * (WINDOW // 2), "b" * WINDOW)]
    assert_effort(lambda: [stage.feed(text) for text in texts], below=500)


def test_json_values_are_redacted_throughout() -> None:
    redactor = Redactor({"TOKEN": "tokentoken", "PIN_KEY": "123456789"})
    value = {
        "tokentoken": ["x tokentoken", {"n": 1, "pin": 123456789, "none": None, "t": True}],
        "f": 1.5,
        "tuple": ("tokentoken",),
        "huge": 10**5000,
    }
    assert redactor.redact_json(value) == {
        "[redacted:TOKEN]": [
            "x [redacted:TOKEN]",
            {"n": 1, "pin": "[redacted:PIN_KEY]", "none": None, "t": True},
        ],
        "f": 1.5,
        "tuple": ["[redacted:TOKEN]"],
        "huge": 10**5000,
    }
    assert value["tuple"] == ("tokentoken",)


@pytest.mark.slow
def test_json_nested_without_end_is_no_crash() -> None:
    deep: Any = "tokentoken"
    for _ in range(100_000):
        deep = [deep]
    redacted = Redactor({"TOKEN": "tokentoken"}).redact_json(deep)
    for _ in range(100_000):
        (redacted,) = redacted
    assert redacted == "[redacted:TOKEN]"
    loop: dict[str, Any] = {"a": "tokentoken"}
    loop["self"] = loop
    copy = Redactor({"TOKEN": "tokentoken"}).redact_json(loop)
    assert copy["self"] is copy["self"]["self"]
    assert copy["a"] == "[redacted:TOKEN]"


def test_a_canary_never_survives_any_spelling() -> None:
    canary = "canary-" + os.urandom(8).hex() + "/+é"
    redactor = Redactor.from_env({"CANARY_TOKEN": canary, "PATH": "/usr/bin"})
    for way in (
        canary,
        f"CANARY_TOKEN={canary}\x00PATH=/usr/bin",
        json.dumps({"env": {"CANARY_TOKEN": canary}}),
        repr({"CANARY_TOKEN": canary}),
        f"https://x.test/?q={quote(canary, safe='')}",
        f"declare -x CANARY_TOKEN='{canary}'",
        "\n".join([canary] * 3),
    ):
        assert canary[7:23] not in redactor.redact(way)
    for before in ("", "u:", "user:", "x"):
        text = base64.b64encode(f"{before}{canary}{before}".encode()).decode()
        left = redactor.redact(text).replace("[redacted:CANARY_TOKEN]", " ")
        assert all(canary[7:15].encode() not in _decoded(part) for part in left.split())


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4)) if len(text) % 4 != 1 else b""
