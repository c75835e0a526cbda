"""Secrets by the looks of their values: passwords in URLs, tokens, private keys.

Failed before: only the names of variables counted, and of those not `DATABASE_URL` and the like.
"""

from __future__ import annotations

import itertools
import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.config.secrets import find_tokens, is_secret_name, is_secret_value
from toolrest.gate.output.redact import Redactor
from toolrest.process.shells.environment import EnvironmentPolicy, build

_some = random.Random(7)


def letters(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "aB3" + "".join(_some.choice(alphabet) for _ in range(count - 3))


KEY_BODY = "\n".join(letters(64) for _ in range(6))
KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY_BODY}\n-----END OPENSSH PRIVATE KEY-----"
TOKENS = {
    "ghp": "ghp_" + letters(36),
    "github_pat": "github_pat_" + letters(82),
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "openai": "sk-proj-" + letters(48),
    "deepseek": "sk-" + "0123456789abcdef" * 2,
    "slack": "xoxb-1234567890-" + letters(24),
    "google": "AIza" + letters(35),
    "jwt": f"eyJ{letters(30)}.eyJ{letters(60)}.{letters(43)}",
    "gitlab runner": "glrt-" + letters(20),
    "hugging face": "hf_" + letters(34),
    "groq": "gsk_" + letters(52),
    "xai": "xai-" + letters(80),
    "perplexity": "pplx-" + letters(48),
    "nvidia": "nvapi-" + letters(64),
    "replicate": "r8_" + letters(37),
    "docker": "dckr_pat_" + letters(27),
    "google client": "GOCSPX-" + letters(28),
    "google access": "ya29." + letters(180),
    "shopify": "shpat_" + "0123456789abcdef" * 2,
    "age": "AGE-SECRET-KEY-1" + "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"[:29] * 2,
    "openrouter": "sk-or-v1-" + "0123456789abcdef" * 4,
    "vault": "hvs." + letters(90),
    "digitalocean": "dop_v1_" + "0123456789abcdef" * 4,
    "sendgrid": f"SG.{letters(22)}.{letters(43)}",
    "linear": "lin_api_" + letters(40),
    "notion": "ntn_" + letters(46),
    "notion, older": "secret_" + letters(43),
    "figma": "figd_" + letters(43),
    "databricks": "dapi" + "0123456789abcdef" * 2,
    "key": KEY,
    "key in JSON": KEY.replace("\n", "\\n"),
    "key cut off": KEY[:200],
}
NAMES = ("DATABASE_URL", "DB_PASS", "MYSQL_PWD", "SSHPASS", "PGPASSWORD", "SENTRY_DSN", "db_pass")
ORDINARY = (
    "PWD",
    "OLDPWD",
    "SSH_ASKPASS",
    "GIT_ASKPASS",
    "COMPASS",
    "PATH",
    "DSN_FORMAT",
    "BYPASS",
)


def test_names() -> None:
    """Failed before: none of the first five but PGPASSWORD counted."""
    assert [name for name in NAMES if not is_secret_name(name)] == []
    assert [name for name in ORDINARY if is_secret_name(name)] == []


@pytest.mark.parametrize("kind", TOKENS)
def test_tokens_are_withheld_and_redacted(kind: str) -> None:
    """Failed before: a token in a variable of another name, or in a file, was passed on."""
    token = TOKENS[kind]
    built = build(EnvironmentPolicy(), {"HARMLESS": token, "A": "b"})
    assert (built.variables, built.withheld) == ({"A": "b"}, ("HARMLESS",))
    redacted = Redactor.from_env({}).redact(f'x = "{token}";\nmore')
    assert redacted == 'x = "[redacted:token]";\nmore'


@pytest.mark.parametrize("kind", TOKENS)
def test_tokens_in_a_diff_are_redacted(kind: str) -> None:
    """Failed before: the mark of a removed line counted as the middle of a word."""
    lines = TOKENS[kind].split("\n")
    redactor = Redactor.from_env({})
    of_merges = ("--", " -", "- ") if len(lines) == 1 else ()
    for mark, head in itertools.product(
        ("-", "+", " ", *of_merges), ("", "@@ -1 +1 @@\n", "x\r\n")
    ):
        diff = head + "".join(f"{mark}{line}\n" for line in lines)
        for text in (diff, *([diff.replace("\n", "\\n")] if len(lines) > 1 else [])):
            redacted = redactor.redact(text)
            assert "[redacted:token]" in redacted
            assert not any(line in redacted for line in lines)


LED = {
    "aws": ("aws_secret_access_key = ", letters(40), "\n"),
    "aws, exported": ('export AWS_SECRET_ACCESS_KEY="', letters(40), '"'),
    "aws, as JSON": ('{"SecretAccessKey": "', letters(40), '"}'),
    "aws of terraform": ("TF_VAR_aws_secret_access_key=", letters(40), "\n"),
    "proxy": ("Proxy-Authorization: Bearer ", letters(20), "\r\n"),
    "header": ("Authorization: Bearer ", letters(20), "\r\n"),
    "header of curl": ("curl -H 'authorization: token ", letters(32), "' a.test"),
    "header as JSON": ('"Authorization": "Basic ', letters(30) + "==", '"'),
    "url": ("git clone https://me:", "pw", "@a.test/x"),
    "database": ("postgres://app:", "s3cret", "@db/app"),
    "slack webhook": (
        "https://hooks.slack.com/services/",
        "T01234567/B01234567/" + letters(24),
        " x",
    ),
}


@pytest.mark.parametrize("kind", LED)
def test_a_secret_that_follows_its_name_is_redacted(kind: str) -> None:
    """However the text is cut into pieces, and nothing but the secret."""
    before, secret, after = LED[kind]
    text = f"{before}{secret}{after}"
    redactor = Redactor.from_env({})
    assert redactor.redact(text) == f"{before}[redacted:token]{after}"
    for size in (1, 3, 7):
        stream = redactor.stream()
        pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join(pieces) + stream.flush() == f"{before}[redacted:token]{after}"


@pytest.mark.parametrize(
    "text",
    [
        "https://user:$PASSWORD@a.test",
        "https://user:<password>@a.test",
        "https://${USER}:${PASSWORD}@a.test",
        "https://user:***@a.test",
        "Authorization: Bearer $TOKEN",
        "Authorization: Bearer YOUR_TOKEN_GOES_HERE",
        "aws_secret_access_key = ...",
        "see http://a.test:8080/x and mail@a.test",
    ],
)
def test_a_place_for_a_secret_is_none(text: str) -> None:
    assert Redactor.from_env({}).redact(text) == text


@pytest.mark.parametrize(
    "spelled",
    [
        r"a\/b+c=d&12",
        r"a/b\u002bc\u003dd\u002612",
        r"a\/b\u002Bc\u003Dd\u002612",
        "a%2fb%2bc%3dd%2612",
    ],
)
def test_a_known_value_is_found_in_other_spellings(spelled: str) -> None:
    redactor = Redactor({"DB_PASSWORD": "a/b+c=d&12"})
    assert redactor.redact(f"<{spelled}>") == "<[redacted:DB_PASSWORD]>"


def test_a_dash_in_a_word_begins_no_token() -> None:
    for before in ("x-", "x--", "---", "_-"):
        assert find_tokens(before + TOKENS["ghp"]) == []


def test_a_password_in_a_url() -> None:
    """Failed before: only the names of variables counted."""
    source = {
        "HTTPS_PROXY": "http://me:hunter2hunter@proxy.test:3128",
        "SITE": "http://a.test/x:y@z",
    }
    built = build(EnvironmentPolicy(), source)
    assert built.withheld == ("HTTPS_PROXY",)
    assert "HTTPS_PROXY" in build(EnvironmentPolicy(ignore_default_excludes=True), source).variables
    redacted = Redactor.from_env(source).redact(
        "the password is hunter2hunter, at http://a.test/x:y@z"
    )
    assert redacted == "the password is [redacted:HTTPS_PROXY.password], at http://a.test/x:y@z"


@given(
    st.lists(st.sampled_from([*TOKENS.values(), "di", "sk-", "gh", " ", "-----", "-", "\n", "ey"])),
    st.data(),
)
def test_a_stream_gives_the_same_as_the_whole(parts: list[str], data: st.DataObject) -> None:
    redactor = Redactor.from_env({"MY_SECRET": "sk-is-a-secret"})
    text = "".join(parts)
    stream = redactor.stream()
    out, at = "", 0
    while at < len(text):
        size = data.draw(st.integers(1, 200))
        out += stream.feed(text[at : at + size])
        at += size
    assert out + stream.flush() == redactor.redact(text)


def test_a_stream_holds_back_no_ordinary_words() -> None:
    stream = Redactor.from_env({}).stream()
    for text in ("Password: ", "Continue? [y/N] ", ">>> ", "50 %", "task-list done", "disk-usage."):
        assert stream.feed(text) == text


WORDS = st.text(string.ascii_letters + "-_./:@ \n", max_size=60)


@given(
    st.lists(
        st.one_of(
            WORDS,
            st.sampled_from(
                ["sk-", "task-", "AKIA", "hf_", "xai-", "ya29.", "npm_config_", "eyJ", "https://"]
            ),
        )
    )
)
def test_ordinary_words_are_no_tokens(parts: list[str]) -> None:
    text = " ".join(parts)
    assert find_tokens(text) == []


def test_the_manual_and_code_about_keys_are_no_keys() -> None:
    for text in (
        'if "-----BEGIN PRIVATE KEY-----" in text:\n    return "-----END PRIVATE KEY-----"',
        "-----BEGIN CERTIFICATE-----\n" + KEY_BODY + "\n-----END CERTIFICATE-----",
        "sk-learn-is-a-long-name-of-1-package",
        "postgres://localhost/db and user:pass@host",
        "hf_hub_download gsk_short xai-grok-4-fast-reasoning pplx-70b-online nvapi-key r8_short",
        "dckr_pat_of_the_user GOCSPX-what ya29.is-no-token AGE-SECRET-KEY-1-and-more",
        "ghp_short npm_config_registry xoxb-words-only AKIAISNOTENOUGH",
    ):
        assert find_tokens(text) == [], text
        assert not is_secret_value(text)


@pytest.mark.parametrize(
    "piece",
    [
        "sk-",
        "eyJa",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY-----\n",
        "://a:",
        "ghp_a",
        " AKIA0",
        "\\n",
    ],
)
def test_linear_time(piece: str) -> None:
    """What is read in a tenth of a second would take minutes if the time grew by the square."""
    text = piece * (400_000 // len(piece))

    def look() -> None:
        find_tokens(text)
        is_secret_value.__wrapped__(text)

    assert_effort(look, below=100)


def test_a_key_right_behind_the_beginning_of_a_token_is_found() -> None:
    """`sk-----BEGIN ` holds the beginnings of both."""
    assert KEY_BODY[:64] not in Redactor.from_env({}).redact(f"sk{KEY}")


def test_what_follows_the_value_of_a_header_does_not_make_it_a_token() -> None:
    """A stream cannot wait for it: it gave away what the whole covered."""
    text = 'Authorization: "Basic abcdefghijklmnopqrst:1"'
    stream = Redactor.from_env({}).stream()
    pieces = "".join(stream.feed(letter) for letter in text) + stream.flush()
    assert pieces == Redactor.from_env({}).redact(text)


@pytest.mark.parametrize("piece", ["eyJ.", "ya29.", "sk-"])
def test_a_stream_looks_once_at_what_it_holds_back(piece: str) -> None:
    text = piece * (4_000 // len(piece))

    def feed() -> None:
        stream = Redactor.from_env({}).stream()
        for letter in text:
            stream.feed(letter)

    assert_effort(feed, below=40)
