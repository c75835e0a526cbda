from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.wire.http.error_bodies import (
    error_in_stream,
    error_of_status,
    read_error,
    retry_after,
)
from toolrest.wire.provider import refused_options

URL = "http://127.0.0.1:1/v1/x"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "no", "type": "invalid_request_error"}}, "invalid_request"),
        (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, "context_window"),
        (
            400,
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 9"},
            },
            "context_window",
        ),
        (
            400,
            {"object": "error", "message": "This model's maximum context length is 4096 tokens"},
            "context_window",
        ),
        (
            400,
            {"error": {"code": 400, "message": "the request exceeds the available context size"}},
            "context_window",
        ),
        (401, {"error": {"message": "bad key"}}, "auth"),
        (404, {"error": "model 'x' not found"}, "not_found"),
        (429, {"error": {"message": "slow", "code": "rate_limit_exceeded"}}, "rate_limit"),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "quota"),
        (429, {"error": {"type": "usage_limit_reached", "message": "x"}}, "usage_limit"),
        (500, "Internal Server Error", "server"),
        (503, {"error": {"code": "server_is_overloaded", "message": "x"}}, "overloaded"),
        (
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            "overloaded",
        ),
        (400, "The image data you provided does not represent a valid image.", "invalid_image"),
        (
            400,
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum",
            "invalid_image",
        ),
        (400, {"error": {"message": "Could not process image"}}, "invalid_image"),
        (400, "At least one of the image dimensions exceed max allowed size", "invalid_image"),
        (400, "You uploaded an unsupported image. Please make sure it is valid", "invalid_image"),
        (400, {"error": {"message": "x", "code": "invalid_image_format"}}, "invalid_image"),
        (413, {"error": {"message": "x", "type": "request_too_large"}}, "context_window"),
        (400, {"error": {"message": "x", "code": "invalid_encrypted_content"}}, "bad_reasoning"),
        (400, "The encrypted content for item rs_1 could not be verified.", "bad_reasoning"),
        (400, "messages.1.content.0: Invalid `signature` in `thinking` block", "bad_reasoning"),
        (400, "messages.1.content.0.thinking.signature: Field required", "bad_reasoning"),
        (404, "Item with id 'rs_01a' not found. Items are not persisted when", "bad_reasoning"),
        (400, "Item 'fc_1' was provided without its required 'reasoning' item", "bad_reasoning"),
        (
            400,
            "messages.1: The final block in an assistant message cannot be `thinking`.",
            "bad_reasoning",
        ),
        (413, "<html><title>413 Request Entity Too Large</title>", "context_window"),
        (
            500,
            {"error": {"message": "image input is not supported - hint: ... the mmproj"}},
            "no_images",
        ),
        (404, {"error": {"message": "No endpoints found that support image input"}}, "no_images"),
        # vLLM, Ollama, DeepSeek, xAI
        (400, {"error": {"message": "At most 0 image(s) may be provided"}}, "no_images"),
        (500, {"error": "this model is missing data required for image input"}, "no_images"),
        (422, "messages[1]: unknown variant `image_url`, expected `text`", "no_images"),
        (400, {"error": "Image inputs are not supported by this model."}, "no_images"),
        # Groq, Copilot, Alibaba
        (400, "Please reduce the length of the messages or completion.", "context_window"),
        (400, "prompt token count of 140000 exceeds the limit of 128000", "context_window"),
        (400, "Range of input length should be [1, 30720]", "context_window"),
        (422, {"detail": [{"msg": "field required"}]}, "invalid_request"),
        # A server-sent event as the body of an error.
        (
            400,
            'data: {"error":{"message":"x","code":"context_length_exceeded"}}\n\n',
            "context_window",
        ),
        (401, 'event: error\ndata: {"error":{"message":"who are you"}}\n\n', "auth"),
    ],
)
def test_every_shape_of_error_is_understood(status: int, body: Any, kind: str) -> None:
    raw = body if isinstance(body, str) else json.dumps(body)
    error = error_of_status(status, {}, raw.encode(), URL, "responses")
    assert (error.kind, error.status) == (kind, status)
    assert URL in str(error)


def test_the_servers_words_are_shown() -> None:
    body = json.dumps({"error": {"message": "Unknown tool type 'custom'", "type": "x"}}).encode()
    assert "Unknown tool type 'custom'" in str(error_of_status(400, {}, body, URL, "chat"))
    page = str(error_of_status(502, {}, b"<html><title>Bad Gateway</title>", URL, "chat"))
    assert page.endswith(": a web page, 'Bad Gateway'")


def test_a_429_is_repeated_where_the_spec_says_so() -> None:
    body = b'{"error": {"message": "slow down"}}'
    assert not error_of_status(429, {}, body, URL, "responses").retryable
    told = error_of_status(429, {"retry-after": "2"}, body, URL, "responses")
    assert (told.retryable, told.retry_after) == (True, 2)
    assert error_of_status(429, {}, body, URL, "anthropic").retryable


def test_the_wait_in_a_message_counts() -> None:
    error = error_in_stream(
        {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}},
        "responses",
    )
    assert (error.kind, error.retryable, error.retry_after) == ("rate_limit", True, 1.5)
    millis = error_in_stream(
        {"error": {"code": "rate_limit_exceeded", "message": "Try again in 250ms"}}, "responses"
    )
    assert millis.retry_after == 0.25


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("context_length_exceeded", "context_window", False),
        ("insufficient_quota", "quota", False),
        ("invalid_prompt", "invalid_request", False),
        ("server_is_overloaded", "overloaded", False),
        ("cyber_policy", "policy", False),
        ("something_new", "stream", True),
    ],
)
def test_failures_inside_a_stream(code: str, kind: str, *, retryable: bool) -> None:
    error = error_in_stream({"error": {"code": code, "message": "why"}}, "responses")
    assert (error.kind, error.retryable, error.message) == (kind, retryable, "why")


def test_overload_is_worth_another_try_on_anthropic() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert error_in_stream(body, "anthropic").retryable


def test_retry_after_in_every_form() -> None:
    assert retry_after({}) is None
    assert retry_after({"retry-after": "3"}) == 3
    assert retry_after({"retry-after-ms": "1500"}) == 1.5
    assert retry_after({"retry-after": "soon"}) is None
    assert retry_after({"retry-after-ms": "1500.5"}) == 1.5005
    assert retry_after({"retry-after": "1.5s"}) == 1.5
    assert retry_after({"retry-after": "2, 30"}) == 2  # the header came twice
    date = formatdate(time.time() + 60, usegmt=True)
    assert 55 < (retry_after({"retry-after": date}) or 0) <= 61
    unzoned = date.removesuffix(" GMT")
    assert 55 < (retry_after({"retry-after": unzoned}) or 0) <= 61


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "1e400"},
        {"retry-after-ms": "9" * 400},
        {"retry-after-ms": "9" * 5000},
        {"retry-after": "Mon, 01 Jan 0001 00:00:00 -0000"},
    ],
)
def test_a_time_that_is_none_is_ignored(headers: dict[str, str]) -> None:
    assert not retry_after(headers)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_time_to_wait_is_a_number_or_none(text: str, millis: str) -> None:
    found = retry_after({"retry-after": text, "retry-after-ms": millis})
    assert found is None or 0 <= found < float("inf")


def test_a_server_that_asks_to_wait_for_hours_is_not_waited_for() -> None:
    for status in (429, 503):
        error = error_of_status(status, {"retry-after": "86400"}, b"{}", URL, "chat")
        assert not error.retryable
        assert "asks to wait 1,440 minutes" in str(error)
    body = {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 7200s."}}
    streamed = error_in_stream(body, "responses")
    assert not streamed.retryable
    assert "asks to wait 120 minutes" in streamed.message


@given(st.binary(max_size=200))
def test_any_body_gives_words(body: bytes) -> None:
    assert isinstance(read_error(body).message, str)


def test_a_refused_option_is_found_by_its_name() -> None:
    options = ["stream_options", "parallel_tool_calls", "tool_choice"]
    message = "Extra inputs are not permitted: 'stream_options'"
    assert refused_options(message, options) == ["stream_options"]
    assert refused_options("tool_choice: unknown field", options) == ["tool_choice"]
    assert refused_options("the messages are wrong", options) == []


@pytest.mark.parametrize(
    "error",
    [
        {
            "code": 400,
            "message": "request (9 tokens) exceeds the available context size (4096 tokens), try",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9,
            "n_ctx": 4096,
        },
        {"message": "This model's maximum context length is 4096 tokens. However, you"},
        {"message": "the request exceeds the available context size (4096 tokens)"},
        {"message": "input length and `max_tokens` exceed context limit: 3900 + 999 > 4096, de"},
        {"message": "prompt is too long: 5000 tokens > 4096 maximum"},
        {"message": "input token count (5) exceeds the maximum number of tokens allowed (4096)"},
        {"message": "This model's maximum prompt length is 4096 but the request contains 5000"},
    ],
)
def test_the_window_that_an_error_names(error: Any) -> None:
    body = json.dumps({"error": error}).encode()
    found = error_of_status(400, {}, body, URL, "chat")
    assert (found.kind, found.window) == ("context_window", 4096)


def test_words_of_a_server_sent_event_are_shown_without_their_wrapping() -> None:
    body = b'data: {"error":{"message":"who are you"}}\n\n'
    error = error_of_status(401, {}, body, URL, "chat")
    assert str(error).endswith(": who are you")
